"""Well-formedness checks of a rule before anything is proved. Each fault is one diagnostic.

Only faults that exist at all sizes are reported. Faults that depend on sizes, such as a missing condition, are left to
the prover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..index.library import Library
from ..prove.translation.rule_forms import calls, rest_groups
from ..prove.translation.rule_results import by_results, check_results
from ..syntax.ast import OperatorDecl, ParallelDecl
from ..syntax.diagnostic import InputError, Label, fail, gathered, suggest
from ..syntax.parse_rules import GraphCall, RuleDecl, parse_each_rule, parse_rules
from ..syntax.rule_names import check_names
from ..syntax.span import Source
from .certificate import Certificate, certified
from .rule_shapes import check_shapes

MAX_OPERATORS = 512
MAX_NAMES = 512
MAX_INPUTS = 64
MAX_CONDITIONS = 64
MAX_GROUPS = 4
"""Limit of rest groups: the prover enumerates all combinations of their ranks."""


def load_rules(
    source: Source, library: Library, certificates: Mapping[str, Certificate] | None = None
) -> tuple[RuleDecl, ...]:
    """The rules of a `.rules` text, all well formed. Raises all faults together, as `parse_rules` and
    `check_rule` do.
    """
    rules, faults = read_rules(source, library, certificates)
    if faults:
        raise gathered(faults)
    return rules


def read_rules(
    source: Source, library: Library, certificates: Mapping[str, Certificate] | None = None
) -> tuple[tuple[RuleDecl, ...], tuple[InputError, ...]]:
    """The well-formed rules of a text, and the faults of the others. Raises as `parse_rules` does."""
    rules, faults = [], []
    for rule in parse_rules(source).rules:
        try:
            rules.append(check_rule(rule, library, certificates))
        except InputError as fault:
            faults.append(fault)
    return tuple(rules), tuple(faults)


def read_each_rule(source: Source, library: Library) -> tuple[tuple[RuleDecl, ...], tuple[InputError, ...]]:
    """The well-formed rules of a text, and all faults of the others in order, syntax errors included."""
    parsed, unread = parse_each_rule(source)
    rules, faults = [], list(unread)
    for rule in parsed:
        try:
            rules.append(check_rule(rule, library))
        except InputError as fault:
            faults.append(fault)
    faults.sort(key=lambda fault: fault.diagnostic.span.start if fault.diagnostic.span is not None else 0)
    return tuple(rules), tuple(faults)


def check_rule(rule: RuleDecl, library: Library, certificates: Mapping[str, Certificate] | None = None) -> RuleDecl:
    """The rule with one tensor per entry on both sides. Raises InputError if the rule has no meaning at any sizes.
    Shapes are not checked if the rule has a valid certificate: it was proved.

    E010, E102, E112 and E501 to E504: names. E505: too large. E210, E212 and E120 to E126: operators, their operands,
    results and attributes. E121 to E123, E130, E506 and E507: shapes and device axes that fit at no sizes. E508: a
    number with the name of a tensor.
    """
    _check_limits(rule)
    check_names(rule)
    for call in calls(rule):
        _check_call(call, library)
    rule = by_results(rule, library)
    for call in calls(rule):
        check_results(call, _known(call, library)[call.name])
    if not certified(rule, library, certificates or {}):
        check_shapes(rule, library)
    return rule


def _check_limits(rule: RuleDecl) -> None:
    """Raises E505."""
    counts = (
        ("operators", sum(1 for _ in calls(rule)), MAX_OPERATORS),
        ("local names", len(rule.definitions), MAX_NAMES),
        ("inputs", len(rule.inputs), MAX_INPUTS),
        ("conditions", len(rule.conditions), MAX_CONDITIONS),
        ("groups of dimensions", len(rest_groups(rule)), MAX_GROUPS),
    )
    for what, count, most in counts:
        if count > most:
            help = "large rules follow from small ones, which are applied one after another"
            raise fail("E505", f"`{rule.name}` has {count} {what}, a rule has {most} at most", rule.span, help=help)


def _check_call(call: GraphCall, library: Library) -> None:
    """Checks that the operator exists and that the call fits its declaration."""
    known = _known(call, library)
    if call.name not in known:
        what = "operator" if call.degrees is None else "parallel op"
        raise fail("E210", f"unknown {what} `{call.name}`", call.span, help=_other_name(call, library))
    decl = known[call.name]
    notes = () if decl.span is None else (Label(decl.span, "declared here"),)
    if len(call.arguments) != len(decl.inputs):
        message = f"`{call.name}` takes {_counted(len(decl.inputs), 'tensor')}, {len(call.arguments)} given"
        raise fail("E120", message, call.span, notes=notes)
    if isinstance(decl, ParallelDecl) and len(call.degrees or ()) != len(decl.degrees):
        message = f"`{call.name}` has {_counted(len(decl.degrees), 'degree')}, {len(call.degrees or ())} given"
        raise fail("E125", message, call.span, notes=notes)
    _check_attributes(call, decl, notes)


def _known(call: GraphCall, library: Library) -> Mapping[str, OperatorDecl | ParallelDecl]:
    """The declarations that the call may name."""
    return library.operators if call.degrees is None else library.parallels


def _other_name(call: GraphCall, library: Library) -> str:
    """A suggestion for an unknown name: the same name of the other kind, or a similar one."""
    if call.degrees is None and call.name in library.parallels:
        decl = library.parallels[call.name]
        given = "; " * bool(decl.attributes) + ", ".join(f"{attribute.name}=…" for attribute in decl.attributes)
        return f"`{call.name}` is a parallel op: `{call.name}[{', '.join(decl.degrees)}{given}](…)`"
    if call.degrees is not None and call.name in library.operators:
        return f"`{call.name}` is an operator and has no degrees: `{call.name}(…)`"
    close = suggest(call.name, library.operators if call.degrees is None else library.parallels)
    return close or "`unityc list ops` names all of them"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _check_attributes(call: GraphCall, decl: OperatorDecl | ParallelDecl, notes: Sequence[Label]) -> None:
    declared = [attribute.name for attribute in decl.attributes]
    given = dict(call.attributes)
    for name, value in given.items():
        if name not in declared:
            known = f"it has {', '.join(f'`{other}`' for other in declared)}" if declared else "it has none"
            help = suggest(name, declared) or known
            raise fail("E124", f"`{call.name}` has no attribute `{name}`", value.span, help=help, notes=notes)
    for attribute in decl.attributes:
        if attribute.default is None and attribute.name not in given:
            shown = "[{}; {}=…](…)" if isinstance(decl, ParallelDecl) else "(…; {1}=…)"
            form = call.name + shown.format(", ".join(call.degrees or ()), attribute.name)
            message = f"the attribute `{attribute.name}` of `{call.name}` is missing"
            raise fail("E125", message, call.span, help=f"write `{form}`", notes=notes)

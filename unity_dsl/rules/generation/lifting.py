"""Rules of fixed ranks written for any rank: dimensions that always stand together become a group `b..`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...index.equations.where_conditions import keys, mentions_rank
from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.translation.real_attributes import with_reals
from ...prove.translation.rule_forms import call_pattern, claim_of, declaration
from ...prove.translation.rule_results import by_results
from ...syntax.ast import Name, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim, RuleInput
from ...syntax.rule_names import names_in, subgraphs
from ..rule_shapes import Shapes, shapes_of

GROUPS = ("b", "a")
MOST_GROUPS = 2
MOST = 8
"""Lifted forms of a rule that are tried."""


def lifted_forms(rule: RuleDecl, library: Library) -> Iterator[RuleDecl]:
    """Forms of a rule with a group in place of sizes that stand nowhere else, side by side, or in front of all inputs.

    The widest group comes first. A dimension that is addressed by its number is called -1 where it is the last one.
    """
    if any(isinstance(expr, GraphView) for expr in subgraphs((*rule.left, *rule.right))):
        return
    if sum(len({dim.size for dim in tensor.dims if dim.rest}) for tensor in rule.inputs) > MOST_GROUPS:
        return
    forms = [rule]
    last = _counted_from_the_end(rule, library)
    if last is not None and last != rule:
        forms.insert(0, last)
    count = 0
    for run in (*_runs(rule), ()):
        for form in forms:
            if count < MOST:
                count += 1
                yield _with_group(form, run)


def _runs(rule: RuleDecl) -> Iterator[tuple[str, ...]]:
    """Sequences of sizes that always stand side by side in the inputs and nowhere else; the longest first."""
    fixed = {name.name for condition in rule.conditions for name in names_in(condition)}
    calls = [expr for expr in subgraphs((*rule.left, *rule.right)) if isinstance(expr, GraphCall)]
    fixed |= {name.name for call in calls for _, value in call.attributes for name in names_in(value)}
    fixed |= {name for call in calls for name in call.degrees or ()}
    ranges = [tensor.integer_range for tensor in rule.inputs if tensor.integer_range is not None]
    fixed |= {name.name for size in ranges for name in names_in(size)}
    rows: list[list[str]] = []
    for tensor in rule.inputs:
        row = [dim.size.name if isinstance(dim.size, Name) and not dim.device else "" for dim in tensor.dims]
        rows.append(row)
        fixed |= {name.name for dim in tensor.dims if not isinstance(dim.size, Name) for name in names_in(dim.size)}
        fixed |= {name for name in row if row.count(name) > 1}
        fixed |= {dim.size.name for dim in tensor.dims if dim.device and isinstance(dim.size, Name)}
    runs = {
        tuple(row[start:stop])
        for row in rows
        for start in range(len(row))
        for stop in range(start + 1, len(row) + 1)
        if fixed.isdisjoint(row[start:stop]) and "" not in row[start:stop]
    }
    yield from sorted((run for run in runs if _together(run, rows)), key=lambda run: (-len(run), run))


def _together(run: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether an input that has one of the sizes has all of them, side by side in this order."""
    for row in rows:
        if not set(run).isdisjoint(row):
            start = row.index(run[0]) if run[0] in row else -1
            if start < 0 or tuple(row[start : start + len(run)]) != tuple(run):
                return False
    return True


def _with_group(rule: RuleDecl, run: Sequence[str]) -> RuleDecl:
    """The rule with a group for a run of sizes; for an empty one, in front of every input."""
    taken = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)} - set(run)
    group = RuleDim(Name(next(name for name in (*GROUPS, "b1", "b2") if name not in taken), rest=False), rest=True)

    def dims(tensor: RuleInput) -> tuple[RuleDim, ...]:
        if not run:
            devices = sum(dim.device for dim in tensor.dims)
            return (*tensor.dims[:devices], group, *tensor.dims[devices:])
        found: list[RuleDim] = []
        for dim in tensor.dims:
            name = dim.size.name if isinstance(dim.size, Name) and not dim.device else ""
            if name == run[0]:
                found.append(group)
            if name not in run:
                found.append(dim)
        return tuple(found)

    return replace(rule, inputs=tuple(replace(tensor, dims=dims(tensor)) for tensor in rule.inputs))


def _counted_from_the_end(rule: RuleDecl, library: Library) -> RuleDecl | None:
    """The rule with the last dimension called -1 wherever it is addressed; None where shapes are not determined."""
    try:
        plain = by_results(rule, library)
        read, read_library = with_reals(plain, library)
        shapes = shapes_of(read, claim_of(read), read_library)
        if shapes is None:
            return None
        left, right = (
            tuple(_renumbered(own, other, shapes, library) for own, other in zip(side, others, strict=True))
            for side, others in ((plain.left, read.left), (plain.right, read.right))
        )
        return replace(rule, left=left, right=right)
    except (Unsupported, InputError):
        return None


def _renumbered(expr: GraphExpr, other: GraphExpr, shapes: Shapes, library: Library) -> GraphExpr:
    if not isinstance(expr, GraphCall) or not isinstance(other, GraphCall):
        return expr
    decl = declaration(expr, library)
    if call_pattern(expr, decl) is not None:
        return expr
    arguments = tuple(
        _renumbered(own, part, shapes, library) for own, part in zip(expr.arguments, other.arguments, strict=False)
    )
    rank = len(shapes.value(other.arguments[0]).dims)
    counting = {key for condition in decl.conditions if mentions_rank(condition) for key in keys(condition)}
    attributes = tuple(
        (name, Number(-1) if name in counting and value == Number(rank - 1) else value)
        for name, value in expr.attributes
    )
    return replace(expr, arguments=arguments, attributes=attributes)

"""Checks that each name of a rule is bound once, is bound before it is used, and is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from .ast import Apply, Expr, Name, Number
from .diagnostic import Label, fail, suggest
from .parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl

TENSORS = "write `2 * x`, `x / 2`, `x + 2`, `x - 2` or `-x`; the operators `shift` and `scale` take any number"


def check_names(rule: RuleDecl) -> None:
    """Raises E010 (a number for a tensor), E102, E112 and E501 to E504."""
    _check_groups(rule)
    _check_tensors(rule)
    _check_use(rule)
    _check_sizes(rule)


# ---------------------------------------------------------------------------------------------- dimensions


def _check_groups(rule: RuleDecl) -> None:
    """A name is either a group or a size in all inputs."""
    groups = _groups(rule)
    for tensor in rule.inputs:
        sizes = [dim.size for dim in tensor.dims if not dim.rest]
        sizes += [] if tensor.integer_range is None else [tensor.integer_range]
        for name in (name for size in sizes for name in names_in(size)):
            if name.name in groups:
                message = f"`{name.name}` is a group of dimensions, `{name.name}..`, and a size"
                raise fail("E112", message, name.span, help="give one of the two another name")


def _groups(rule: RuleDecl) -> frozenset[str]:
    dims = [dim for tensor in rule.inputs for dim in tensor.dims if dim.rest]
    return frozenset(dim.size.name for dim in dims if isinstance(dim.size, Name))


# ---------------------------------------------------------------------------------------------- tensors


def _check_tensors(rule: RuleDecl) -> None:
    """Every tensor that is read is an input or an earlier definition."""
    known = {tensor.name for tensor in rule.inputs}
    later = {name for name, _ in rule.definitions}
    for name, value in rule.definitions:
        _check_reads([value], known, rule, later, name)
        known.add(name)
        later.discard(name)
    _check_reads((*rule.left, *rule.right), known, rule, set(), "")


def _check_reads(roots: Iterable[GraphExpr], known: set[str], rule: RuleDecl, later: set[str], made: str) -> None:
    for expr in subgraphs(roots):
        if isinstance(expr, Number):
            raise fail("E010", "a number where a tensor is expected", expr.span, help=TENSORS)
        if not isinstance(expr, Name) or expr.name in known:
            continue
        if expr.name == made:
            help = "rules have no recursion; a new name is needed for a new tensor"
            raise fail("E502", f"`{made}` is made from itself", expr.span, help=help)
        if expr.name in later:
            value = dict(rule.definitions)[expr.name]
            notes = [] if value.span is None else [Label(value.span, f"`{expr.name}` is made here")]
            circle = made in _read_by(rule, [value])
            help = "each is made from the other" if circle else "definitions are read from top to bottom"
            raise fail("E502", f"`{expr.name}` is used before it is made", expr.span, help=help, notes=notes)
        help = suggest(expr.name, known) or f"the rule has {_listed(sorted(known))}"
        if expr.name in _bound_sizes(rule):
            help = f"`{expr.name}` is a size; a tensor of numbers is made from a tensor, as in `scale(x; factor=m)`"
        raise fail("E102", f"unknown tensor `{expr.name}`", expr.span, help=help)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _check_use(rule: RuleDecl) -> None:
    """The left side binds every input, and every definition is used."""
    left, right = _read_by(rule, rule.left), _read_by(rule, rule.right)
    declared = {tensor.name: tensor for tensor in rule.inputs}
    for name, place in right.items():
        if name in declared and name not in left:
            own = declared[name].span
            notes = [] if own is None else [Label(own, f"`{name}` is declared here")]
            message = f"the right side reads `{name}`, which the left side does not have"
            help = f"where the left side is found in a graph, no tensor is known to be `{name}`"
            raise fail("E501", message, place.span, label="bound by nothing", help=help, notes=notes)
    for name, tensor in declared.items():
        if name not in left:
            raise fail("E503", f"neither side uses the input `{name}`", tensor.span, help="delete it")
    used = {_whole(value) for name, value in rule.definitions if name in left or name in right}
    for name, value in rule.definitions:
        # Some of the results of one call may be unused.
        if name not in left and name not in right and (_whole(value) is None or _whole(value) not in used):
            raise fail("E503", f"neither side uses `{name}`", value.span, help=f"delete the line of `{name}`")


def _whole(value: GraphExpr) -> GraphExpr | None:
    """The call with several results from which a definition takes one; None for any other value."""
    return replace(value, result=0) if isinstance(value, GraphCall) and value.results > 1 else None


def _read_by(rule: RuleDecl, side: Iterable[GraphExpr]) -> dict[str, Name]:
    """The names that a side reads, itself or through definitions, each where it is first read."""
    made = dict(rule.definitions)
    found: dict[str, Name] = {}
    pending = list(side)
    while pending:
        for expr in subgraphs([pending.pop(0)]):
            if isinstance(expr, Name) and expr.name not in found:
                found[expr.name] = expr
                if expr.name in made:
                    pending.append(made[expr.name])
    return found


# ---------------------------------------------------------------------------------------------- sizes


def names_in(size: Expr) -> Iterator[Name]:
    """The names of a size expression, from left to right."""
    pending = [size]
    while pending:
        expr = pending.pop()
        if isinstance(expr, Name):
            yield expr
        elif isinstance(expr, Apply):
            pending += expr.arguments[::-1]


def _bound_sizes(rule: RuleDecl) -> set[str]:
    """Sizes that a match of the left side determines, and degrees, which are free. Equations may bind more."""
    bound = {name.name for tensor in rule.inputs for dim in tensor.dims if not dim.rest for name in names_in(dim.size)}
    ranges = [tensor.integer_range for tensor in rule.inputs if tensor.integer_range is not None]
    bound |= {name.name for size in ranges for name in names_in(size)}
    bound |= {degree for call in _calls(rule) for degree in call.degrees or ()}
    made = dict(rule.definitions)
    left = [*rule.left, *(made[name] for name in _read_by(rule, rule.left) if name in made)]
    given = [value for expr in subgraphs(left) if isinstance(expr, GraphCall) for _, value in expr.attributes]
    return bound | {name.name for value in given for name in names_in(value)} - _groups(rule)


def _calls(rule: RuleDecl) -> Iterator[GraphCall]:
    roots = (*(value for _, value in rule.definitions), *rule.left, *rule.right)
    return (expr for expr in subgraphs(roots) if isinstance(expr, GraphCall))


def _check_sizes(rule: RuleDecl) -> None:
    """A name in a condition or an attribute is a size of the rule, or an equation ties it to such sizes."""
    bound = _bound_sizes(rule)
    attributes = [name for call in _calls(rule) for _, value in call.attributes for name in names_in(value)]
    conditions = [list(names_in(condition)) for condition in rule.conditions]
    uses = Counter(name.name for names in (attributes, *conditions) for name in names)
    equations = [
        {name.name for name in names}
        for names, condition in zip(conditions, rule.conditions, strict=True)
        if condition.function == "==" and not _says_nothing(condition, bound, uses)
    ]
    known = set(bound)
    while tied := [names for names in equations if not names <= known and (names & known or len(names) == 1)]:
        known |= set().union(*tied)
    for name in (*(name for names in conditions for name in names), *attributes):
        if name.name not in known:
            raise fail(
                "E504", f"nothing says what `{name.name}` is", name.span, help=_size_help(rule, name.name, bound)
            )


def _says_nothing(condition: Apply, bound: set[str], uses: Counter[str]) -> bool:
    """Whether an equation only names a size that nothing else mentions: `n == 2 * k`."""
    return any(
        isinstance(side, Name) and side.name not in bound and uses[side.name] == 1 for side in condition.arguments
    )


def _size_help(rule: RuleDecl, name: str, bound: set[str]) -> str:
    if name in _groups(rule):
        return f"`{name}..` is a group of any number of dimensions and has no size of its own"
    if any(tensor.name == name for tensor in rule.inputs) or name in dict(rule.definitions):
        return f"`{name}` is a tensor; its sizes are the names in its dimensions"
    return suggest(name, bound) or (
        f"the rule's sizes are {_listed(sorted(bound))}" if bound else "the rule has no sizes"
    )


def subgraphs(roots: Iterable[GraphExpr]) -> Iterator[GraphExpr]:
    """These expressions and all their subexpressions, from left to right."""
    pending = [*roots][::-1]
    while pending:
        expr = pending.pop()
        yield expr
        if isinstance(expr, GraphCall):
            pending += expr.arguments[::-1]
        elif isinstance(expr, GraphView):
            pending.append(expr.operand)

"""Lifts rules of fixed ranks to any rank: dimensions that always occur together become a group `b..`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, starmap
from typing import TypeAlias

from ...index.equations.where_conditions import keys, mentions_rank
from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.translation.real_attributes import with_reals
from ...prove.translation.rule_forms import call_pattern, claim_of, declaration
from ...prove.translation.rule_results import by_results
from ...syntax.ast import Expr, Name, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim
from ...syntax.rule_names import names_in, subgraphs
from ..rule_shapes import Shapes, shapes_of

GROUPS = ("b", "a", *(f"b{number}" for number in range(1, 64)))
MOST_GROUPS = 2
MOST_WIDE = 3
"""Limit of inputs of rank 2 or more up to which every subset of them is given a group. Beyond it, only all
of them are.
"""


def lifted_forms(rule: RuleDecl, library: Library) -> Iterator[RuleDecl]:
    """Forms of a rule with one more group. The group replaces adjacent sizes that occur nowhere else, longest run
    first; or it stands before the last dimension of inputs; or it stands before all dimensions of all inputs.

    A dimension that is addressed by its number is written as -1 if it is the last one.
    """
    if any(isinstance(expr, GraphView) for expr in subgraphs((*rule.left, *rule.right))):
        return
    known = _groups(rule)
    if len(known) == MOST_GROUPS:
        return
    form, addressed, from_the_front = _counted_from_the_end(rule, library)
    yield from (_with_group(form, _places_of(run, rule)) for run in _runs(rule, addressed))
    if not known:
        yield from (_with_group(form, places) for places in _inner(rule))
        if not from_the_front:
            yield _with_group(form, _front(rule))


Place: TypeAlias = "tuple[int, int] | None"
"""The half-open range of an input's dimensions that a group replaces; None if the input gets no group."""


def _groups(rule: RuleDecl) -> frozenset[str]:
    return frozenset(
        dim.size.name for one in rule.inputs for dim in one.dims if dim.rest and isinstance(dim.size, Name)
    )


def _places_of(run: Sequence[str], rule: RuleDecl) -> tuple[Place, ...]:
    """The place of a run of sizes in each input."""
    rows = [[dim.size.name if isinstance(dim.size, Name) else "" for dim in tensor.dims] for tensor in rule.inputs]
    return tuple((row.index(run[0]), row.index(run[0]) + len(run)) if run[0] in row else None for row in rows)


def _front(rule: RuleDecl) -> tuple[Place, ...]:
    """The place before all dimensions of each input."""
    devices = (sum(dim.device for dim in tensor.dims) for tensor in rule.inputs)
    return tuple((count, count) for count in devices)


def _inner(rule: RuleDecl) -> Iterator[tuple[Place, ...]]:
    """The places before the last dimension of inputs with several dimensions: of all these inputs, then, if they are at
    most three, of fewer.
    """
    wide = [place for place, one in enumerate(rule.inputs) if sum(not dim.device for dim in one.dims) > 1]
    ends = [len(tensor.dims) - 1 for tensor in rule.inputs]
    for count in range(len(wide), 0 if len(wide) <= MOST_WIDE else len(wide) - 1, -1):
        for chosen in combinations(wide, count):
            yield tuple((end, end) if place in chosen else None for place, end in enumerate(ends))


def _runs(rule: RuleDecl, addressed: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Sequences of sizes that are always adjacent in the inputs and occur nowhere else; the longest first."""
    fixed = {*addressed} | {name.name for condition in rule.conditions for name in names_in(condition)}
    calls = [expr for expr in subgraphs((*rule.left, *rule.right)) if isinstance(expr, GraphCall)]
    fixed |= {name.name for call in calls for _, value in call.attributes for name in names_in(value)}
    fixed |= {name for call in calls for name in call.degrees or ()}
    fixed |= _groups(rule)
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
    """Whether every input that has one of the sizes has all of them, adjacent and in this order."""
    for row in rows:
        if not set(run).isdisjoint(row):
            start = row.index(run[0]) if run[0] in row else -1
            if start < 0 or tuple(row[start : start + len(run)]) != tuple(run):
                return False
    return True


def _with_group(rule: RuleDecl, places: Sequence[Place]) -> RuleDecl:
    """The rule with a group at these places."""
    taken = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)}
    group = RuleDim(Name(next(name for name in GROUPS if name not in taken)), rest=True)
    inputs = tuple(
        tensor if place is None else replace(tensor, dims=(*tensor.dims[: place[0]], group, *tensor.dims[place[1] :]))
        for tensor, place in zip(rule.inputs, places, strict=True)
    )
    return replace(rule, inputs=inputs)


@dataclass
class _Addressed:
    """Rewrites the calls of a rule that address a dimension by its number. The shapes of their operands are known."""

    shapes: Shapes
    library: Library
    names: set[str] = field(default_factory=set)
    from_the_front: bool = False

    def counted(self, expr: GraphExpr, other: GraphExpr) -> GraphExpr:
        """The expression with -1 wherever the last dimension is addressed. `other` is the same expression with real
        numbers as operands. The sizes of addressed dimensions are added to `names`.
        """
        if not isinstance(expr, GraphCall) or not isinstance(other, GraphCall):
            return expr
        decl = declaration(expr, self.library)
        if call_pattern(expr, decl) is not None:
            return expr
        arguments = tuple(starmap(self.counted, zip(expr.arguments, other.arguments, strict=False)))
        counting = {key for condition in decl.conditions if mentions_rank(condition) for key in keys(condition)}
        attributes = tuple(
            (name, self._number(value, other) if name in counting else value) for name, value in expr.attributes
        )
        return replace(expr, arguments=arguments, attributes=attributes)

    def _number(self, value: Expr, call: GraphCall) -> Expr:
        dims = [self.shapes.value(argument).dims for argument in call.arguments]
        if isinstance(value, Number) and isinstance(value.value, int):
            found = (part for one in dims for part in one[value.value])
            self.names |= {symbol for part in found for symbol in part.symbols() if isinstance(symbol, str)}
        if value == Number(len(dims[0]) - 1):
            return Number(-1)
        self.from_the_front |= value != Number(-1)
        return value


def _counted_from_the_end(rule: RuleDecl, library: Library) -> tuple[RuleDecl, frozenset[str], bool]:
    """The rule with -1 wherever the last dimension is addressed, the sizes of all addressed dimensions, and whether a
    dimension is still counted from the front.

    The rule is returned unchanged if its shapes are not determined.
    """
    try:
        plain = by_results(rule, library)
        read, read_library = with_reals(plain, library)
        shapes = shapes_of(read, claim_of(read), read_library)
        if shapes is None:
            return rule, frozenset(), False
        addressed = _Addressed(shapes, library)
        left, right = (
            tuple(starmap(addressed.counted, zip(side, others, strict=True)))
            for side, others in ((plain.left, read.left), (plain.right, read.right))
        )
        return replace(rule, left=left, right=right), frozenset(addressed.names), addressed.from_the_front
    except (Unsupported, InputError, IndexError):
        return rule, frozenset(), False

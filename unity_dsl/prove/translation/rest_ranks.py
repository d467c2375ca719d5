"""Ranks of rest groups at which a rule is proved, and why they stand for all ranks.

An operator reaches a dimension by its place from the front (`d` in `[d, f..]`), by its place from the back (`i` in
`[b.., i]`), or as one of all that are left, together. Let no place lie deeper than R dimensions. At rank 0 every
operator has its places outside the group; so of a group of R + 1 axes or more one at least is told by no place, and all
such axes are never told apart: they are one axis that has been split into factors, a renaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations

from ...index.equations.where_conditions import mentions_rank
from ...index.library import Library
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.parse_rules import RuleDecl
from ...syntax.rational import Rational
from ..normal_form.form import Unsupported
from .rule_forms import Ranks, calls, declaration, rest_groups, views

LEAST = 2
"""The highest rank that is tried at least."""


def ranks_of(rule: RuleDecl, library: Library) -> Iterator[Ranks]:
    """Numbers of axes for the rule's rest groups. Raises InputError for names that are not there."""
    groups = rest_groups(rule)
    highest = max(LEAST, _reach(rule, library) + 1) if groups else 0
    for ranks in combinations(range(highest + 1), repeat=len(groups)):
        yield dict(zip(groups, ranks, strict=True))


def _reach(rule: RuleDecl, library: Library) -> int:
    """How deep a dimension is told by its place: in a declaration, a pattern, or an operand that another broadcasts."""
    fixed = [sum(not dim.rest and not dim.device for dim in tensor.dims) for tensor in rule.inputs]
    fixed += [len(side) for view in views(rule) for side in (view.source, view.target)]
    for call in calls(rule):
        decl = declaration(call, library)
        fixed += [sum(not dim.rest for dim in tensor.dims) for tensor in (*decl.inputs, *decl.outputs)]
    return max(fixed, default=0)


def check_ranks(rule: RuleDecl, library: Library) -> None:
    """Only the first and the last dimension may be counted where there are rest groups. Raises Unsupported.

    With `dim=1` no ranks of a group would stand for all: the dimension is in the group from some rank on.
    """
    if not rest_groups(rule):
        return
    for call in calls(rule):
        decl = declaration(call, library)
        given: dict[str, Expr | Rational | None] = {attribute.name: attribute.default for attribute in decl.attributes}
        given |= dict(call.attributes)
        for condition in decl.conditions:
            if mentions_rank(condition) and not _first_or_last(condition, given):
                raise Unsupported(f"the dimension that `{call.name}` counts, where the rule has rest groups")


def _first_or_last(condition: Expr, given: Mapping[str, Expr | Rational | None]) -> bool:
    """`rank(f) == dim`, `rank(f) + 1 + rank(g) == dim` and so on, with a dim of 0 or -1."""
    if not (isinstance(condition, Apply) and condition.function == "=="):
        return False
    for side, other in (condition.arguments, condition.arguments[::-1]):
        if isinstance(side, Name) and side.name in given:
            groups, between = _counted(other)
            return given[side.name] in (Number(0), Number(-1), 0, -1) and between == groups - 1
    return False


def _counted(expr: Expr) -> tuple[int, int]:
    """How many groups a sum counts, and how many dimensions besides. Anything else counts as too many."""
    match expr:
        case Apply("rank"):
            return 1, 0
        case Number(value) if isinstance(value, int):
            return 0, value
        case Apply("+", (left, right)):
            first, second = _counted(left), _counted(right)
            return first[0] + second[0], first[1] + second[1]
    return 0, 0

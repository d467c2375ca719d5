"""The finitely many ranks of rest groups at which a rule is proved, and why they suffice for all ranks.

An operator addresses a dimension by its position from the front (`d` in `[d, f..]`; `dim=1` also addresses those before
it), from the back (`i` in `[b.., i]`), or as part of a rest group. Let R bound these positions. At rank 0 all addressed
positions lie outside the group. In a group of R + 1 or more axes at least one is not addressed individually. All such
axes are always treated alike, so they are equivalent to one axis split into factors, which is a renaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations

from ...index.equations.where_conditions import mentions_rank
from ...index.library import Library
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, ParallelDecl
from ...syntax.parse_rules import GraphCall, RuleDecl
from ...syntax.rational import Rational
from ..normal_form.form import Unsupported
from .rule_forms import Ranks, calls, declaration, rest_groups, views

LEAST = 2
"""Lower bound of the highest rank at which a rule is proved."""


def ranks_of(rule: RuleDecl, library: Library) -> Iterator[Ranks]:
    """The ranks of the rule's rest groups to prove. Raises InputError for unknown names."""
    groups = rest_groups(rule)
    highest = max(LEAST, _reach(rule, library) + 1) if groups else 0
    for ranks in combinations(range(highest + 1), repeat=len(groups)):
        yield dict(zip(groups, ranks, strict=True))


def _reach(rule: RuleDecl, library: Library) -> int:
    """The bound R: the greatest position addressed in a declaration, a pattern, by number, or by broadcasting."""
    fixed = [sum(not dim.rest and not dim.device for dim in tensor.dims) for tensor in rule.inputs]
    fixed += [len(side) for view in views(rule) for side in (view.source, view.target)]
    for call in calls(rule):
        decl = declaration(call, library)
        fixed += [sum(not dim.rest for dim in tensor.dims) for tensor in (*decl.inputs, *decl.outputs)]
        fixed += [position + 1 for position in _numbered(call, decl) if position is not None]
    return max(fixed, default=0)


def check_ranks(rule: RuleDecl, library: Library) -> None:
    """Raises Unsupported if a rule with rest groups addresses a dimension by anything but a number.

    `dim=1` counts from the front, `dim=-1` is the last. A rule is also proved at rank 0 of its groups, so `dim=1` is a
    dimension of every operand without them.
    """
    if not rest_groups(rule):
        return
    for call in calls(rule):
        if None in _numbered(call, declaration(call, library)):
            raise Unsupported(f"the dimension that `{call.name}` counts, where the rule has rest groups")


def _numbered(call: GraphCall, decl: OperatorDecl | ParallelDecl) -> Iterator[int | None]:
    """The positions that a call addresses by number, -1 for the last; None for one that is given otherwise."""
    given: dict[str, Expr | Rational | None] = {attribute.name: attribute.default for attribute in decl.attributes}
    given |= dict(call.attributes)
    return (_position(condition, given) for condition in decl.conditions if mentions_rank(condition))


def _position(condition: Expr, given: Mapping[str, Expr | Rational | None]) -> int | None:
    """The number given for `dim` in `rank(f) == dim`, `rank(f) + 1 + rank(g) == dim` and so on; else None."""
    if not (isinstance(condition, Apply) and condition.function == "=="):
        return None
    for side, other in (condition.arguments, condition.arguments[::-1]):
        if isinstance(side, Name) and side.name in given:
            groups, between = _counted(other)
            value = given[side.name]
            number = value.value if isinstance(value, Number) else value
            whole = isinstance(number, int) and number >= -1 and between == groups - 1
            return number if whole and isinstance(number, int) else None
    return None


def _counted(expr: Expr) -> tuple[int, int]:
    """(number of groups, number of dimensions) in a sum of ranks. Any other expression counts as too many."""
    match expr:
        case Apply("rank"):
            return 1, 0
        case Number(value) if isinstance(value, int):
            return 0, value
        case Apply("+", (left, right)):
            first, second = _counted(left), _counted(right)
            return first[0] + second[0], first[1] + second[1]
    return 0, 0

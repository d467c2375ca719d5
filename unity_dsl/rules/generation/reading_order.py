"""Writes a rule with the operands of commutative operators in the most readable order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product

from ...index.library import Library
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ...syntax.rule_names import subgraphs
from .canonical_rule import canonical_rule
from .rule_text import sides_text

MOST = 7
"""Limit of commutative calls in a rule for which all orders of operands are tried."""


def in_reading_order(rule: RuleDecl, commutative: Collection[str], library: Library) -> RuleDecl:
    """The canonical rule of least disorder among those obtained by swapping operands of commutative operators and by
    reordering outputs. Ties are broken by text.

    `y * z + x * y => y * (x + z)` becomes `x * y + x * z => x * (y + z)`. Rules that differ only by swapped operands
    have the same reading order.
    """
    rule = canonical_rule(rule, library)  # without local names
    calls = [
        expr
        for expr in subgraphs((*rule.left, *rule.right))
        if isinstance(expr, GraphCall) and expr.name in commutative and len(set(expr.arguments)) > 1
    ]
    distinct = list(dict.fromkeys(calls))[:MOST]
    choices = product((False, True), repeat=len(distinct))
    exchanged = (_exchanged(rule, dict(zip(distinct, choice, strict=True))) for choice in choices)
    orders = [made for one in exchanged for made in _permuted(one)]
    costs = [disorder(one, commutative) for one in orders]
    # Most orders are worse whatever their text, so they are not renamed.
    best = (canonical_rule(one, library) for one, cost in zip(orders, costs, strict=True) if cost == min(costs))
    return min(best, key=sides_text)


def _permuted(rule: RuleDecl) -> Iterator[RuleDecl]:
    """The rule with its outputs in every order."""
    for order in permutations(range(len(rule.left))):
        left, right = (tuple(side[place] for place in order) for side in (rule.left, rule.right))
        yield replace(rule, left=left, right=right)


def _exchanged(rule: RuleDecl, swaps: dict[GraphCall, bool]) -> RuleDecl:
    """The rule with the operands of some of its calls swapped, wherever such a call occurs."""

    def changed(expr: GraphExpr) -> GraphExpr:
        match expr:
            case GraphCall(arguments=arguments):
                made = tuple(map(changed, arguments))
                return replace(expr, arguments=made[::-1] if swaps.get(expr) else made)
            case GraphView(operand):
                return replace(expr, operand=changed(operand))
        return expr

    left, right = (tuple(map(changed, side)) for side in (rule.left, rule.right))
    return replace(rule, left=left, right=right)


def disorder(rule: RuleDecl, commutative: Collection[str]) -> tuple[int, int]:
    """A measure of poor readability. It counts commutative calls whose first operand has lower rank, and pairs of reads
    of inputs in a different order from that of their first reads.
    """
    ranks = {tensor.name: sum(not dim.device for dim in tensor.dims) for tensor in rule.inputs}
    sides = [list(_reads(side, ranks)) for side in (rule.left, rule.right)]
    order = {name: place for place, name in enumerate(dict.fromkeys(name for side in sides for name in side))}
    calls = {expr for expr in subgraphs((*rule.left, *rule.right)) if isinstance(expr, GraphCall)}
    pairs = (call.arguments for call in calls if call.name in commutative)
    lower = sum(_rank(first, ranks) < _rank(second, ranks) for first, second in pairs)
    return lower, sum(_inversions([order[name] for name in side]) for side in sides)


def _rank(expr: GraphExpr, ranks: Mapping[str, int]) -> int:
    """The highest rank of the inputs that an expression reads, which is its own rank if it is element-wise."""
    return max((ranks[name] for name in _reads((expr,), ranks)), default=0)


def _reads(side: Sequence[GraphExpr], inputs: Collection[str]) -> Iterator[str]:
    """The inputs that a side reads, in the order of its text."""
    for expr in side:
        match expr:
            case Name(name) if name in inputs:
                yield name
            case GraphCall(arguments=arguments):
                yield from _reads(arguments, inputs)
            case GraphView(operand):
                yield from _reads((operand,), inputs)


def _inversions(places: Sequence[int]) -> int:
    return sum(one > other for one, other in combinations(places, 2))

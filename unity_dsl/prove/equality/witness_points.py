"""Test points for members of maxima: index values at which a set may have a given element (quantifier elimination).

Membership of a number in {value(r) : r in range, guards} asks for an r. Equations between reads are solved for indices
with coefficient ±1 (Gaussian elimination); each remaining index is set to each of its lower bounds (Cooper 1972; Loos
and Weispfenning 1993): a conjunction of bounds is satisfiable only if it is at the greatest lower bound. The results
are candidates: equality at the point is proved, and that some point meets all guards is asked of z3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice

from ..normal_form.form import Family, Form
from ..normal_form.guard import Guard, Relation, within
from ..normal_form.polynomial import ZERO, Poly, Var, number, of, quotient
from ..normal_form.step_limit import spend
from .index_unification import Change, Read, reads

MAX_POINTS = 64
"""Limit of test points of a family."""


def witness_points(outer: Family, target: Form, free: frozenset[Var]) -> Iterator[Change]:
    """Values of all bound indices of `outer`, in terms of free indices, at which its value may equal the target."""
    points = (
        point
        for change in _solutions({}, [*reads(outer.value)], [*reads(target)], set(outer.bound), free)
        for point in _completed(change, outer)
    )
    yield from islice(points, MAX_POINTS)


def _solutions(
    change: Change, pattern: list[Read], target: list[Read], unknown: set[Var], free: frozenset[Var]
) -> Iterator[Change]:
    """Every way to unify reads of the pattern with reads of the target that solves for open bound indices."""
    spend()
    left = unknown - set(change)
    own = [(read, [part.substitute(change) for part in read[1]]) for read in pattern]
    chosen = next((read for read, index in own if any(not part.variables.isdisjoint(left) for part in index)), None)
    if chosen is None:
        yield change
        return
    others = [read for read in pattern if read is not chosen]
    found = False
    for position, (name, place) in enumerate(target):
        if name == chosen[0] and len(place) == len(chosen[1]):
            solved = _solved(change, chosen[1], place, unknown, free)
            if len(solved) > len(change):
                found = True
                yield from _solutions(solved, others, target[:position] + target[position + 1 :], unknown, free)
    if not found:
        yield from _solutions(change, others, target, unknown, free)


def _solved(
    change: Change, index: Sequence[Poly], place: Sequence[Poly], unknown: set[Var], free: frozenset[Var]
) -> Change:
    """The change extended by the solutions of index = place for indices with coefficient ±1."""
    for part, other in zip(index, place, strict=True):
        equation = (part - other).substitute(change)
        if not equation.variables <= free | unknown:
            continue  # it has an index bound inside
        for var in sorted(equation.variables & unknown - set(change), key=lambda var: var.key):
            coefficient = equation.coefficient(var)
            if coefficient is not None and abs(coefficient) == 1:
                value = (equation - of(var).scaled(coefficient)).scaled(-coefficient)
                change = {known: old.substitute({var: value}) for known, old in change.items()} | {var: value}
                break
    return change


def _completed(change: Change, outer: Family) -> Iterator[Change]:
    """The change with each open index set to its lower bounds, one index after the other."""
    var = next((var for var in outer.bound if var not in change), None)
    if var is None:
        yield change
        return
    conditions = [condition for other in outer.bound for condition in within(of(other), other.size)]
    guards = [condition.substitute(change) for condition in (*conditions, *outer.guards)]
    for point in _points(var, guards):
        put_in = {var: point}
        yield from _completed({known: old.substitute(put_in) for known, old in change.items()} | put_in, outer)


def _points(var: Var, guards: Sequence[Guard]) -> list[Poly]:
    """The lower bounds of an index, 0 first; where an equation determines it, only that value."""
    found: dict[Poly, None] = {ZERO: None}
    for condition in guards:
        coefficient = condition.poly.coefficient(var)
        if not coefficient or not condition.poly.is_integral:
            continue
        rest = condition.poly - of(var).scaled(coefficient)
        if condition.relation is Relation.EQUAL and abs(coefficient) == 1:
            return [rest.scaled(-coefficient)]
        if condition.relation is Relation.NOT_NEGATIVE and coefficient > 0:
            found[_at_least(-rest, coefficient)] = None
    return [point for point in found if var not in point.variables]


def _at_least(value: Poly, divisor: Fraction) -> Poly:
    """value / divisor, rounded up."""
    return value if divisor == 1 else quotient(value + number(divisor - 1), number(divisor))

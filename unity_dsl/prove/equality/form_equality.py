"""Decides equality of normal forms by their coefficient functions; of maxima by mutual inclusion.

A form is a polynomial in the elements of tensors, determined by its coefficient function: for each multiset of
elements, the coefficient of their product. Two forms are equal if the coefficients agree for all coordinates u of the
elements, which is a question of integer arithmetic:

    sum over terms of  coefficient × [guards, with bound indices solved out of  index = u]  =  0

Scalar functions are abstracted to elements of auxiliary tensors (congruence closure): one tensor per function and
arguments up to a change of index, with the free indices of the arguments as coordinates. Auxiliary tensors are taken
for independent of each other and of the inputs, which is incomplete, not unsound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import permutations

from ..decision.integer_arithmetic import Arithmetic
from ..normal_form.form import (
    Atom,
    Element,
    Extremum,
    Family,
    Form,
    Function,
    Term,
    Unsupported,
    add,
    refreshed,
    refreshed_family,
    scale,
    substitute_family,
)
from ..normal_form.guard import Guard, Relation, guard, settled, within
from ..normal_form.polynomial import ONE, Monomial, Poly, Var, coordinate, fresh, number, of, quotient
from ..normal_form.step_limit import spend
from .factor_order import arranged
from .index_unification import changes_of_index, changes_of_member
from .modular_images import Images
from .witness_points import witness_points

MAX_ORDERS = 24
MAX_DEPTH = 12
MAX_COMPARED = 2_000
"""Limit of forms compared in one question, arguments of functions included."""
_RENAMED = 10**12
"""Indices with numbers from here on are placeholders in the keys of `Comparison.placed`."""


@dataclass
class _Class:
    """An auxiliary tensor: its representative atom, whose free indices are its coordinates."""

    name: str
    first: Function | Extremum
    parameters: tuple[Var, ...]


@dataclass
class _Row:
    """A term as element coordinates per tensor, under guards."""

    coefficient: Poly
    bound: tuple[Var, ...]
    guards: tuple[Guard, ...]
    places: tuple[tuple[str, tuple[Poly, ...]], ...]


@dataclass
class Comparison:
    """One question of equality, with the auxiliary tensors introduced so far."""

    arithmetic: Arithmetic
    classes: list[_Class] = field(default_factory=list)
    depth: int = 0
    compared: int = 0
    placed: dict[tuple[Atom, tuple[Guard, ...]], tuple[str, tuple[Poly, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.images = Images.under(self.arithmetic.conditions)

    def equal(self, left: Form, right: Form, given: tuple[Guard, ...] = ()) -> bool:
        """Whether the given conditions imply that two forms are equal. Raises Unsupported."""
        if left == right:
            return True
        if self.images.differ(left, right):
            return False
        if self.depth > MAX_DEPTH:
            raise Unsupported(f"functions nested more than {MAX_DEPTH} deep")
        spend(2)
        self.compared += 1
        if self.compared > MAX_COMPARED:
            raise Unsupported(f"more than {MAX_COMPARED} comparisons of what is nested in functions")
        self.depth += 1
        try:
            difference = add(left, scale(right, number(-1)))
            rows = [row for term in difference if (row := self._row(term, given)) is not None]
            groups: dict[tuple[str, ...], list[_Row]] = {}
            for row in rows:
                groups.setdefault(tuple(name for name, _ in row.places), []).append(row)
            return all(self._balanced(names, group, given) for names, group in groups.items())
        finally:
            self.depth -= 1

    # ------------------------------------------------------------------------------------------ atoms

    def _row(self, term: Term, given: tuple[Guard, ...]) -> _Row | None:
        """The term with its factors as places in tensors; None where its guards contradict the given conditions."""
        term = refreshed(term) if term.bound else term
        context = (*given, *term.guards)
        if settled(context) is None or (term.guards and self.arithmetic.contradictory(context)):
            return None
        places: list[tuple[str, tuple[Poly, ...]]] = []
        for factor, power in term.factors:
            name, index = self._place(factor, context)
            places += [(name if power > 0 else f"1/{name}", index)] * abs(power)
        if len({name for name, _ in places}) < len(places):
            return _Row(term.coefficient, term.bound, term.guards, arranged(places, term.bound, term.guards))
        return _Row(term.coefficient, term.bound, term.guards, tuple(sorted(places, key=lambda place: place[0])))

    def _place(self, factor: Atom, given: tuple[Guard, ...]) -> tuple[str, tuple[Poly, ...]]:
        """The auxiliary tensor of an atom, and the atom's coordinates in it, under the given conditions.

        Cached by the atom and the conditions on its indices, up to renaming of indices.
        """
        if isinstance(factor, Element):
            return factor.tensor, factor.index
        given = _connected(factor.free, given)
        variables = factor.free | {var for condition in given for var in condition.variables}
        ordered = sorted(variables, key=lambda var: var.number)
        own = [Var(_RENAMED + position, var.size) for position, var in enumerate(ordered)]
        there = {var: of(new) for var, new in zip(ordered, own, strict=True)}
        renamed = factor.substitute(there)
        known = tuple(sorted((condition.substitute(there) for condition in given), key=lambda g: g.key))
        if (renamed, known) not in self.placed:
            self.placed[renamed, known] = self._classified(renamed, known)
        name, index = self.placed[renamed, known]
        back = {new: of(var) for var, new in zip(ordered, own, strict=True)}
        return name, tuple(part.substitute(back) for part in index)

    def _classified(self, factor: Function | Extremum, given: tuple[Guard, ...]) -> tuple[str, tuple[Poly, ...]]:
        for known in self.classes:
            index = self._instance(known, factor, given)
            if index is not None:
                return known.name, index
        made = _Class(f"f#{len(self.classes)}", factor, tuple(sorted(factor.free, key=lambda var: var.key)))
        self.classes.append(made)
        return made.name, tuple(of(var) for var in made.parameters)

    def _instance(
        self, known: _Class, factor: Function | Extremum, given: tuple[Guard, ...]
    ) -> tuple[Poly, ...] | None:
        """The coordinates at which the auxiliary tensor equals the atom under the given conditions, else None."""
        if not _same_head(known.first, factor):
            return None
        # The parameters are renamed apart from the indices of the atom.
        own = tuple(fresh(var.size) for var in known.parameters)
        renaming = {old: of(new) for old, new in zip(known.parameters, own, strict=True)}
        pattern = known.first.substitute(renaming)
        for change in changes_of_index(pattern, factor, own):
            if self._same_atom(pattern.substitute(change), factor, given):
                return tuple(change[var] for var in own)
        return None

    def _same_atom(self, left: Atom, right: Atom, given: tuple[Guard, ...]) -> bool:
        if left == right:
            return True
        if isinstance(left, Function) and isinstance(right, Function):
            return all(self.equal(a, b, given) for a, b in zip(left.arguments, right.arguments, strict=True))
        if isinstance(left, Extremum) and isinstance(right, Extremum):
            return self._covers(left, right, given) and self._covers(right, left, given)
        return False

    def _covers(self, outer: Extremum, inner: Extremum, given: tuple[Guard, ...]) -> bool:
        """Whether the outer set includes the inner one."""
        return all(self.member(outer.families, refreshed_family(family), given) for family in inner.families)

    def member(self, outer: Sequence[Family], family: Family, given: tuple[Guard, ...] = ()) -> bool:
        """Whether each member of a family is a member of one of the outer families. Raises Unsupported."""
        context = (*given, *family.guards)
        cases: list[tuple[Guard, ...]] = []
        for other in map(refreshed_family, outer):
            for change in changes_of_member(other, family):
                put_in = substitute_family(replace(other, bound=()), change)
                ranges = tuple(g for var in other.bound for g in within(change[var], var.size))
                case = (*ranges, *put_in.guards)
                if self.equal(put_in.value, family.value, (*context, *case)):
                    cases.append(case)
                    break
        return self.arithmetic.covered(cases, context) or self._covered_at_points(outer, family, context)

    def _covered_at_points(self, outer: Sequence[Family], family: Family, context: tuple[Guard, ...]) -> bool:
        """`member` by test points, for outer families whose indices are not all determined by reads."""
        free = frozenset(var for condition in context for var in condition.variables)
        free |= frozenset(var for term in family.value for var in term.free)
        cases = []
        for other in map(refreshed_family, outer):
            for point in witness_points(other, family.value, free) if other.bound else ():
                put_in = substitute_family(replace(other, bound=()), point)
                if frozenset(put_in.value) == frozenset(family.value):
                    ranges = (g for var in other.bound for g in within(point[var], var.size))
                    cases.append((*ranges, *put_in.guards))
        return bool(cases) and self.arithmetic.covered(cases, context)

    # ------------------------------------------------------------------------------------------ coefficients

    def _balanced(self, names: tuple[str, ...], rows: list[_Row], given: tuple[Guard, ...]) -> bool:
        """Whether the coefficients of one product of tensors add up to 0 at all coordinates."""
        shapes = {tuple(len(index) for _, index in row.places) for row in rows}
        if len(shapes) != 1:
            return False
        (shape,) = shapes
        coordinates = tuple(tuple(coordinate() for _ in range(rank)) for rank in shape)
        # The given order of the places often suffices; all orders are tried only if it does not.
        if not any(_collected(rows, [tuple(range(len(names)))], coordinates)):
            return True
        parts = _collected(rows, list(_orders(names)), coordinates)
        return all(self.arithmetic.balanced(entries, given) for entries in parts)


def _collected(
    rows: list[_Row], orders: list[tuple[int, ...]], coordinates: tuple[tuple[Poly, ...], ...]
) -> list[list[tuple[Fraction, Sequence[Guard]]]]:
    """Lists of guarded numbers, one list per product of sizes; each list must add up to 0.

    Products of sizes are linearly independent. Numbers with equal guards are added; those that cancel are left out.
    """
    counts: dict[tuple[tuple[Var, ...], tuple[Guard, ...]], Poly] = {}
    extra: dict[str, list[Var]] = {}
    for row in rows:
        ordered = Counter(tuple(row.places[position] for position in order) for order in orders)
        for places, times in ordered.items():
            bound, guards = _solve(replace(row, places=places), coordinates)
            kept = settled(guards)
            if kept is None:
                continue
            coefficient, left_over, kept = _counted(row.coefficient.scaled(times), bound, kept, extra)
            key = (left_over, tuple(sorted(kept, key=lambda condition: condition.key)))
            counts[key] = counts[key] + coefficient if key in counts else coefficient
    parts: dict[tuple[tuple[Var, ...], Monomial], list[tuple[Fraction, Sequence[Guard]]]] = {}
    for (left_over, guards), coefficient in counts.items():
        for monomial, factor in coefficient.terms:
            parts.setdefault((left_over, monomial), []).append((factor, guards))
    return list(parts.values())


def _connected(variables: frozenset[Var], given: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The conditions that share indices with `variables`, transitively, and those on sizes alone."""
    reached = set(variables)
    while True:
        tied = [condition for condition in given if not condition.variables.isdisjoint(reached)]
        more = {var for condition in tied for var in condition.variables} | reached
        if len(more) == len(reached):
            break
        reached = more
    return tuple(c for c in given if not c.variables or not c.variables.isdisjoint(reached))


def _same_head(left: Function | Extremum, right: Function | Extremum) -> bool:
    if isinstance(left, Function) and isinstance(right, Function):
        return left.name == right.name and len(left.arguments) == len(right.arguments)
    return isinstance(left, Extremum) and isinstance(right, Extremum)


def _orders(names: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
    """The permutations that map each place to a place of the same tensor. Raises Unsupported for too many."""
    found = 0
    for order in permutations(range(len(names))):
        if all(names[position] == name for position, name in zip(order, names, strict=True)):
            found += 1
            if found > MAX_ORDERS:
                raise Unsupported(f"a product of more than {MAX_ORDERS} orders of elements of one tensor")
            yield order


def _solve(row: _Row, coordinates: tuple[tuple[Poly, ...], ...]) -> tuple[tuple[Var, ...], tuple[Guard, ...]]:
    """Solves `index = u` for bound indices. A coefficient c other than ±1 adds divisibility by c.

    Ranges become guards.
    """
    spend(2 + len(row.bound) + len(row.guards))
    equations = [
        part - place
        for (_, index), own in zip(row.places, coordinates, strict=True)
        for part, place in zip(index, own, strict=True)
    ]
    equations += [condition.poly for condition in row.guards if condition.relation is Relation.EQUAL]
    guards = [condition for condition in row.guards if condition.relation is not Relation.EQUAL]
    bound = list(row.bound)
    progress = True
    while progress:
        progress = False
        for equation, var, coefficient in _candidates(equations, bound):
            rest = equation - of(var).scaled(coefficient)
            value = rest.scaled(-1 / coefficient) if abs(coefficient) == 1 else quotient(-rest, number(coefficient))
            put_in = {var: value}
            equations = [other.substitute(put_in) for other in equations]
            guards = [condition.substitute(put_in) for condition in guards] + list(within(value, var.size))
            bound.remove(var)
            progress = True
            break
    return _by_digits(bound, [*guards, *(guard(equation, Relation.EQUAL) for equation in equations)])


def _by_digits(bound: list[Var], guards: list[Guard]) -> tuple[tuple[Var, ...], tuple[Guard, ...]]:
    """Eliminates bound indices that a window as wide as their step determines: 0 <= e - c v < c means v = e // c.

    A sum over the digits of a position, 2 p + m, becomes one over positions; 0 <= v < n becomes 0 <= e < c n.
    """
    left = list(bound)
    for var in bound:
        found = next(_own_windows(var, guards), None)
        if found is None:
            continue
        lower, upper, step = found
        position = lower.poly + of(var).scaled(step)
        others = [condition for condition in guards if condition not in (lower, upper)]
        put_in = {var: quotient(position, number(step))}
        ends = (position, number(step) * var.size - position - ONE)
        guards = [condition.substitute(put_in) for condition in others]
        guards += [guard(end, Relation.NOT_NEGATIVE) for end in ends]
        left.remove(var)
    return tuple(left), tuple(guards)


def _own_windows(var: Var, guards: Sequence[Guard]) -> Iterator[tuple[Guard, Guard, Fraction]]:
    """Pairs of guards e - c v >= 0 and c - 1 - e + c v >= 0, with c."""
    ordered = [condition for condition in guards if condition.relation is Relation.NOT_NEGATIVE]
    for lower in ordered:
        step = -(lower.poly.coefficient(var) or Fraction(0))
        if step > 1 and step.denominator == 1 and lower.poly.is_integral:
            width = number(step - 1) - lower.poly
            yield from ((lower, upper, step) for upper in ordered if upper.poly == width)


def _candidates(equations: list[Poly], bound: list[Var]) -> Iterator[tuple[Poly, Var, Fraction]]:
    """(equation, bound index that it determines, coefficient), those with coefficients ±1 first."""
    found = [
        (equation, var, coefficient)
        for equation in equations
        for var in bound
        if (coefficient := equation.coefficient(var))
    ]
    yield from (entry for entry in found if abs(entry[2]) == 1)
    yield from ((-e, v, -c) if c < 0 else (e, v, c) for e, v, c in found if abs(c) != 1)


def _counted(
    coefficient: Poly, bound: tuple[Var, ...], guards: tuple[Guard, ...], extra: dict[str, list[Var]]
) -> tuple[Poly, tuple[Var, ...], tuple[Guard, ...]]:
    """Eliminates the bound indices that no element determines: one in no guard multiplies the coefficient by its range.

    The others become further coordinates, matched across terms by size and order: sums over them agree if their terms
    agree.
    """
    mentioned = {var for condition in guards for var in condition.variables}
    taken: dict[str, int] = {}
    renamed: dict[Var, Poly] = {}
    names = []
    for var in bound:
        if var not in mentioned:
            coefficient = coefficient * var.size
            continue
        place = taken.get(var.size.key, 0)
        taken[var.size.key] = place + 1
        known = extra.setdefault(var.size.key, [])
        if place == len(known):
            known.append(fresh(var.size))
        names.append(known[place])
        renamed[var] = of(known[place])
    kept = tuple(condition.substitute(renamed) for condition in guards)
    return coefficient, tuple(sorted(names, key=lambda var: var.key)), kept

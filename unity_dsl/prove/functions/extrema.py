"""Normalises maxima and minima of sets: flattens nested ones, drops dominated members, factors out common terms.

    max(max(A), B) = max(A with B), -inf the max of nothing            max(a) = a
    c max(A) + t = max(c A + t), where c > 0, or c >= 0 and max(A) is finite, and t is finite
    min(A) = -max(-A)
    max(A with b) = max(A), where a - b >= 0 for some a of A

Nested sets are flattened first; then common terms and factors of all members are taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ..decision.extended_reals import BOTTOM
from ..decision.inhabited_sets import inhabited
from ..decision.signs import Sign, Signs, put_in_set
from ..normal_form.case_split import cases, is_outer, split
from ..normal_form.common_factors import common_coefficient, common_factors, common_measure, divided
from ..normal_form.form import (
    Atom,
    Extremum,
    Family,
    Form,
    Term,
    add,
    atom,
    extremum_atom,
    free_variables,
    is_finite,
    scale,
)
from ..normal_form.form_products import multiply
from ..normal_form.guard import Guard
from ..normal_form.polynomial import ONE, Var, number
from .fact_patterns import is_negative

MAX_SET = 16
"""Dominated members of larger sets are not dropped. c max(A) + t is not flattened if A has more than half as many."""


class Sets:
    """Builds normalised maxima and minima.

    `exponentials` are the functions that may have negative powers. `of_values` gives the maximum of values of one
    monotone function, or None.
    """

    def __init__(
        self,
        signs: Signs,
        exponentials: Collection[str],
        of_values: Callable[[Sequence[Family]], Form | None] = lambda members: None,
    ) -> None:
        self.signs = signs
        self.exponentials = exponentials
        self.of_values = of_values

    def least(self, families: Iterable[Family]) -> Form:
        negated = [replace(family, value=scale(family.value, number(-1))) for family in families]
        return scale(self.greatest(negated), number(-1))

    def greatest(self, families: Iterable[Family]) -> Form:
        """The maximum of a union of families; guards without bound indices become cases. Raises Unsupported."""
        flat = [part for family in families for part in self._flattened(family)]
        bound = {var for family in flat for var in family.bound}

        def outer(condition: Guard, term: Term) -> bool:
            return is_outer(condition, term) and condition.variables.isdisjoint(bound)

        def value(values: tuple[Form, ...]) -> Form:
            parts = [replace(family, value=value) for family, value in zip(flat, values, strict=True)]
            return self._of(list(dict.fromkeys(member for part in parts for member in self._members(part))))

        return split(tuple(family.value for family in flat), value, outer)

    # ------------------------------------------------------------------------------------------ sets within sets

    def _flattened(self, family: Family) -> Iterator[Family]:
        """The family with values c max(A) + t as families c A + t, under the guards of the inner set."""
        for position, term in enumerate(family.value):
            inner = self.signs.set_in(term)
            if inner is None or not self._dissolves(inner, family.value):
                continue
            for part in put_in_set(family.value, position, inner):
                merged = Family(family.bound + part.bound, family.guards + part.guards, part.value)
                yield from self._flattened(merged)
            return
        yield family

    def _dissolves(self, inner: Extremum, value: Form) -> bool:
        """Whether c max(A) + t is rewritten to max(c A + t): if t is 0, or if t and the few members are finite."""
        if len(value) == 1:
            return True
        others = (term for term in value if inner not in dict(term.factors))
        elements = all(is_finite(family.value) for family in inner.families)
        return len(inner.families) <= MAX_SET // 2 and elements and all(is_finite((term,)) for term in others)

    def _members(self, family: Family) -> Iterator[Family]:
        """One family per case of the value's guards, without members equal to minus infinity."""
        for guards, (value,) in cases((family.value,)):
            if value != BOTTOM:
                yield from self._flattened(_without_idle(Family(family.bound, (*family.guards, *guards), value)))

    # ------------------------------------------------------------------------------------------ the set as a form

    def _of(self, members: list[Family]) -> Form:
        members = self._undominated(members)
        if len(members) == 1 and not members[0].bound and not members[0].guards:
            return members[0].value
        if not members:
            return BOTTOM
        if not all(is_finite(family.value) for family in members):
            return self._atom(members)
        if (found := self.of_values(members)) is not None:
            return found
        if len(members) == 2 and not any(family.bound or family.guards for family in members):
            return self._of_two(*(family.value for family in members))
        shared = _common_terms(members)
        if shared:
            rest = [replace(f, value=tuple(term for term in f.value if term not in shared)) for f in members]
            return add(shared, self._of([_without_idle(family) for family in rest]))
        return self._of_differing(members)

    def _of_two(self, first: Form, second: Form) -> Form:
        """max(a, b) = b + max(a - b, 0), oriented so that the difference has a positive leading term."""
        difference = add(first, scale(second, number(-1)))
        if is_negative(difference):
            difference, second = scale(difference, number(-1)), first
        return add(second, self._of_differing([Family((), (), difference), Family((), (), ())]))

    def _of_differing(self, members: list[Family]) -> Form:
        """The maximum with the common factor of all members taken out."""
        factor = self._common_factor(members)
        if factor == Term(ONE):
            return self._atom(members)
        powers = dict(factor.factors)
        rest = [replace(family, value=divided(family.value, factor.coefficient, powers)) for family in members]
        found = self.of_values(rest)
        return multiply((factor,), self._atom(rest) if found is None else found)

    def _atom(self, members: list[Family]) -> Form:
        return atom(extremum_atom(members, self.inhabited(members)))

    def inhabited(self, members: list[Family]) -> bool:
        """Whether the set is known to be non-empty."""
        return inhabited(members, self.signs.arithmetic)

    def _undominated(self, members: list[Family]) -> list[Family]:
        """The families without those whose members are all known to be at most a member of another family."""
        if not 1 < len(members) <= MAX_SET:
            return members
        kept = list(members)
        for family in members:
            if any(other is not family and self._exceeds(other, family) for other in kept):
                kept = [other for other in kept if other is not family]
        return kept

    def _exceeds(self, greater: Family, less: Family) -> bool:
        if greater.guards or not (is_finite(greater.value) and is_finite(less.value)):
            return False  # may be empty, or infinite
        difference = add(greater.value, scale(less.value, number(-1)))
        return self.signs.form(difference) is not Sign.UNKNOWN

    def _common_factor(self, members: list[Family]) -> Term:
        """The common factor of all members that is known to be >= 0, and > 0 where the set may be empty.

        A factor c <= 0 is taken out as -c.
        """
        values = [family.value for family in members if family.value]
        together = tuple(term for value in values for term in value)
        bound = {var for family in members for var in family.bound}
        least = Sign.NOT_NEGATIVE if self.inhabited(members) else Sign.POSITIVE
        shared = common_coefficient(together)
        measured = shared.inverse() is not None or self.signs.coefficient(shared) < least
        coefficient = common_measure(together) if measured else shared
        factors: dict[Atom, int] = {}
        for factor, power in common_factors(together, self.exponentials).items():
            if not factor.free.isdisjoint(bound):
                continue
            if self.signs.power(factor, power) >= least:
                factors[factor] = power
            elif measured and power == 1 and self.signs.form(scale(atom(factor), number(-1))) >= least:
                factors[factor], coefficient = power, -coefficient
        ordered = tuple(sorted(factors.items(), key=lambda entry: entry[0].key))
        return Term(coefficient, factors=ordered)


def _common_terms(members: list[Family]) -> Form:
    """The terms that occur in all values and have no bound index of the families."""
    if len(members) == 1 and not members[0].bound:
        return ()
    first, *others = members
    return tuple(
        term
        for term in first.value
        if term.free.isdisjoint(first.bound)
        and all(term in other.value and term.free.isdisjoint(other.bound) for other in others)
    )


def _without_idle(family: Family) -> Family:
    """The family without bound indices that neither value nor guards mention; ranges are non-empty."""
    used: set[Var] = {var for condition in family.guards for var in condition.variables}
    used |= free_variables(family.value)
    return replace(family, bound=tuple(var for var in family.bound if var in used))

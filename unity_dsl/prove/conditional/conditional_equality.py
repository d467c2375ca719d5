"""Equality where the left side has a value, by case split on the signs that decide maxima, branches, comparisons.

    assumptions    wherever the left side has a value, its divisors are nonzero, … (assumed_signs.py)
    cases          max(a, b) is a where a - b > 0, and b where b - a >= 0; so for `select` and comparisons

Both sides are rewritten under the assumptions and compared; if that fails, a form whose sign decides an atom is assumed
positive, then not positive (the splitting rule of tableaux and of DPLL(T)). Cases whose assumptions are inconsistent
are closed by linear real arithmetic. At most `MAX_LEAVES` cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..decision.linear_reals import contradictory
from ..equality.form_equality import Comparison
from ..functions.definedness import Domain, Partial, has_value
from ..functions.scalar_functions import Functions
from ..normal_form.common_factors import numerators
from ..normal_form.form import (
    Extremum,
    Family,
    Form,
    Function,
    Unsupported,
    add,
    constant,
    is_finite,
    refresh,
    scale,
)
from ..normal_form.polynomial import ONE, Var, number
from .assumed_signs import AssumingFunctions, Assumption, Known, assumptions_of
from .conditional_rewriting import STEPS, Rewriting

MAX_LEAVES = 32
MAX_SPLITS = 6
MAX_DENOMINATORS = 8


class ConditionalEquality:
    """Equality and definedness wherever a tensor with this domain has a value."""

    def __init__(self, domain: Domain, functions: Functions) -> None:
        self.assumptions = tuple(assumptions_of(domain, functions.laws.functions))
        self.functions = AssumingFunctions(functions, self.assumptions)
        self._left = MAX_LEAVES

    def equal(self, left: Form, right: Form) -> bool:
        """Whether two forms are equal wherever the tensor has a value. Raises Unsupported."""
        refused: Unsupported | None = None
        for method in (self._as_they_are, self._by_cases):
            try:
                if method(left, right):
                    return True
            except Unsupported as reason:
                refused = refused or reason
        if refused is not None:
            raise refused
        return False

    def _as_they_are(self, left: Form, right: Form) -> bool:
        return Comparison(self.functions.arithmetic).equal(left, right)

    def _by_cases(self, left: Form, right: Form) -> bool:
        self._left = MAX_LEAVES
        return self._equal(left, right, (), MAX_SPLITS)

    def has_value(self, partial: Partial) -> bool:
        """Whether an application has a value wherever the tensor has one."""
        signs = self.functions.signs
        with signs.where(partial.family.guards):
            return has_value(partial.function, signs, self.functions.laws.functions)

    def _equal(self, left: Form, right: Form, taken: tuple[tuple[Form, bool], ...], depth: int) -> bool:
        self._left -= 1
        if self._left < 0:
            raise Unsupported(f"more than {MAX_LEAVES} cases of signs")
        rewriting = Rewriting(self.functions)
        left, right = rewriting.form(left), rewriting.form(right)
        difference = add(left, scale(right, number(-1)))
        if self._as_they_are(left, right) or self._is_zero_over_denominators(difference):
            return True
        deciding = next(self._deciding(difference, rewriting), None) if depth else None
        return deciding is not None and all(
            self._holds(left, right, (*taken, (deciding, positive)), depth - 1) for positive in (True, False)
        )

    def _is_zero_over_denominators(self, form: Form) -> bool:
        """Whether a form times its denominators, which are nonzero, is 0."""
        multiplied = False
        if not is_finite(form):
            return False
        for _ in range(MAX_DENOMINATORS):
            found = (entry for entry in numerators(form) if self.functions.signs.nonzero(entry[0]))
            entry = next(found, None)
            if entry is None:
                break
            form, multiplied = self.functions.product(constant(ONE), entry[1]), True
        return multiplied and self._as_they_are(form, ())

    def _holds(self, left: Form, right: Form, taken: tuple[tuple[Form, bool], ...], depth: int) -> bool:
        """Whether both forms are equal in the case `taken`, or its assumptions are contradictory."""
        positive = [form for form, strict in taken if strict]
        others = [scale(form, number(-1)) for form, strict in taken if not strict]
        if contradictory(*self.functions.signs.with_constants(positive, others)):
            return True
        deciding, strict = taken[-1]
        number_of = deciding if strict else scale(deciding, number(-1))
        known = Known.POSITIVE if strict else Known.NOT_NEGATIVE
        with self.functions.signs.assuming(Assumption(Family((), (), number_of), known)):
            return self._equal(left, right, taken, depth)

    def _deciding(self, form: Form, rewriting: Rewriting) -> Iterator[Form]:
        """The defined forms without bound indices whose signs decide maxima, branches and comparisons."""
        for found in dict.fromkeys(_differences(form, frozenset())):
            if is_finite(found) and rewriting.is_total(found):
                yield found


def _differences(form: Form, bound: frozenset[Var]) -> Iterator[Form]:
    for term in form:
        inside = bound | frozenset(term.bound)
        for factor, _ in term.factors:
            match factor:
                case Extremum(families):
                    for family in families:
                        yield from _differences(family.value, inside | frozenset(family.bound))
                    plain = not any(family.bound or family.guards for family in families)
                    values = [refresh(family.value) for family in families]
                    for first, second in pairwise(values) if plain else ():
                        yield from _open(add(first, scale(second, number(-1))), inside)
                case Function(name, arguments):
                    for argument in arguments:
                        yield from _differences(argument, inside)
                    if name in STEPS and len(arguments) == 1:
                        yield from _open(refresh(arguments[0]), inside)


def _open(form: Form, bound: frozenset[Var]) -> Iterator[Form]:
    """The form, if it has neither bound indices nor guards."""
    if form and not any(term.guards or not term.free.isdisjoint(bound) for term in form):
        yield form

"""Rewrites forms under sign assumptions: conditional rewriting, innermost first.

Each atom is rebuilt from its rewritten parts, which applies the facts whose conditions the assumptions discharge.
Inside a branch its condition is assumed. Maxima and branches that are piecewise linear in one form are normalised to
the canonical representation (piecewise_linear.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from ..functions.definedness import has_value, is_total_function
from ..normal_form.case_split import split
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
    atom,
    constant,
    extremum_atom,
    is_finite,
    refresh,
    refreshed,
    refreshed_family,
    scale,
)
from ..normal_form.guard import settled
from ..normal_form.polynomial import ONE, number
from .assumed_signs import AssumingFunctions, Assumption, Known
from .piecewise_linear import form_of, functions_of_one, greatest, selected

MAX_REWRITTEN = 4_000
"""Limit of atoms rebuilt."""

STEPS: dict[str, Callable[[Fraction], bool]] = {
    "positive": lambda value: value > 0,
    "not_negative": lambda value: value >= 0,
    "zero": lambda value: value == 0,
}
"""For each comparison with 0, the condition on the compared value under which it is 1."""


class Rewriting:
    """Rewrites forms under the assumptions of `functions`."""

    def __init__(self, functions: AssumingFunctions) -> None:
        self.functions = functions
        self.signs = functions.signs
        self._left = MAX_REWRITTEN

    def form(self, form: Form) -> Form:
        """The form rewritten. Raises Unsupported where it grows too large."""
        return add(*map(self._term, form))

    def _term(self, term: Term) -> Form:
        if term.infinities:
            return (term,)  # the laws of real numbers do not apply
        term = refreshed(term) if term.bound else term
        with self.signs.where(term.guards):
            total = constant(term.coefficient)
            for factor, power in term.factors:
                total = self._times(total, factor, power)
        found = []
        for part in total:
            guards = settled((*term.guards, *part.guards))
            if guards is not None:
                found.append((replace(part, bound=term.bound + part.bound, guards=guards),))
        return add(*found)

    def _times(self, total: Form, factor: Atom, power: int) -> Form:
        if power < 0:
            assert isinstance(factor, Function), "only exponentials have negative powers"
            factor, power = Function(factor.name, (scale(factor.arguments[0], number(-1)),)), -power
        value = self.atom(factor)
        for _ in range(power):
            total = self.functions.product(total, refresh(value))
        return total

    # ------------------------------------------------------------------------------------------ atoms

    def atom(self, factor: Atom) -> Form:
        """An atom rewritten."""
        self._left -= 1
        if self._left < 0:
            raise Unsupported(f"more than {MAX_REWRITTEN} atoms to rewrite")
        match factor:
            case Element():
                return atom(factor)
            case Extremum(families):
                rewritten = [self._family(refreshed_family(family)) for family in families]
                unchanged = extremum_atom(rewritten).families == families
                return self._greatest(factor if unchanged else None, rewritten)
            case Function(_, arguments) if not all(map(is_finite, arguments)) or _is_open(factor):
                return atom(factor)
            case Function("select", (condition, then, otherwise)):
                return self._select(*map(refresh, (condition, then, otherwise)))
        return self._function(factor)

    def _family(self, family: Family) -> Family:
        with self.signs.where(family.guards):
            return replace(family, value=self.form(family.value))

    def _function(self, factor: Function) -> Form:
        parts = tuple(self.form(refresh(argument)) for argument in factor.arguments)
        name = factor.name.removeprefix("fn ")
        if factor.name in STEPS:
            signs = {"positive": ">", "not_negative": ">=", "zero": "=="}
            return self.functions.step(signs[factor.name], parts[0], ())
        if factor.name == "inv":
            return self.functions.inverse(parts[0])
        if name != factor.name:
            return self.functions.apply(name, list(parts))
        return atom(factor)

    def _greatest(self, factor: Extremum | None, families: list[Family]) -> Form:
        """The maximum of rewritten families. `factor` is the original, None if changed.

        An unchanged one that is known to be inhabited is kept where the result may be infinite.
        """
        plain = not any(family.bound or family.guards for family in families)
        if plain and len(families) > 1:
            found = self._linear([family.value for family in families])
            if found is not None:
                return found
        found = self.functions.sets.greatest(families)
        return atom(factor) if factor is not None and factor.inhabited and not is_finite(found) else found

    def _linear(self, values: list[Form]) -> Form | None:
        """The maximum of functions piecewise linear in one form, normalised; else None."""
        found = None if any(term.guards for value in values for term in value) else functions_of_one(values)
        if found is None or not is_finite(found[0]):
            return None
        function = greatest(found[1])
        return None if function is None else form_of(function, found[0], self._greater)

    def _greater(self, first: Form, second: Form) -> Form:
        return self.functions.sets.greatest([Family((), (), first), Family((), (), second)])

    # ------------------------------------------------------------------------------------------ branches

    def _select(self, condition: Form, then: Form, otherwise: Form) -> Form:
        condition = self.form(condition)
        return split((condition, then, otherwise), lambda parts: self._branches(*parts))

    def _branches(self, condition: Form, then: Form, otherwise: Form) -> Form:
        if condition == constant(ONE):
            return self.form(then)
        if not condition:
            return self.form(otherwise)
        fails = add(constant(ONE), scale(condition, number(-1)))
        if _step(condition) is None and _step(fails) is not None:
            return self._branches(fails, otherwise, then)  # a != b is 1 - [a == b]
        with self.signs.assuming(*_assumed(condition, True)):
            first = self.form(then)
        with self.signs.assuming(*(_assumed(condition, False) if self.is_total(condition) else ())):
            second = self.form(otherwise)
        if first == second:
            return first
        found = self._selected(condition, first, second)
        return self.functions.select(condition, first, second) if found is None else found

    def _selected(self, condition: Form, then: Form, otherwise: Form) -> Form | None:
        """A `select` as one piecewise linear function, normalised; None where it is not one."""
        step = _step(condition)
        if step is None or not self.is_total(condition):
            return None
        found = functions_of_one([refresh(step.arguments[0]), then, otherwise])
        if found is None or not is_finite(found[0]):
            return None
        v, (difference, first, second) = found
        function = selected(STEPS[step.name], difference, first, second)
        return None if function is None else form_of(function, v, self._greater)

    def is_total(self, form: Form) -> bool:
        """Whether all functions in a form are total: they have a value whatever the elements of tensors are."""
        return all(self._is_total(factor) for term in form for factor, _ in term.factors)

    def _is_total(self, factor: Atom) -> bool:
        match factor:
            case Element():
                return True
            case Extremum(families):
                return all(self.is_total(family.value) for family in families)
        if factor.name in STEPS or factor.name.startswith("compare"):
            return True
        named = factor.name == "inv" or factor.name.startswith("fn ")
        if named and factor.name not in self.functions.laws.powers:
            own = replace(factor, arguments=tuple(map(refresh, factor.arguments)))
            functions = self.functions.laws.functions
            if not is_total_function(own, functions) and not has_value(own, self.signs, functions):
                return False
        return all(map(self.is_total, factor.arguments))


def _is_open(factor: Function) -> bool:
    """Whether a function is a comparison with sides that may have no value, where it is 0 (scalar_functions.py)."""
    return factor.name in STEPS and len(factor.arguments) > 1


def _step(condition: Form) -> Function | None:
    """The comparison with 0 that a condition consists of, else None."""
    if len(condition) != 1 or condition[0].bound or condition[0].guards or condition[0].coefficient != ONE:
        return None
    match condition[0].factors:
        case ((Function(_, (_,)) as factor, 1),) if factor.name in STEPS:
            return factor
    return None


def _assumed(condition: Form, holds: bool) -> tuple[Assumption, ...]:
    """The sign assumptions where a condition holds, or where it fails and its sides have values."""
    step = _step(condition)
    value = () if step is None else refresh(step.arguments[0])
    if step is None or not is_finite(value):
        return ()
    if step.name == "zero":
        return () if holds else (Assumption(Family((), (), value), Known.NONZERO),)
    strict = (step.name == "positive") == holds
    value = value if holds else scale(value, number(-1))
    return (Assumption(Family((), (), value), Known.POSITIVE if strict else Known.NOT_NEGATIVE),)

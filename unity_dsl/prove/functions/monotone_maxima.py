"""The maximum of values of a monotone function is its value at the maximum: max(exp(x)) = exp(max(x)).

max{f(a)} = f(max{a}) for f with a fact f(a) >= f(b) where a >= b, of a set that has a member
max{c f(a)} = c f(max{a}) for c > 0, = c f(min{a}) for c < 0
max{1 / a} = 1 / min{a} where all a are positive
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ...syntax.ast import Apply, FactDecl
from ..decision.inhabited_sets import inhabited
from ..decision.integer_arithmetic import Arithmetic
from ..decision.signs import Sign, Signs
from ..normal_form.common_factors import common_coefficient
from ..normal_form.form import Family, Form, Function, is_finite, refresh, scale
from ..normal_form.polynomial import ONE
from .extrema import Sets
from .fact_laws import Laws
from .fact_patterns import Values, exponent_of


class Functions(Protocol):
    """Element functions as operations on forms; `used` are the facts applied."""

    laws: Laws
    arithmetic: Arithmetic
    sets: Sets
    used: dict[int, FactDecl]

    @property
    def signs(self) -> Signs: ...
    def inverse(self, form: Form) -> Form: ...
    def apply(self, name: str, values: list[Form]) -> Form: ...
    def meets(self, condition: Apply, names: Values) -> bool: ...


def monotone_maximum(functions: Functions, members: Sequence[Family]) -> Form | None:
    """The maximum of families of values of one monotone function; None for any others."""
    coefficient = common_coefficient(tuple(term for family in members for term in family.value))
    number = coefficient.constant
    inverse = coefficient.inverse()
    if not number or inverse is None:
        return None
    values = []
    for family in members:
        if len(family.value) != 1 or family.value[0].bound or family.value[0].guards:
            return None
        values.append((replace(family.value[0], coefficient=ONE),))
    for name in _names(values[0]):
        arguments = [_argument(name, value, functions) for value in values]
        known = [argument for argument in arguments if argument is not None]
        if len(known) < len(members) or not all(map(is_finite, known)):
            continue
        families = [replace(family, value=value) for family, value in zip(members, known, strict=True)]
        if not inhabited(families, functions.arithmetic):
            continue
        if name == "inv":
            if all(functions.signs.form(value) is Sign.POSITIVE for value in known):
                least = (functions.sets.least if number > 0 else functions.sets.greatest)(families)
                return scale(functions.inverse(least), coefficient)
        elif _is_monotone(name, known, functions):
            greatest = (functions.sets.greatest if number > 0 else functions.sets.least)(families)
            return scale(functions.apply(name, [greatest]), coefficient)
    return None


def _names(value: Form) -> list[str]:
    """The functions of one argument in a product, by the names of their declarations, or `inv`."""
    factors = (factor for factor, _ in value[0].factors)
    names = (factor.name for factor in factors if isinstance(factor, Function) and len(factor.arguments) == 1)
    return list(dict.fromkeys(name.removeprefix("fn ") for name in names if name == "inv" or name.startswith("fn ")))


def _argument(name: str, value: Form, functions: Functions) -> Form | None:
    """t where a value is the function of t, else None."""
    if name in functions.laws.exponentials:
        return exponent_of(f"fn {name}", value)
    if len(value[0].factors) != 1:
        return None
    ((factor, power),) = value[0].factors
    own = isinstance(factor, Function) and factor.name in (name, f"fn {name}") and power == 1
    return refresh(factor.arguments[0]) if own and isinstance(factor, Function) else None


def _is_monotone(name: str, values: Sequence[Form], functions: Functions) -> bool:
    """Whether a function is known to be non-decreasing at these arguments. Records the fact that says so as used."""
    for law in functions.laws.monotone.get(name, ()):
        at = [dict.fromkeys(law.names, value) for value in values]
        if all(functions.meets(condition, names) for condition in law.others for names in at):
            functions.used[id(law.fact)] = law.fact
            return True
    return False

"""Assumptions on the sizes of a rule, from its conditions: substitutions and guards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.diagnostic import fail
from ...syntax.parse_rules import RuleDecl
from ..normal_form.form import Unsupported
from ..normal_form.guard import Guard, compare, guard
from ..normal_form.polynomial import ONE, Poly, number, of, product
from .symbolic_sizes import Factors, arithmetic_value, factors_of, shown, valued


@dataclass(frozen=True)
class Claim:
    """The sizes of a rule under its conditions: a substitution (`names`), and guards on the remaining sizes.

    An equation with a name on one side substitutes that name: `m == p * e` gives m the factors (p, e), in this order.
    `m % p == 0` gives m the factors p and a new size m / p. In an `undivided` claim it gives m the single factor
    p * (m / p): windows then slide over the whole of m, not over its p parts. For numbers, `m % p == r` gives m the
    size p * k + r - p for a new k. Equations between products have common factors cancelled, and `a * b == c * d` gives
    each name two factors (Euler's four number theorem). Any other condition becomes a guard. Names in `fixed` keep one
    factor. A substituted size occurs neither in the factors in `names` nor in `conditions`, so the order of conditions
    does not matter. `real_conditions` constrain the real numbers of the rule, `reals`, and sizes. `real_values` are
    the values that equations determine.
    """

    names: Mapping[str, Factors]
    conditions: tuple[Guard, ...]
    fixed: frozenset[str] = frozenset()
    reals: frozenset[str] = frozenset()
    real_conditions: tuple[Apply, ...] = ()
    real_values: tuple[tuple[str, Expr], ...] = ()
    undivided: bool = False

    def factors(self, expr: Expr) -> Factors:
        """The factors of a size expression. Raises Unsupported."""
        match expr:
            case Name(name):
                return self.names.get(name, (of(name),))
            case Apply("*", (left, right)):
                return self.factors(left) + self.factors(right)
        return factors_of(self.size(expr))

    def size(self, expr: Expr) -> Poly:
        match expr:
            case Number(value) if isinstance(value, int):
                return number(value)
            case Name(name):
                return product(self.names.get(name, (of(name),)))
            case Apply(function, arguments):
                return arithmetic_value(function, [self.size(argument) for argument in arguments])
        raise fail("E010", "not a size", expr.span)

    def degree(self, name: str) -> Poly:
        """The size of a device axis. Raises Unsupported where it has several factors."""
        factors = self.names.get(name, (of(name),))
        if len(factors) > 1:
            raise Unsupported(f"a device axis of {len(factors)} factors")
        return product(factors)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the guards hold at these sizes."""
        return all(_holds(condition, sizes) for condition in self.conditions)

    def written(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The numeric sizes by the names in the rule's text, substituted sizes included."""
        found = {name: size for name, size in sizes.items() if not name.startswith("(")}
        for name, factors in self.names.items():
            symbols = (symbol for factor in factors for symbol in factor.symbols() if isinstance(symbol, str))
            if not name.startswith("(") and all(symbol in sizes for symbol in symbols):
                found[name] = valued(product(factors), sizes)
        return found

    # ------------------------------------------------------------------------------------------ conditions

    def assume(self, condition: Apply) -> Claim:
        """The claim under a further condition. Raises Unsupported and E010."""
        sides = condition.arguments
        if condition.function == "==":
            for side, other in (sides, sides[::-1]):
                if isinstance(side, Apply) and side.function == "%":
                    if other == Number(0):
                        return self._divided(*side.arguments)
                    known = self._with_remainder(side, other)
                    if known is not None:
                        return known
            for side, other in (sides, sides[::-1]):
                factors = self.factors(other) if isinstance(side, Name) else None
                if isinstance(side, Name) and factors is not None and self._free(side.name, factors):
                    return self._renamed(side.name, factors)
            known = self._equal_products(*map(self.factors, sides))
            if known is not None:
                return known
        return self._with(compare(condition.function, *map(self.size, sides)))

    def _free(self, name: str, factors: Factors) -> bool:
        """Whether a name may be substituted by these factors: it is not substituted yet and does not occur in them."""
        return name not in self.names and all(symbol != name for part in factors for symbol in part.symbols())

    def _renamed(self, name: str, factors: Factors) -> Claim:
        value = product(factors)
        names = {
            known: tuple(
                part for factor in own for part in (factors if factor == of(name) else (factor.with_size(name, value),))
            )
            for known, own in self.names.items()
        }
        conditions = tuple(guard(known.poly.with_size(name, value), known.relation) for known in self.conditions)
        # A sum or difference is a size, hence at least 1; only an attribute may be the number 0.
        sums = (size for size in factors if size.constant is None and len(size.terms) > 1)
        return replace(
            self,
            names={**names, name: factors},
            conditions=(*conditions, *(compare(">=", size, ONE) for size in sums)),
        )

    def _equal_products(self, left: Factors, right: Factors) -> Claim | None:
        """The claim under an equation of two products of names, else None. Common factors, being >= 1, are cancelled.

        a b = c d for four names if and only if a = p q, b = r s, c = p r, d = q s for some p, q, r and s.
        """
        names = [tuple(map(_name_of, factors)) for factors in (left, right)]
        counts = [Counter(name for name in side if name is not None) for side in names]
        if None in (*names[0], *names[1]):
            return None
        first, second = (sorted((counts[k] - counts[1 - k]).elements()) for k in (0, 1))
        for side, other in ((first, second), (second, first)):
            if len(side) == 1 and other and side[0] not in self.fixed | self.names.keys():
                return self._renamed(side[0], tuple(map(of, other)))
        if len({*first, *second}) != 4 or len(first) != 2 or not self.fixed.isdisjoint((*first, *second)):
            return self._with(compare("==", product(map(of, first)), product(map(of, second))))
        claim = self
        for name in first:
            claim = claim._renamed(name, tuple(of(f"({name}&{other})") for other in second))
        for name in second:
            claim = claim._renamed(name, tuple(of(f"({other}&{name})") for other in first))
        return claim

    def _divided(self, whole: Expr, part: Expr) -> Claim:
        """The claim under `whole % part == 0`: whole is part times a new size."""
        factors, divisors = self.factors(whole), self.factors(part)
        positive = (condition for size in divisors if (condition := compare(">=", size, ONE)).verdict is not True)
        claim = self._with(*positive)
        rest = list(factors)
        for divisor in divisors:
            if divisor in rest:
                rest.remove(divisor)
            else:
                break
        else:
            return claim
        cofactor = of(f"({shown(product(factors))}/{shown(product(divisors))})")
        if isinstance(whole, Name) and self._free(whole.name, divisors):
            parts = (*divisors, cofactor)
            return claim._renamed(whole.name, (product(parts),) if self.undivided else parts)
        known = claim._equal_products(factors, (*divisors, cofactor))
        return known or claim._with(compare("==", product(factors), product(divisors) * cofactor))

    def _with_remainder(self, remainder: Apply, rest: Expr) -> Claim | None:
        """The claim under `whole % part == rest` with numbers 0 < rest < part; None for anything else.

        It substitutes whole = part * k + rest - part for a new k.
        """
        whole, part = remainder.arguments
        if not isinstance(whole, Name) or not isinstance(part, Number) or not isinstance(rest, Number):
            return None
        if not 0 < rest.value < part.value or not self._free(whole.name, ()):
            return None
        multiple = of(f"(({whole.name}+{part.value - rest.value})/{part.value})")
        return self._renamed(whole.name, (self.size(part) * multiple + number(rest.value - part.value),))

    def _with(self, *conditions: Guard) -> Claim:
        return replace(self, conditions=(*self.conditions, *conditions))


def names_multiples(rule: RuleDecl) -> bool:
    """Whether a condition contains a remainder, `m % p`. Only then does an undivided claim differ from others."""
    sides = (side for condition in rule.conditions for side in condition.arguments)
    return any(isinstance(side, Apply) and side.function == "%" for side in sides)


def without_conditions(rule: RuleDecl, fixed: frozenset[str], *, undivided: bool = False) -> Claim:
    """The claim of a rule without its conditions on sizes."""
    reals = frozenset(tensor.name for tensor in rule.inputs if tensor.real)
    return Claim({}, (), fixed, reals, rule.real_conditions, rule.real_values, undivided)


def _name_of(factor: Poly) -> str | None:
    """The name that a factor consists of, else None."""
    ((monomial, coefficient), *others) = factor.terms or (((), Fraction(0)),)
    plain = coefficient == 1 and not others and len(monomial) == 1 and monomial[0][1] == 1
    symbol = monomial[0][0] if plain else None
    return symbol if isinstance(symbol, str) else None


def _holds(condition: Guard, sizes: Mapping[str, int]) -> bool:
    value = valued(condition.poly, sizes)
    return {"==": value == 0, "!=": value != 0, ">=": value >= 0}[condition.relation.value]

"""Laurent polynomials over sizes and indices, with rational coefficients: index expressions and coefficients of terms.

A size is a string. Sizes, which are at least 1, may have negative powers, so that `1 / |c|` is a coefficient.

Terms are sorted: equality of polynomials is equality of objects, and no result depends on hash order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count
from typing import TypeAlias

from ...cached_hash import cached_hash

MAX_DEGREE = 8
"""The sign of a monomial of higher degree is not determined: each 1 + s' doubles the number of terms."""


@dataclass(frozen=True)
class Var:
    """An index with range 0 … size - 1, identified by `number`."""

    number: int
    size: Poly

    @cached_property
    def key(self) -> str:
        return f"~{self.number:08d}"

    def __hash__(self) -> int:
        return self.number


@dataclass(frozen=True)
class Entry:
    """An element of an integer tensor: an unknown integer in 0 … bound - 1."""

    tensor: str
    index: tuple[Poly, ...]
    bound: Poly

    @cached_property
    def key(self) -> str:
        return f"~{self.tensor}[{','.join(part.key for part in self.index)}]"


@dataclass(frozen=True)
class Quotient:
    """The floor quotient `numerator // denominator`, denominator >= 1, where it is not known to be exact."""

    numerator: Poly
    denominator: Poly

    @cached_property
    def key(self) -> str:
        return f"~({self.numerator.key})//({self.denominator.key})"


@dataclass(frozen=True)
class Coordinate:
    """An unbounded integer variable: one coordinate of an element of a tensor."""

    number: int

    @cached_property
    def key(self) -> str:
        return f"~u{self.number:08d}"


Symbol: TypeAlias = "str | Var | Entry | Quotient | Coordinate"
Monomial: TypeAlias = "tuple[tuple[Symbol, int], ...]"


def symbol_key(symbol: Symbol) -> str:
    """The sort key of a symbol: a total order that is the same on every run, sizes first."""
    return symbol if isinstance(symbol, str) else symbol.key


@cached_hash
@dataclass(frozen=True)
class Poly:
    """A sum of coefficient × monomial, sorted, without zero coefficients."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @cached_property
    def key(self) -> str:
        return "+".join(f"{c}{''.join(f'.{symbol_key(s)}^{n}' for s, n in m)}" for m, c in self.terms)

    def __add__(self, other: Poly) -> Poly:
        if not self.terms or not other.terms:
            return self if self.terms else other
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total[monomial] + coefficient if monomial in total else coefficient
        return _poly(total)

    def __neg__(self) -> Poly:
        return Poly(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        if self is ONE or other is ONE:
            return other if self is ONE else self
        total: dict[Monomial, Fraction] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = _product(left, right)
                value = a * b
                total[monomial] = total[monomial] + value if monomial in total else value
        return _poly(total)

    def scaled(self, factor: Fraction | int) -> Poly:
        return self * number(factor)

    @property
    def constant(self) -> Fraction | None:
        """The value of a constant polynomial, else None."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_integral(self) -> bool:
        """Whether all coefficients are integers and all powers positive: `k / 2` and `1 / k` need not be integers."""
        return all(c.denominator == 1 and all(power > 0 for _, power in m) for m, c in self.terms)

    def symbols(self) -> Iterator[Symbol]:
        """Every symbol, those inside entries and quotients included."""
        for monomial, _ in self.terms:
            for symbol, _ in monomial:
                yield symbol
                if isinstance(symbol, Entry):
                    for part in symbol.index:
                        yield from part.symbols()
                elif isinstance(symbol, Quotient):
                    yield from symbol.numerator.symbols()
                    yield from symbol.denominator.symbols()

    @cached_property
    def variables(self) -> frozenset[Var]:
        """The indices that occur, inside entries and quotients as well."""
        return frozenset(symbol for symbol in self.symbols() if isinstance(symbol, Var))

    def coefficient(self, symbol: Symbol) -> Fraction | None:
        """The coefficient of a symbol: 0 if it does not occur, None if it occurs other than in one linear term."""
        found = Fraction(0)
        for monomial, coefficient in self.terms:
            if monomial == ((symbol, 1),):
                found = coefficient
            elif any(symbol in (inner, *_inside(inner)) for inner, _ in monomial):
                return None
        return found

    def substitute(self, mapping: Mapping[Var, Poly]) -> Poly:
        """The polynomial with indices replaced, inside entries and quotients as well."""
        if not mapping or self.variables.isdisjoint(mapping):
            return self
        total: dict[Monomial, Fraction] = {}
        for monomial, coefficient in self.terms:
            product = ONE
            for symbol, power in monomial:
                product = product * power_of(_substituted(symbol, mapping), power)
            for made, factor in product.terms:
                # Almost every coefficient is 1, and fractions are slow.
                value = coefficient if factor == 1 else coefficient * factor
                total[made] = total[made] + value if made in total else value
        return _poly(total)

    def with_size(self, name: str, value: Poly) -> Poly:
        """The polynomial with a size replaced. Negative powers of it need a value that is a product of sizes."""
        total = ZERO
        for monomial, coefficient in self.terms:
            part = number(coefficient)
            for symbol, power in monomial:
                base = value if symbol == name else of(symbol)
                if isinstance(symbol, Quotient):
                    parts = (symbol.numerator.with_size(name, value), symbol.denominator.with_size(name, value))
                    base = quotient(*parts)
                part = part * power_of(base, power)
            total = total + part
        return total

    def divided(self, divisor: Poly) -> tuple[Poly, Poly]:
        """(quotient, remainder) of long division with integer coefficients in the quotient.

        Terms that do not divide exactly stay in the remainder. The division is by the divisor's leading term in graded
        lexicographic order, or by its only term.
        """
        if len(divisor.terms) != 1:
            return self._long_division(divisor, whole=True)
        ((monomial, coefficient),) = divisor.terms
        exact, rest = {}, {}
        for term, c in self.terms:
            powers = dict(term)
            whole = all(powers.get(symbol, 0) >= power for symbol, power in monomial)
            if whole and (c / coefficient).denominator == 1:
                exact[divided_monomial(term, monomial)] = c / coefficient
            else:
                rest[term] = c
        return _poly(exact), _poly(rest)

    def exactly_divided(self, divisor: Poly) -> Poly | None:
        """The quotient if the remainder is 0, else None. Its coefficients may be fractions."""
        whole, rest = self._long_division(divisor, whole=False)
        return None if rest.terms else whole

    def _long_division(self, divisor: Poly, *, whole: bool) -> tuple[Poly, Poly]:
        """(quotient, remainder). With `whole`, terms whose coefficients do not divide stay in the remainder."""
        symbols = sorted({s for monomial, _ in (*self.terms, *divisor.terms) for s, _ in monomial}, key=symbol_key)

        def order(term: tuple[Monomial, Fraction]) -> tuple[int, ...]:
            powers = dict(term[0])
            return sum(powers.values()), *(powers.get(symbol, 0) for symbol in symbols)

        first, scale = max(divisor.terms, key=order)
        left, found, rest = self, ZERO, ZERO
        while left.terms:
            term = max(left.terms, key=order)
            part = divided_monomial(term[0], first)
            step = Poly(((part, term[1] / scale),))
            if any(power < 0 for _, power in part) or (whole and not step.is_integral):
                rest, left = rest + Poly((term,)), left - Poly((term,))
            else:
                found, left = found + step, left - step * divisor
        return found, rest

    @property
    def is_of_sizes(self) -> bool:
        """Whether it is an integer made of sizes by sums and products alone."""
        return self.is_integral and all(isinstance(symbol, str) for monomial, _ in self.terms for symbol, _ in monomial)

    def inverse(self) -> Poly | None:
        """1 / self for a single product of sizes, else None."""
        if len(self.terms) != 1 or not all(isinstance(symbol, str) for symbol, _ in self.terms[0][0]):
            return None
        ((monomial, coefficient),) = self.terms
        return Poly(((tuple((symbol, -power) for symbol, power in monomial), 1 / coefficient),))


def _inside(symbol: Symbol) -> Iterator[Symbol]:
    if isinstance(symbol, Entry):
        for part in symbol.index:
            yield from part.symbols()
    elif isinstance(symbol, Quotient):
        yield from symbol.numerator.symbols()
        yield from symbol.denominator.symbols()


def _substituted(symbol: Symbol, mapping: Mapping[Var, Poly]) -> Poly:
    match symbol:
        case Var():
            return mapping.get(symbol, of(symbol))
        case Entry(tensor, index, bound):
            return of(Entry(tensor, tuple(part.substitute(mapping) for part in index), bound))
        case Quotient(numerator, denominator):
            return quotient(numerator.substitute(mapping), denominator)
        case _:
            return of(symbol)


def _poly(terms: Mapping[Monomial, Fraction]) -> Poly:
    kept = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    if len(kept) < 2:
        return Poly(tuple(kept))
    return Poly(tuple(sorted(kept, key=lambda term: [(symbol_key(symbol), power) for symbol, power in term[0]])))


def divided_monomial(left: Monomial, right: Monomial) -> Monomial:
    """left / right, with negative powers where right does not divide left."""
    return _product(left, tuple((symbol, -power) for symbol, power in right))


def _product(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for symbol, power in right:
        powers[symbol] = powers.get(symbol, 0) + power
    return tuple(sorted(((s, n) for s, n in powers.items() if n), key=lambda factor: symbol_key(factor[0])))


@lru_cache(maxsize=4096)
def number(value: int | Fraction) -> Poly:
    if value == 1:
        return ONE
    return Poly((((), Fraction(value)),)) if value else ZERO


def of(symbol: Symbol) -> Poly:
    """A symbol as a polynomial."""
    return Poly(((((symbol, 1),), Fraction(1)),))


def power_of(base: Poly, power: int) -> Poly:
    """base ** power. Raises ValueError for a negative power of anything but a product of sizes."""
    if power < 0:
        inverse = base.inverse()
        if inverse is None:
            raise ValueError(f"{base.key} has no inverse")
        base, power = inverse, -power
    result = base if power else ONE
    for _ in range(power - 1):
        result = result * base
    return result


def quotient(numerator: Poly, denominator: Poly) -> Poly:
    """The floor quotient of integer polynomials, normalised by four laws.

    n // d = (-n) // (-d), which makes a denominator of one term positive. (d q + r) // d = q + r // d.
    r // d = k where bounds show k d <= r < k d + d. (n // c + r) // d = (n + c r) // (c d) where bounds show d >= 1:
    the floor of n / c may be taken before a division by a positive integer, but not before one by a negative integer.
    """
    if not denominator.terms:
        return of(Quotient(numerator, denominator))
    if len(denominator.terms) == 1 and denominator.terms[0][1] < 0:
        return quotient(-numerator, -denominator)
    exact, rest = numerator.divided(denominator)
    if rest.constant is not None and denominator.constant is not None:
        return exact + number(rest.constant // denominator.constant)
    known = _plain_digit(rest, denominator)
    if known is not None:
        return exact + known
    for monomial, coefficient in rest.terms if is_plainly_not_negative(denominator - ONE) else ():
        ((inner, power), *others) = monomial or ((None, 0),)
        if isinstance(inner, Quotient) and not others and power == coefficient == 1:
            remaining = rest - of(inner)
            whole = quotient(inner.numerator + remaining * inner.denominator, inner.denominator * denominator)
            return exact + whole
    return exact + of(Quotient(rest, denominator))


def plain_quotient(numerator: Poly, denominator: Poly) -> Poly | None:
    """The floor quotient where bounds determine it, else None."""
    exact, rest = numerator.divided(denominator)
    known = _plain_digit(rest, denominator)
    return None if known is None else exact + known


def _plain_digit(rest: Poly, denominator: Poly) -> Poly | None:
    """k in -1, 0, 1 with k d <= rest < k d + d for all indices and sizes; None where bounds show none."""
    for digit in (ZERO, -ONE, ONE):
        least = rest - denominator * digit
        if is_plainly_not_negative(least) and is_plainly_not_negative(denominator - ONE - least):
            return digit
    return None


def is_plainly_not_negative(poly: Poly) -> bool:
    """Whether poly >= 0 for all indices in range and all sizes >= 1, by a sufficient test of the coefficients.

    Each index is replaced by the end of its range that minimises the value; in the remaining polynomial each size s is
    replaced by 1 + s', and the value is non-negative if no coefficient is negative.
    """
    least = ZERO
    for monomial, coefficient in poly.terms:
        sizes = tuple(factor for factor in monomial if isinstance(factor[0], str))
        others = [factor for factor in monomial if not isinstance(factor[0], str)]
        if any(power < 0 for _, power in monomial) or len(others) > 1 or sum(power for _, power in sizes) > MAX_DEGREE:
            return False
        part = _shifted_term(sizes, coefficient)
        for symbol, power in others:
            if not isinstance(symbol, Var | Entry) or power != 1:
                return False
            if coefficient.numerator >= 0:
                part = ZERO
                continue
            shifted = _shifted(symbol.size if isinstance(symbol, Var) else symbol.bound)
            if shifted is None:
                return False
            part = part * (shifted - ONE)
        least = least + part
    return all(coefficient.numerator >= 0 for _, coefficient in least.terms)  # fractions compare slowly


@lru_cache(maxsize=4096)
def _shifted_term(sizes: Monomial, coefficient: Fraction) -> Poly:
    """A product of sizes with each size s replaced by 1 + s', s' >= 0."""
    part = number(coefficient)
    for symbol, power in sizes:
        part = part * power_of(of(symbol) + ONE, power)
    return part


@lru_cache(maxsize=4096)
def _shifted(size: Poly) -> Poly | None:
    """A polynomial in sizes with each s replaced by 1 + s'; None where it contains a quotient, which may be below 1."""
    total = ZERO
    for monomial, coefficient in size.terms:
        if not all(isinstance(symbol, str) and power > 0 for symbol, power in monomial):
            return None
        if sum(power for _, power in monomial) > MAX_DEGREE:
            return None
        total = total + _shifted_term(monomial, coefficient)
    return total


def product(parts: Iterable[Poly]) -> Poly:
    total = ONE
    for part in parts:
        total = total * part
    return total


ZERO = Poly(())
ONE = Poly((((), Fraction(1)),))
_numbers = count(1)


def coordinate() -> Poly:
    """A fresh coordinate."""
    return of(Coordinate(next(_numbers)))


def fresh(size: Poly) -> Var:
    """An index that occurs nowhere else."""
    return Var(next(_numbers), size)

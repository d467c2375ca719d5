"""Polynomials over sizes and indices: index expressions and coefficients.

A size is a string. Powers may be negative for sizes (every size is at least 1), so that `1 / |c|` is a coefficient.
Terms are kept sorted, hence equality of polynomials is equality of objects and nothing depends on hash order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count
from typing import TypeAlias


@dataclass(frozen=True)
class Var:
    """An index. It runs over 0 … size - 1; `number` tells it from every other."""

    number: int
    size: Poly

    @cached_property
    def key(self) -> str:
        return f"~{self.number:08d}"


@dataclass(frozen=True)
class Entry:
    """An element of an integer tensor: a number of which nothing is known but 0 <= it < bound."""

    tensor: str
    index: tuple[Poly, ...]
    bound: Poly

    @cached_property
    def key(self) -> str:
        return f"~{self.tensor}[{','.join(part.key for part in self.index)}]"


@dataclass(frozen=True)
class Quotient:
    """`numerator // denominator`, rounded down, where no exact division is known."""

    numerator: Poly
    denominator: int

    @cached_property
    def key(self) -> str:
        return f"~({self.numerator.key})//{self.denominator}"


@dataclass(frozen=True)
class Coordinate:
    """Any whole number: where an element of a tensor stands."""

    number: int

    @cached_property
    def key(self) -> str:
        return f"~u{self.number:08d}"


Symbol: TypeAlias = "str | Var | Entry | Quotient | Coordinate"
Monomial: TypeAlias = "tuple[tuple[Symbol, int], ...]"


def symbol_key(symbol: Symbol) -> str:
    """A total order on symbols that is the same on every run; sizes come first."""
    return symbol if isinstance(symbol, str) else symbol.key


@dataclass(frozen=True)
class Poly:
    """Sum of coefficient × monomial, sorted, no coefficient 0."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @cached_property
    def key(self) -> str:
        return "+".join(f"{c}{''.join(f'.{symbol_key(s)}^{n}' for s, n in m)}" for m, c in self.terms)

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

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
        """The number this is, or None."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_whole(self) -> bool:
        """Whether it is plainly a whole number: `k / 2` and `1 / k` need not be."""
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

    @cached_property
    def variables(self) -> frozenset[Var]:
        """The indices it depends on."""
        return frozenset(symbol for symbol in self.symbols() if isinstance(symbol, Var))

    def coefficient(self, symbol: Symbol) -> Fraction | None:
        """The number in front of a symbol that occurs in no other way; None where it has no such number."""
        found = Fraction(0)
        for monomial, coefficient in self.terms:
            if monomial == ((symbol, 1),):
                found = coefficient
            elif any(symbol in (inner, *_inside(inner)) for inner, _ in monomial):
                return None
        return found

    def substitute(self, mapping: Mapping[Var, Poly]) -> Poly:
        """Replace indices, also inside entries and quotients."""
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
        """Replace a size. Its powers must not be negative, unless the value is a product of sizes."""
        total = ZERO
        for monomial, coefficient in self.terms:
            part = number(coefficient)
            for symbol, power in monomial:
                base = value if symbol == name else of(symbol)
                if isinstance(symbol, Quotient):
                    base = quotient(symbol.numerator.with_size(name, value), symbol.denominator)
                part = part * power_of(base, power)
            total = total + part
        return total

    def divided(self, divisor: Poly) -> tuple[Poly, Poly]:
        """(quotient, rest) by a monomial: the terms that it divides exactly, and the others."""
        ((monomial, coefficient),) = divisor.terms
        inverse = tuple((symbol, -power) for symbol, power in monomial)
        exact, rest = {}, {}
        for term, c in self.terms:
            powers = dict(term)
            whole = all(powers.get(symbol, 0) >= power for symbol, power in monomial)
            if whole and (c / coefficient).denominator == 1:
                exact[_product(term, inverse)] = c / coefficient
            else:
                rest[term] = c
        return _poly(exact), _poly(rest)

    def inverse(self) -> Poly | None:
        """1 / this, where this is one product of sizes; every size is at least 1."""
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


def exact_number(value: int | float) -> Fraction:
    """A number as it is written in decimal."""
    return Fraction(repr(value))


def of(symbol: Symbol) -> Poly:
    """A symbol as a polynomial."""
    return Poly(((((symbol, 1),), Fraction(1)),))


def power_of(base: Poly, power: int) -> Poly:
    """base ** power; a negative power of a product of sizes only."""
    if power < 0:
        inverse = base.inverse()
        if inverse is None:
            raise ValueError(f"{base.key} has no inverse")
        base, power = inverse, -power
    result = base if power else ONE
    for _ in range(power - 1):
        result = result * base
    return result


def quotient(numerator: Poly, denominator: int) -> Poly:
    """numerator // denominator: `(d * q + r) // d = q + r // d`."""
    exact, rest = numerator.divided(number(denominator))
    constant = rest.constant
    if constant is not None and constant.denominator == 1:
        return exact + number(int(constant) // denominator)
    return exact + of(Quotient(rest, denominator))


def product(parts: Iterable[Poly]) -> Poly:
    total = ONE
    for part in parts:
        total = total * part
    return total


ZERO = Poly(())
ONE = Poly((((), Fraction(1)),))
_numbers = count(1)


def coordinate() -> Poly:
    """A coordinate that occurs nowhere else."""
    return of(Coordinate(next(_numbers)))


def fresh(size: Poly) -> Var:
    """An index that occurs nowhere else."""
    return Var(next(_numbers), size)

"""Symbolic types of tensors, and their unification.

A dimension is a size, which is a polynomial in letters, together with the places at which views and slices may split
it. `cuts` are partial sums. `prefixes` are partial products, major factor first. Two dimensions of equal size are
equal, whatever their structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...prove.normal_form.polynomial import ONE, ZERO, Poly, Quotient, number, of, power_of, quotient

Bindings = Mapping[str, "Dim"]


@dataclass(frozen=True)
class Dim:
    """A dimension: its size, the partial sums at which it may be sliced, and the partial products at which it may be
    split.
    """

    total: Poly
    cuts: frozenset[Poly] = frozenset()
    prefixes: frozenset[Poly] = frozenset()

    @cached_property
    def letter(self) -> str | None:
        """The name, if the size is a single letter."""
        return letter_of(self.total)

    @property
    def inner(self) -> frozenset[Poly]:
        """The partial sums and products."""
        return self.cuts | self.prefixes

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters of its size and of its parts."""
        return frozenset(name for size in (self.total, *self.inner) for name in letters_of(size))

    def replaced(self, values: Bindings) -> Dim:
        """The dimension with letters replaced. The structure of a replacement is kept if it fills a whole part."""
        if self.letter is not None and not self.cuts and not self.prefixes:
            return values.get(self.letter, self)
        values = {name: values[name] for name in self.letters if name in values}
        if not values:
            return self
        sizes = {name: value.total for name, value in values.items()}
        cuts = {substituted(cut, sizes) for cut in self.cuts}
        prefixes = {substituted(prefix, sizes) for prefix in self.prefixes}
        for name, value in values.items():
            if value.cuts:
                bounds = {*self.cuts, self.total}
                starts = [start for start in (ZERO, *self.cuts) if start + of(name) in bounds]
                cuts |= {substituted(start, sizes) + cut for start in starts for cut in value.cuts}
            if value.prefixes:
                bounds = {*self.prefixes, self.total}
                starts = [start for start in (ONE, *self.prefixes) if start * of(name) in bounds]
                prefixes |= {substituted(start, sizes) * part for start in starts for part in value.prefixes}
        return Dim(substituted(self.total, sizes), frozenset(cuts), frozenset(prefixes))

    def joined(self, other: Dim) -> Dim:
        """The dimension with the structure of both, which have equal sizes."""
        if other.cuts <= self.cuts and other.prefixes <= self.prefixes:
            return self
        return Dim(self.total, self.cuts | other.cuts, self.prefixes | other.prefixes)


@dataclass(frozen=True)
class TensorType:
    """The device axes of a tensor, sorted; its dimensions; the bound of its integers, None for floats."""

    devices: tuple[str, ...]
    dims: tuple[Dim, ...]
    bound: Dim | None = None

    def replaced(self, values: Bindings) -> TensorType:
        bound = None if self.bound is None else self.bound.replaced(values)
        return TensorType(self.devices, tuple(dim.replaced(values) for dim in self.dims), bound)

    def joined(self, other: TensorType) -> TensorType:
        """The type with the structure of the dimensions of both, which have equal sizes."""
        dims = tuple(own.joined(given) for own, given in zip(self.dims, other.dims, strict=True))
        return TensorType(self.devices, dims, self.bound)

    @property
    def parts(self) -> tuple[Dim, ...]:
        """The dimensions, and the bound if there is one."""
        return self.dims if self.bound is None else (*self.dims, self.bound)

    @property
    def sizes(self) -> tuple[object, ...]:
        """A key of equal types: everything except the structure of their dimensions."""
        return self.devices, tuple(dim.total for dim in self.dims), self.bound and self.bound.total

    @property
    def kind(self) -> tuple[tuple[str, ...], int, bool]:
        """The properties that no choice of letters changes."""
        return self.devices, len(self.dims), self.bound is not None


@lru_cache(maxsize=65536)
def named(name: str) -> Dim:
    """A dimension whose size is a single letter."""
    return Dim(of(name))


def letter_of(size: Poly) -> str | None:
    """The letter that makes up a size, if the size is a single letter."""
    if len(size.terms) != 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) != 1:
        return None
    ((symbol, power),) = size.terms[0][0]
    return symbol if power == 1 and isinstance(symbol, str) else None


@lru_cache(maxsize=65536)
def letters_of(size: Poly) -> tuple[str, ...]:
    """The letters of a size, each once, in the order of its terms."""
    return tuple(dict.fromkeys(symbol for symbol in size.symbols() if isinstance(symbol, str)))


def substituted(size: Poly, values: Mapping[str, Poly]) -> Poly:
    """A size with all letters replaced at once."""
    name = letter_of(size)
    if name is not None:
        return values.get(name, size)
    if not any(name in values for name in letters_of(size)):
        return size
    total = ZERO
    for monomial, coefficient in size.terms:
        part = number(coefficient)
        for symbol, power in monomial:
            if isinstance(symbol, Quotient):
                base = quotient(substituted(symbol.numerator, values), substituted(symbol.denominator, values))
            else:
                base = values.get(symbol, of(symbol)) if isinstance(symbol, str) else of(symbol)
            part = part * power_of(base, power)
        total = total + part
    return total


# ---------------------------------------------------------------------------------------------- unification


def unified(pairs: Sequence[tuple[Dim, Dim]], fixed: frozenset[str], fresh: Iterator[str]) -> Iterator[dict[str, Dim]]:
    """The substitutions that make the dimensions of each pair equal. Letters in `fixed`, the degrees, are not replaced.

    A sum is unified with a sum part by part, and a product with a product, at each pair of places where they may be
    split. The results are the most general types in which the parts keep their meaning, not all integer solutions.
    Other sums are linear equations; a letter is eliminated if its coefficient divides all others.
    """
    for found in _unified(tuple(pairs), {}, fixed, fresh):
        values = {name: _resolved(value, found) for name, value in found.items()}
        if all(_may_be_positive(value.total) for value in values.values()):
            yield values


def _unified(
    pairs: Sequence[tuple[Dim, Dim]], found: dict[str, Dim], fixed: frozenset[str], fresh: Iterator[str]
) -> Iterator[dict[str, Dim]]:
    """Substitutions in triangular form: the value of a letter may contain letters that have values themselves.

    The value of a letter contains neither this letter nor one that already has a value, in its size or in its
    structure. No letter is therefore replaced by itself, however often values are inserted. `found` is extended in
    place until a pair has several solutions. Products come last, because the other pairs may add places at which they
    are split.
    """
    products: list[tuple[Dim, Dim]] = []
    for place, (one, other) in enumerate(pairs):
        left, right = _resolved(one, found), _resolved(other, found)
        if left is right or left.total == right.total:
            continue
        name, value = left.letter, right
        if not _may_stand_for(value, name, fixed):
            name, value = right.letter, left
        if name is not None and _may_stand_for(value, name, fixed):
            # A cut of the value that depends on the letter depends on the whole value.
            found[name] = value.replaced({name: Dim(value.total)})
        elif left.prefixes and right.prefixes:
            products.append((one, other))
        else:
            yield from _branched(left, right, (*pairs[place + 1 :], *products), found, fixed, fresh)
            return
    if not products:
        yield found
        return
    (one, other), *rest = products
    yield from _branched(_resolved(one, found), _resolved(other, found), rest, found, fixed, fresh)


def _branched(
    left: Dim,
    right: Dim,
    rest: Sequence[tuple[Dim, Dim]],
    found: dict[str, Dim],
    fixed: frozenset[str],
    fresh: Iterator[str],
) -> Iterator[dict[str, Dim]]:
    """The substitutions that follow from each solution of a pair."""
    if left.total == right.total:
        yield from _unified(rest, found, fixed, fresh)
        return
    for step, remaining in _steps(left, right, fixed, fresh):
        yield from _unified((*remaining, *rest), {**found, **step}, fixed, fresh)


def _may_stand_for(value: Dim, name: str | None, fixed: frozenset[str]) -> bool:
    return name is not None and name not in fixed and name not in letters_of(value.total)


def _may_be_positive(size: Poly) -> bool:
    """False if no sizes of at least 1 make it positive."""
    return any(coefficient > 0 for _, coefficient in size.terms)


def _resolved(dim: Dim, found: dict[str, Dim]) -> Dim:
    """A dimension with its letters replaced by their values in a triangular substitution."""
    inner = [name for name in dim.letters if name in found]
    return dim.replaced({name: _resolved(found[name], found) for name in inner}) if inner else dim


_Step = tuple[dict[str, Dim], list[tuple[Dim, Dim]]]


def _steps(left: Dim, right: Dim, fixed: frozenset[str], fresh: Iterator[str]) -> Iterator[_Step]:
    """The ways to reduce a pair of sums or products: letters that it determines, and pairs that remain."""
    yield from _by_parts(left, right)
    yield from _by_degree(left, right, fixed, fresh)
    if not (left.cuts and right.cuts) and not left.prefixes and not right.prefixes:
        yield from _solved(left, right, fixed)


def _by_parts(left: Dim, right: Dim) -> Iterator[_Step]:
    """Splits sums into summands, and products into factors."""
    for one in sorted(left.cuts, key=_key):
        for other in sorted(right.cuts, key=_key):
            yield {}, [(Dim(one), Dim(other)), (Dim(left.total - one), Dim(right.total - other))]
    for one in sorted(left.prefixes, key=_key):
        for other in sorted(right.prefixes, key=_key):
            first, second = left.total.exactly_divided(one), right.total.exactly_divided(other)
            if first is not None and second is not None:
                yield {}, [(Dim(one), Dim(other)), (Dim(first), Dim(second))]


def _by_degree(left: Dim, right: Dim, fixed: frozenset[str], fresh: Iterator[str]) -> Iterator[_Step]:
    """A product `h * k` meets one that devices divide, `p * e`: its major factor becomes a multiple of p."""
    for one, other in ((left, right), (right, left)):
        degrees = [prefix for prefix in one.prefixes if letter_of(prefix) in fixed]
        majors = [name for prefix in other.prefixes if (name := letter_of(prefix)) is not None and name not in fixed]
        for degree in degrees:
            for major in sorted(majors):
                whole = degree * of(next(fresh))
                yield {major: Dim(whole, prefixes=frozenset({degree}))}, [(one, other)]


def _solved(left: Dim, right: Dim, fixed: frozenset[str]) -> Iterator[_Step]:
    """Solves for a letter that occurs linearly with a coefficient that divides all others.

    A letter that equals a sum of the others is preferred to one that equals a difference, then the letter created
    first.
    """
    difference = left.total - right.total
    if not _may_be_positive(difference) or not _may_be_positive(-difference):
        return
    values: dict[str, Poly] = {}
    for name in letters_of(difference):
        factor = difference.coefficient(name)
        if factor and name not in fixed:
            value = of(name) - difference.scaled(1 / factor)
            if value.is_integral:
                values[name] = value
    if values:
        name = min(values, key=lambda name: (_is_difference(values[name]), len(name), name))
        yield {name: Dim(values[name])}, []


def _is_difference(size: Poly) -> bool:
    return any(monomial and coefficient < 0 for monomial, coefficient in size.terms)


def _key(size: Poly) -> str:
    return size.key

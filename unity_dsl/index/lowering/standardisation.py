"""Recognises standardised values in an operator's equations: deviations from a mean, divided by the standard deviation.

    m[t] = sum(r) x[t, r] / |r|        v[t] = sum(r) (x[t, r] - m[t]) * (x[t, r] - m[t]) / |r|
    z[t, r] = (x[t, r] - m[t]) * rsqrt(v[t] + eps)

If r is divided into equal parts, the moments of the parts are averaged: m = avg(p) m_p and v = avg(p) v_p + (m_p - m)^2
(Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance"), which is avg(p) (v_p + m_p^2) - m^2. The
derivative of v by m is 0. The cotangents of both are therefore sums as well, and share one collective. Equations are
recognised by their terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from ...syntax.ast import Apply, Expr, Number, Read, ReductionKind, Size
from ..equations.instance import Equation, Instance, Key, Operand
from ..equations.loop_nest import loop_nest
from ..equations.term import call, children, dim_axes, dim_index, free_axes, fresh, reads, with_children
from .division import InnerCollective, InnerMoments, InnerReduce, InnerReplicate


@dataclass(frozen=True)
class Scaled:
    """Equation number `equation` is the standardised value times `gain`, plus `bias`.

    Both terms depend on the axes t of the mean alone.
    """

    equation: int
    gain: Expr | None
    bias: Expr | None


@dataclass(frozen=True)
class Standardisation:
    """Equations number `mean` and `variance` of `source`, and the standardised `result`, in the axes of the source.

    `values` has the rewritten values, by number, of the equations that then read `result`. `unread` are equations that
    nothing reads then. `scaled` is the only equation that reads `result`, if it is an affine map of `result`.
    """

    mean: int
    variance: int
    source: Read
    eps: Number
    result: Operand
    values: Mapping[int, Expr]
    unread: frozenset[int]
    scaled: Scaled | None

    def absorbed(self, instance: Instance) -> frozenset[int]:
        """Equations that need no kernel if the moments are reduced over all parts.

        The source is read for the mean, and once more for the scaled value or for a deviation.
        """
        small = instance.equations[self.mean].target.axes
        unread = (n for n in self.unread if self.scaled is not None or instance.equations[n].target.axes == small)
        return frozenset([self.variance, *unread])

    def reads(self, instance: Instance, name: str) -> bool:
        """Whether an equation reads a tensor, apart from mean, variance and `unread` equations."""
        left = {*range(len(instance.equations))} - {self.mean, self.variance, *self.unread}
        values = (self.values.get(number, instance.equations[number].value) for number in left)
        return any(read.tensor == name for value in values for read in reads(value))

    def leaves(self, one: InnerCollective) -> bool:
        """Whether a collective is still needed besides the collective of mean and variance."""
        if one.equation in {self.mean, self.variance, *self.unread}:
            return False
        value = self.values.get(one.equation)
        return value is None or not isinstance(one, InnerReplicate) or one.operand in {r.tensor for r in reads(value)}


def standardisations(instance: Instance) -> tuple[Standardisation, ...]:
    """The standardisations of an operator, one per mean."""
    return _standardisations(instance.identity)


@lru_cache(maxsize=4096)
def _standardisations(identity: Key) -> tuple[Standardisation, ...]:
    instance = identity.instance
    if instance.whole:
        return ()
    found = (_of_mean(instance, number) for number in range(len(instance.equations)))
    return tuple(one for one in found if one is not None)


def _of_mean(instance: Instance, number: int) -> Standardisation | None:
    """The standardisation whose mean is equation `number`, if that is the mean of elements that are read."""
    mean = instance.equations[number]
    match _averaged(instance, mean):
        case (Read(fill=None) as source,):
            axes = _axes(instance, source)
        case _:
            return None
    if axes is None or not _beside(mean.target, axes) or {*axes} != {*mean.space}:
        return None
    for count, variance in enumerate(instance.equations):
        search = _Search(instance, number, count, source, axes)
        if {*variance.over} == {*mean.over} and variance.target.dims == mean.target.dims and search.is_variance():
            return search.found()
    return None


def _averaged(instance: Instance, equation: Equation) -> tuple[Expr, ...] | None:
    """The factors of the product that an equation averages; None if it is no mean."""
    if equation.kind is not ReductionKind.SUM or instance.operand(equation.target.name).integer_range is not None:
        return None
    nest = loop_nest(instance, equation)
    if nest.looked_up or nest.placed or nest.running is not None:
        return None
    lengths = Counter[str]()
    share = Fraction(1)
    for operator, amount in nest.scale:
        sign = 1 if operator == "/" else -1
        match amount:
            case Size(name=name):
                lengths[name] += sign
            case Number(value=value):
                share *= Fraction(value) ** sign if value else 0
    averages = share == 1 and {name: count for name, count in lengths.items() if count} == dict.fromkeys(
        equation.over, 1
    )
    return nest.factors if averages else None


def _axes(instance: Instance, read: Read) -> tuple[str, ...] | None:
    """The axes that a read runs over, each once; None if it reads any other positions."""
    found: list[str] = []
    for index in read.index:
        own = dim_axes(index, instance.sizes)
        if own is None:
            return None
        found += own
    return tuple(found) if len({*found}) == len(found) else None


def _beside(target: Operand, axes: tuple[str, ...]) -> bool:
    """Whether the axes of a target are adjacent among these axes, in the same order, one per dimension."""
    first = axes.index(target.axes[0]) if target.axes and target.axes[0] in axes else 0
    return axes[first : first + len(target.dims)] == target.axes and all(len(dim) == 1 for dim in target.dims)


def _whole(operand: Operand) -> Read:
    """A read of all of an operand, at its own axes."""
    return Read(operand.name, tuple(dim_index(dim) for dim in operand.dims))


def with_moments(instance: Instance, inner: Sequence[InnerCollective]) -> tuple[InnerCollective, ...]:
    """The collectives inside a divided operator.

    Those of a mean and its variance are merged if both use the same mesh axes.
    """
    found = tuple(inner)
    for group in standardisations(instance) if found else ():
        reduced = {one.equation: one.axes for one in found if isinstance(one, InnerReduce)}
        axes = reduced.get(group.mean)
        if axes is not None and reduced.get(group.variance) == axes:
            found = InnerMoments(group.mean, axes), *(one for one in found if group.leaves(one))
    return found


@dataclass
class _Search:
    """Searches for the terms of a standardised value of a source, given its mean and a candidate for its variance."""

    instance: Instance
    mean: int
    variance: int
    source: Read
    axes: tuple[str, ...]
    eps: Number | None = None
    taken: set[str] = field(default_factory=set)

    def target(self, number: int) -> Operand:
        return self.instance.equations[number].target

    def is_variance(self) -> bool:
        factors = _averaged(self.instance, self.instance.equations[self.variance])
        return factors is not None and len(factors) == 2 and all(map(self.is_deviation, factors))

    def is_deviation(self, term: Expr) -> bool:
        return self.means(term, lambda value: value == call("-", self.source, _whole(self.target(self.mean))))

    def is_inverse(self, term: Expr) -> bool:
        """Whether a term is the inverse of the standard deviation, with the `eps` found first."""
        return self.means(term, lambda value: isinstance(value, Apply) and self.is_root(value, "rsqrt"))

    def is_root(self, term: Expr, function: str) -> bool:
        read = _whole(self.target(self.variance))
        match term:
            case Apply(function=name, arguments=(shifted,)) if name == function:
                eps = Number(0) if shifted == read else None
                match shifted:
                    case Apply("+", (Number() as added, other) | (other, Number() as added)) if other == read:
                        eps = added
                if eps is None or self.eps not in (None, eps):
                    return False
                self.eps = eps
                return True
        return False

    def means(self, term: Expr, holds: Callable[[Expr], bool]) -> bool:
        """Whether a term has that form, or reads all of an equation whose value has it."""
        if isinstance(term, Read):
            for equation in self.instance.equations:
                if equation.kind is None and term == _whole(equation.target) and holds(equation.value):
                    self.taken.add(term.tensor)
                    return True
        return holds(term)

    def found(self) -> Standardisation | None:
        instance, names = self.instance, [operand.name for operand in self.instance.inputs]
        names += [equation.target.name for equation in instance.equations]
        result = Operand(fresh("standardised", names), tuple((axis,) for axis in self.axes))
        values = {}
        for number, equation in enumerate(instance.equations):
            value = self.replaced(equation.value, _whole(result))
            if number not in (self.mean, self.variance) and value != equation.value:
                values[number] = value
        if not values or self.eps is None:
            return None
        unread = frozenset(self.unread(values))
        scaled = _scaled(instance, values, result, self.target(self.mean)) if len(values) == 1 else None
        return Standardisation(self.mean, self.variance, self.source, self.eps, result, values, unread, scaled)

    def replaced(self, term: Expr, result: Read) -> Expr:
        """The term in which `result` replaces a deviation divided by the standard deviation in a product."""
        match term:
            case Apply("/", (left, right)) if self.is_root(right, "sqrt"):
                factors = [*_factors(left)]
                if (place := self.first(factors, self.is_deviation)) is not None:
                    factors[place] = result
                    return self.product(factors, result)
            case Apply("*"):
                factors = [*_factors(term)]
                places = self.first(factors, self.is_deviation), self.first(factors, self.is_inverse)
                if places[0] is not None and places[1] is not None:
                    factors[places[0]] = result
                    del factors[places[1]]
                    return self.product(factors, result)
        parts = children(term)
        return with_children(term, tuple(self.replaced(part, result) for part in parts)) if parts else term

    def product(self, factors: Sequence[Expr], result: Read) -> Expr:
        first, *others = (factor if factor == result else self.replaced(factor, result) for factor in factors)
        for other in others:
            first = call("*", first, other)
        return first

    @staticmethod
    def first(factors: Sequence[Expr], holds: Callable[[Expr], bool]) -> int | None:
        return next((place for place, factor in enumerate(factors) if holds(factor)), None)

    def unread(self, values: Mapping[int, Expr]) -> Iterator[int]:
        """Numbers of equations that were read for the result alone."""
        outputs = {output.name for output in self.instance.outputs}
        numbered = [*enumerate(self.instance.equations)]
        left = [(n, e) for n, e in numbered if n != self.variance and e.target.name not in self.taken]
        read = {read.tensor for n, e in left for read in reads(values.get(n, e.value))}
        for number, equation in numbered:
            if equation.target.name in self.taken and equation.target.name not in read | outputs:
                yield number


def _factors(term: Expr) -> Iterator[Expr]:
    match term:
        case Apply("*", (left, right)):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield term


def _scaled(instance: Instance, values: Mapping[int, Expr], result: Operand, mean: Operand) -> Scaled | None:
    """The only equation that reads the result, as an affine map of it; None if it is no such map.

    The terms of the map consist of inputs in the axes of the mean.
    """
    ((number, value),) = values.items()
    equation, inputs = instance.equations[number], {operand.name for operand in instance.inputs}

    def alone(term: Expr) -> bool:
        return {*free_axes(term)} == {*mean.axes} and all(read.tensor in inputs for read in reads(term))

    if equation.kind is not None or equation.target.axes != result.axes or not mean.axes:
        return None
    product, bias = value, None
    match value:
        case Apply("+", (left, right)):
            product, bias = (left, right) if alone(right) else (right, left)
    factors = [*_factors(product)]
    if factors.count(_whole(result)) != 1 or (bias is not None and not alone(bias)):
        return None
    factors.remove(_whole(result))
    gain = None
    for factor in factors:
        gain = factor if gain is None else call("*", gain, factor)
    return Scaled(number, gain, bias) if gain is None or alone(gain) else None

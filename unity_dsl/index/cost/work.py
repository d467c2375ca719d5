"""Floating-point operations and bytes of an operator, as polynomials in axis sizes.

An operator is one kernel: it reads its inputs and writes its outputs once, intermediates stay on chip. Each arithmetic
operation and element function counts as one per combination of the axes that it depends on, each term of a reduction as
one more; comparisons and indexing are free. A guarded sum `sum(v) [v == ids[n]] * w[v, d]` counts as its lowering, one
row per position; its adjoint adds one row per position. Where guards leave few positions of an axis, as in the adjoint
of a strided window, only these count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...syntax.ast import Apply, Expr, Name, Number, Read, Select, Size, Uniform
from ..equations.instance import Equation, Instance, Key, Kind
from ..equations.term import COMPARISONS, affine, call, children, free_axes, reads, substitute, walk
from ..gradients.adjoint import adjoint_by

Count = Any
"""A number, or a NumPy array of numbers where sizes are arrays."""

INTEGER_BYTES = 8

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """Operations, bytes read and bytes written."""

    flops: Count
    bytes_read: Count
    bytes_written: Count


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of sizes: the coefficient of each multiset of axes."""

    terms: tuple[tuple[Axes, Fraction], ...] = ()

    def at(self, sizes: Mapping[str, Count]) -> Count:
        return sum(_number(coefficient) * _product(axes, sizes) for axes, coefficient in self.terms)


@dataclass(frozen=True)
class Extent:
    """The number of elements of a tensor that are accessed, at most all of them.

    `reached` is None where all are.
    """

    tensor: str
    whole: Axes
    reached: Polynomial | None
    real: bool

    def bytes(self, sizes: Mapping[str, Count], element_bytes: int) -> Count:
        count = _product(self.whole, sizes)
        if self.reached is not None:
            count = np.minimum(count, self.reached.at(sizes))
        return count * (element_bytes if self.real else INTEGER_BYTES)


@dataclass(frozen=True)
class Tally:
    """The work of a kernel as a function of sizes."""

    flops: Polynomial
    read: tuple[Extent, ...]
    written: tuple[Extent, ...]

    def at(self, sizes: Mapping[str, Count], element_bytes: int) -> Work:
        read, written = (sum(e.bytes(sizes, element_bytes) for e in part) for part in (self.read, self.written))
        return Work(self.flops.at(sizes), read, written)


def work(instance: Instance, sizes: Mapping[str, Count] | None = None, element_bytes: int = 4) -> Work:
    """The work of the forward pass. `sizes` default to the instance's own.

    Arrays of equal shape are evaluated elementwise.
    """
    return forward_tally(instance).at({**instance.sizes, **(sizes or {})}, element_bytes)


def backward_work(
    instance: Instance, needs: Sequence[bool], sizes: Mapping[str, Count] | None = None, element_bytes: int = 4
) -> Work:
    """The work of the backward pass for the inputs that need a gradient, from their adjoints; `sizes` as for `work`.

    Each cotangent is a kernel of its own. Shared equations are counted once, those of the forward pass not again. A
    cotangent equal to the incoming one costs nothing. The derivative of an element function counts as one operation.
    """
    flops, read, written = 0, 0, 0
    for tally, axes in backward_tallies(instance, needs):
        done = tally.at({**axes, **instance.sizes, **(sizes or {})}, element_bytes)
        flops, read, written = flops + done.flops, read + done.bytes_read, written + done.bytes_written
    return Work(flops, read, written)


def forward_tally(instance: Instance) -> Tally:
    """The forward pass as a function of sizes."""
    return _forward_tally(instance.kind)


@lru_cache(maxsize=4096)
def _forward_tally(kind: Kind) -> Tally:
    instance = kind.instance
    if instance.extern:
        return _extern_tally(instance)
    inputs = {operand.name for operand in instance.inputs}
    outputs = {operand.name for operand in instance.outputs}
    return Tally(
        total(map(flops_of, instance.equations)),
        _read(instance, instance.equations, inputs),
        tuple(_written(equation) for equation in instance.equations if equation.target.name in outputs),
    )


def _extern_tally(instance: Instance) -> Tally:
    """An extern operator moves its operands and results; its operations are not known."""
    read, written = (
        tuple(Extent(operand.name, operand.axes, None, operand.integer_range is None) for operand in operands)
        for operands in (instance.inputs, instance.outputs)
    )
    return Tally(Polynomial(), read, written)


def backward_tallies(instance: Instance, needs: Sequence[bool]) -> tuple[tuple[Tally, Mapping[str, int]], ...]:
    """For each input that needs a gradient, its cotangent's tally and the sizes of axes that only the adjoint has."""
    return _backward_tallies(instance.identity, tuple(needs))


@lru_cache(maxsize=4096)
def _backward_tallies(identity: Key, needs: tuple[bool, ...]) -> tuple[tuple[Tally, Mapping[str, int]], ...]:
    instance = identity.instance
    wanted = () if instance.whole else zip(instance.inputs, needs, strict=True)
    made = tuple(
        adjoint_by(instance, _one_operation, position)
        for position, (operand, needed) in enumerate(wanted)
        if needed and operand.integer_range is None
    )
    tallies = _tallies(instance.kind, tuple(found.kind for found in made))
    return tuple((tally, found.sizes) for tally, found in zip(tallies, made, strict=True) if tally is not None)


@lru_cache(maxsize=4096)
def _tallies(forward: Kind, adjoints: tuple[Kind, ...]) -> tuple[Tally | None, ...]:
    """None for a cotangent equal to the incoming one."""
    done = set(forward.instance.equations)
    found: list[Tally | None] = []
    for made in (kind.instance for kind in adjoints):
        new = [equation for equation in made.equations if equation not in done]
        done.update(new)
        inputs = {given.name for given in made.inputs}
        tally = Tally(total(map(flops_of, new)), _read(made, made.equations, inputs), (_written(made.equations[-1]),))
        found.append(None if new and _passes_on(made) else tally)
    return tuple(found)


def _one_operation(function: str, arguments: tuple[Expr, ...], position: int) -> Expr:
    return call(f"{function}'{position}", *arguments)


def _passes_on(made: Instance) -> bool:
    """Whether a cotangent equals the incoming one elementwise."""
    equation = made.equations[-1]
    (result,) = made.outputs
    if equation.kind is not None or not isinstance(equation.value, Read):
        return False
    return made.operand(equation.value.tensor).dims == result.dims


# ---------------------------------------------------------------------------------------------- one equation


def flops_of(equation: Equation) -> Polynomial:
    """Operations of an equation; none where it only moves elements."""
    axes, value, _ = resolved(equation)
    if moves_only(value) and axes == equation.target.axes:
        return Polynomial()
    counted = [free_axes(node) for node in dict.fromkeys(_operations(value))]
    if set(axes) - set(equation.target.axes):
        counted.append(axes)
    return _polynomial(counted, dict(_confined(equation.over, value)))


def _confined(over: Axes, value: Expr) -> Iterator[tuple[str, tuple[frozenset[str], Fraction]]]:
    """Reduced axes that a guard confines: the guard's other axes, and the average number of positions left.

    0 <= b - 2 * a < 3 leaves 3 / 2 positions of a for each b.
    """
    conditions: list[Expr] = []
    while isinstance(value, Select) and value.otherwise == Number(0):
        conditions.append(value.condition)
        value = value.then
    for condition in conditions:
        match condition:
            case Apply("<", (term, Number(count))) if call(">=", term, Number(0)) in conditions and not any(
                reads(term)
            ):
                steps = _steps(term)
                axis = max(set(steps) & {*over}, key=lambda name: (abs(steps[name]), name), default=None)
                if axis is not None and len(steps) > 1:
                    yield axis, (frozenset(steps) - {axis}, Fraction(count) / abs(steps[axis]))


def _steps(term: Expr) -> Mapping[str, int]:
    """The integer coefficients of a term affine in axes; empty for any other."""
    if any(isinstance(node, Size) or (isinstance(node, Apply) and node.function in ("//", "%")) for node in walk(term)):
        return {}
    form = affine(term, {})
    return {} if form is None else form.coefficients


def resolved(equation: Equation) -> tuple[Axes, Expr, tuple[Expr, ...]]:
    """The axes that an equation iterates over, its value there, and the positions of the eliminated axes.

    A factor `[v == term]` eliminates v: the other factors are taken at `term`. So does `[2 * v == term]`, where term is
    even.
    """
    axes, value = list(equation.space), equation.value
    terms: list[Expr] = []
    while (guard := next(_guards(value, axes), None)) is not None:
        axis, factor, term = guard
        axes.remove(axis)
        terms.append(term)
        value = substitute(_without(value, factor), {axis: term})
    return tuple(axes), value, tuple(terms)


def determined_axes(equation: Equation) -> frozenset[str]:
    """The axes that guards determine: reduced ones are gathered from, those of the result scattered to."""
    return frozenset(equation.space) - frozenset(resolved(equation)[0])


def moves_only(value: Expr) -> bool:
    """Whether a value is a read, or a sum of mutually exclusive padded reads, and so needs no arithmetic."""
    match value:
        case Read():
            return True
        case Apply("+", arguments):
            return all(isinstance(part, Read) and part.fill is not None for part in arguments)
    return False


def _guards(value: Expr, axes: Sequence[str]) -> Iterator[tuple[str, Expr, Expr]]:
    """Axes that a factor determines, with that factor and the position."""
    for factor in factors(value):
        for axis in axes:
            found = determined_by(factor, axis)
            if found is not None:
                term, count = found
                yield axis, factor, term if count == 1 else call("//", term, Number(count))


def determined_by(factor: Expr, axis: str) -> tuple[Expr, int] | None:
    """(term, count) of a factor `[count * axis == term]` whose term does not contain the axis, else None."""
    if isinstance(factor, Apply) and factor.function == "==":
        for side, term in (factor.arguments, factor.arguments[::-1]):
            if axis not in free_axes(term):
                match side:
                    case Name(name) if name == axis:
                        return term, 1
                    case Apply("*", (Number(int(count)), Name(name))) if name == axis and count > 0:
                        return term, count
    return None


def factors(value: Expr) -> Iterator[Expr]:
    """The factors of a product; those of the numerator of a quotient."""
    match value:
        case Apply("*", (left, right)):
            yield from factors(left)
            yield from factors(right)
        case Apply("/", (left, _)) | Apply("neg", (left,)):
            yield from factors(left)
        case _:
            yield value


def _without(value: Expr, guard: Expr) -> Expr:
    """The product without one of its factors."""
    match value:
        case Apply("*", (left, right)) if left == guard:
            return right
        case Apply("*", (left, right)) if right == guard:
            return left
        case Apply("*" | "/" | "neg" as function, arguments):
            return call(function, *(_without(part, guard) for part in arguments))
    return value


def _operations(value: Expr) -> Iterator[Expr]:
    """The arithmetic on elements; arithmetic on indices and numbers alone is not counted."""
    if isinstance(value, Read):
        return
    if isinstance(value, Apply) and value.function not in COMPARISONS:
        if any(isinstance(node, Read | Uniform) for node in walk(value)):
            yield value
    for child in children(value):
        yield from _operations(child)


def _read(instance: Instance, equations: Iterable[Equation], tensors: set[str]) -> tuple[Extent, ...]:
    """The extents of reads of these tensors, in order of first use."""
    reached: dict[str, list[Axes]] = {}
    for equation in equations:
        _, value, positions = resolved(equation)
        for read in (read for part in (value, *positions) for read in reads(part)):
            if read.tensor in tensors:
                axes = {axis for index in read.index for axis in free_axes(index)}
                reached.setdefault(read.tensor, []).append(tuple(sorted(axes)))
    return tuple(_extent(instance, tensor, parts) for tensor, parts in reached.items())


def _extent(instance: Instance, tensor: str, parts: Sequence[Axes]) -> Extent:
    operand = instance.operand(tensor)
    everything = tuple(sorted(operand.axes)) in parts
    reached = None if everything else _polynomial(dict.fromkeys(parts))
    return Extent(tensor, operand.axes, reached, operand.integer_range is None)


def _written(equation: Equation) -> Extent:
    """The extent of a result; of one scattered to, the elements added to."""
    axes = resolved(equation)[0]
    scattered = not set(equation.target.axes) <= set(axes)
    real = equation.target.integer_range is None
    return Extent(equation.target.name, equation.target.axes, _polynomial([axes]) if scattered else None, real)


# ---------------------------------------------------------------------------------------------- polynomials


def _polynomial(
    products: Iterable[Axes], confined: Mapping[str, tuple[frozenset[str], Fraction]] | None = None
) -> Polynomial:
    terms: dict[Axes, Fraction] = {}
    for axes in products:
        left, count = {*axes}, Fraction(1)
        for axis, (others, positions) in (confined or {}).items():
            if axis in left and others <= left:
                left, count = left - {axis}, count * positions
        key = tuple(sorted(left))
        terms[key] = terms.get(key, Fraction(0)) + count
    return Polynomial(tuple(terms.items()))


def total(parts: Iterable[Polynomial]) -> Polynomial:
    """The sum of polynomials, like terms collected."""
    terms: dict[Axes, Fraction] = {}
    for part in parts:
        for axes, coefficient in part.terms:
            terms[axes] = terms.get(axes, Fraction(0)) + coefficient
    return Polynomial(tuple(terms.items()))


def _number(count: Fraction) -> int | float:
    return int(count) if count.denominator == 1 else float(count)


def _product(axes: Axes, sizes: Mapping[str, Count]) -> Count:
    return prod(sizes[axis] for axis in axes)

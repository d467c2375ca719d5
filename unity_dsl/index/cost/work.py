"""Floating-point operations and bytes of an operator, as polynomials in axis sizes.

An operator counts as one kernel: it reads its inputs and writes its outputs once, and intermediates stay on chip. Each
arithmetic operation and element function counts once per combination of the axes that it depends on, and each term of a
reduction counts once more. Comparisons and indexing are free. A guarded sum `sum(v) [v == ids[n]] * w[v, d]` counts as
its lowering, one row per position; its adjoint adds one row per position. If guards leave few positions of an axis, as
in the adjoint of a strided window, only these count.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...syntax.ast import Apply, Expr, Number, Read, Select, Size, Uniform
from ..equations.instance import Equation, Instance, Key, Kind
from ..equations.loop_nest import LoopNest, RunningSum, loop_nest, without
from ..equations.term import COMPARISONS, affine, call, children, free_axes, reads, walk
from ..gradients.adjoint import adjoint_by

Count = Any
"""A number, or a NumPy array of numbers if sizes are arrays."""

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

    `reached` is None if all are.
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
class Passes:
    """Operations of a running sum up to `kept`: `once` if both axes are undivided and equally long, else `pairs`."""

    over: str
    kept: str
    once: Polynomial
    pairs: Polynomial

    def at(self, sizes: Mapping[str, Count], whole: Mapping[str, int]) -> Count:
        alike = (sizes[self.over] == whole[self.over]) & (sizes[self.kept] == whole[self.kept])
        return np.where(alike & (whole[self.over] == whole[self.kept]), self.once.at(sizes), self.pairs.at(sizes))


@dataclass(frozen=True)
class Tally:
    """The work of a kernel at any sizes. `flops` excludes running sums."""

    flops: Polynomial
    running: tuple[Passes, ...]
    read: tuple[Extent, ...]
    written: tuple[Extent, ...]

    @property
    def undivided(self) -> Polynomial:
        """The operations if no axis is divided."""
        return total([self.flops, *(passes.once for passes in self.running)])

    def at(self, sizes: Mapping[str, Count], element_bytes: int, whole: Mapping[str, int]) -> Work:
        """The work at the sizes of a device. `whole` are the sizes of the undivided operator."""
        read, written = (sum(e.bytes(sizes, element_bytes) for e in part) for part in (self.read, self.written))
        flops = self.flops.at(sizes) + sum(passes.at(sizes, whole) for passes in self.running)
        return Work(flops, read, written)


def work(instance: Instance, sizes: Mapping[str, Count] | None = None, element_bytes: int = 4) -> Work:
    """The work of the forward pass. `sizes` override the sizes of the instance.

    Arrays of equal shape are evaluated elementwise.
    """
    return forward_tally(instance).at({**instance.sizes, **(sizes or {})}, element_bytes, instance.sizes)


def backward_work(
    instance: Instance, needs: Sequence[bool], sizes: Mapping[str, Count] | None = None, element_bytes: int = 4
) -> Work:
    """The work of the backward pass for the inputs that need a gradient, from their adjoints; `sizes` as for `work`.

    Each cotangent is a kernel of its own. Shared equations are counted once, and equations of the forward pass not
    again. A cotangent equal to the incoming one costs nothing. The derivative of an element function counts as one
    operation.
    """
    flops, read, written = 0, 0, 0
    for tally, axes in backward_tallies(instance, needs):
        whole = {**axes, **instance.sizes}
        done = tally.at({**whole, **(sizes or {})}, element_bytes, whole)
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
    return _tally(instance, instance.equations, inputs, outputs, instance.equations)


def equation_tally(instance: Instance, equation: Equation) -> Tally:
    """The work of an equation as a kernel of its own, which reads what others have written."""
    nest = loop_nest(instance, equation)
    read = {read.tensor for part in (nest.value, *nest.positions.values()) for read in reads(part)}
    return _tally(instance, [equation], read, {equation.target.name}, [equation])


def _tally(
    instance: Instance,
    equations: Sequence[Equation],
    read: Container[str],
    written: Container[str],
    counted: Sequence[Equation],
) -> Tally:
    """The work of equations as one kernel that reads and writes these tensors.

    Only the operations of `counted` equations are counted.
    """
    nests = [loop_nest(instance, equation) for equation in equations]
    new = [nest for nest in nests if nest.equation in counted]
    return Tally(
        total(flops_of(nest) for nest in new if nest.running is None),
        tuple(_passes(nest, nest.running) for nest in new if nest.running is not None),
        _read(instance, nests, read),
        tuple(extent for nest in nests if nest.equation.target.name in written for extent in _written(nest)),
    )


def _extern_tally(instance: Instance) -> Tally:
    """An extern operator moves its operands and results; its operations are not known."""
    read, written = (
        tuple(Extent(operand.name, operand.axes, None, operand.integer_range is None) for operand in operands)
        for operands in (instance.inputs, instance.outputs)
    )
    return Tally(Polynomial(), (), read, written)


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
    """The work of each adjoint; None for a cotangent equal to the incoming one."""
    done = set(forward.instance.equations)
    found: list[Tally | None] = []
    for made in (kind.instance for kind in adjoints):
        new = [equation for equation in made.equations if equation not in done]
        done.update(new)
        inputs = {given.name for given in made.inputs}
        tally = _tally(made, made.equations, inputs, {made.equations[-1].target.name}, new)
        found.append(None if new and _passes_on(made) else tally)
    return tuple(found)


def cotangents_passed_on(instance: Instance, needs: Sequence[bool]) -> tuple[bool, ...]:
    """For each input, whether its cotangent is the incoming one, elementwise, so that nothing is computed."""
    return _passed_on(instance.identity, tuple(needs))


@lru_cache(maxsize=4096)
def _passed_on(identity: Key, needs: tuple[bool, ...]) -> tuple[bool, ...]:
    instance = identity.instance
    if instance.whole:
        return (False,) * len(needs)
    return tuple(
        needed
        and operand.integer_range is None
        and _passes_on(adjoint_by(instance, _one_operation, position).kind.instance)
        for position, (operand, needed) in enumerate(zip(instance.inputs, needs, strict=True))
    )


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


def flops_of(nest: LoopNest) -> Polynomial:
    """Operations of an equation, none if it only moves elements. A running sum counts for all pairs."""
    value, target = nest.value, nest.equation.target
    if moves_only(value) and nest.axes == target.axes:
        return Polynomial()
    return _polynomial(_counted(nest, value), dict(_confined(nest.equation.over, value)))


def _passes(nest: LoopNest, running: RunningSum) -> Passes:
    """A running sum: in one pass every position is added once, and nothing is multiplied pair by pair."""
    once = _counted(nest, without(nest.value, running.factor))
    alone = {running.over: (frozenset({running.kept}), Fraction(1))}
    return Passes(running.over, running.kept, _polynomial(once, alone), flops_of(nest))


def _counted(nest: LoopNest, value: Expr) -> list[Axes]:
    """The axes of every operation of a value, and of the reduction."""
    counted = [free_axes(node) for node in dict.fromkeys(_operations(value))]
    return [*counted, nest.axes] if {*nest.axes} - {*nest.equation.target.axes} else counted


def _confined(over: Axes, value: Expr) -> Iterator[tuple[str, tuple[frozenset[str], Fraction]]]:
    """Reduced axes that a guard confines, with the guard's other axes and the average number of positions left.

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


def moves_only(value: Expr) -> bool:
    """Whether a value is a read, or a sum of mutually exclusive padded reads, and so needs no arithmetic."""
    match value:
        case Read():
            return True
        case Apply("+", arguments):
            return all(isinstance(part, Read) and part.fill is not None for part in arguments)
    return False


def _operations(value: Expr) -> Iterator[Expr]:
    """The arithmetic on elements; arithmetic on indices and numbers alone is not counted."""
    if isinstance(value, Read):
        return
    if isinstance(value, Apply) and value.function not in COMPARISONS:
        if any(isinstance(node, Read | Uniform) for node in walk(value)):
            yield value
    for child in children(value):
        yield from _operations(child)


def _read(instance: Instance, nests: Iterable[LoopNest], tensors: Container[str]) -> tuple[Extent, ...]:
    """The parts of some tensors that equations access, in the order of first use."""
    reached: dict[str, list[Axes]] = {}
    for nest in nests:
        for read in (read for part in (nest.value, *nest.positions.values()) for read in reads(part)):
            if read.tensor in tensors:
                axes = {axis for index in read.index for axis in free_axes(index)}
                reached.setdefault(read.tensor, []).append(tuple(sorted(axes)))
    return tuple(_extent(instance, tensor, parts) for tensor, parts in reached.items())


def _extent(instance: Instance, tensor: str, parts: Sequence[Axes]) -> Extent:
    operand = instance.operand(tensor)
    everything = tuple(sorted(operand.axes)) in parts
    reached = None if everything else _polynomial(dict.fromkeys(parts))
    return Extent(tensor, operand.axes, reached, operand.integer_range is None)


def _written(nest: LoopNest) -> Iterator[Extent]:
    """All elements of a result. A scatter writes zeros to them first, and then the elements that it adds."""
    target = nest.equation.target
    real = target.integer_range is None
    yield Extent(target.name, target.axes, None, real)
    if nest.placed:
        yield Extent(target.name, target.axes, _polynomial([nest.axes]), real)


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

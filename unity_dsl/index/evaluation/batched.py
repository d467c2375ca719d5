"""Evaluates one instance for many operands at once, in float64, with index arrays that are built once.

It computes what `evaluate`, its reference, does, for operands with an additional first axis. Sums of products are
contractions, so they add in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size, Uniform
from ...syntax.rational import plain_number
from ..equations.instance import Equation, Instance, Operand
from ..library import Library
from .evaluate import REDUCE, applied, in_range
from .uniform import uniform as counter_uniform

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
Value = Array | Callable[[Tensors], Array]
"""An array [1, axes…], or a function from the tensors to an array [count, axes…].

An axis on which nothing depends has length 1.
"""


@dataclass(frozen=True)
class BatchedEvaluation:
    """The equations of an instance, each as a function from the tensors before it to its target."""

    instance: Instance
    steps: tuple[tuple[Operand, Callable[[Tensors], Array]], ...]

    def results(self, operands: Sequence[Array]) -> list[Array]:
        """The outputs, [count, *shape] each. Raises ValueError for integers out of range."""
        values: dict[str, Array] = {
            operand.name: in_range(
                operand, np.asarray(array, np.float64 if operand.integer_range is None else np.int64)
            )
            for operand, array in zip(self.instance.inputs, operands, strict=True)
        }
        for target, step in self.steps:
            with np.errstate(all="ignore"):
                values[target.name] = in_range(target, step(values))
        count = len(operands[0])
        return [_repeated(values[output.name], count) for output in self.instance.outputs]


def batched_evaluation(instance: Instance, library: Library) -> BatchedEvaluation:
    """The equations of training mode, with the default random numbers. Raises ValueError for an extern operator."""
    if instance.extern:
        raise ValueError("an extern operator")
    steps = [(equation.target, _Equation(instance, equation, library).step()) for equation in instance.equations]
    return BatchedEvaluation(instance, tuple(steps))


def _repeated(value: Array, count: int) -> Array:
    return value if len(value) == count else np.repeat(value, count, axis=0)


class _Equation:
    """One equation over its index space, whose axes follow the axis of the operands."""

    def __init__(self, instance: Instance, equation: Equation, library: Library) -> None:
        self.sizes, self.equation, self.functions = instance.sizes, equation, library.functions
        self.axes = equation.space
        self.shapes = {operand.name: instance.shape(operand) for operand in instance.inputs}
        self.shapes |= {other.target.name: instance.shape(other.target) for other in instance.equations}

    def step(self) -> Callable[[Tensors], Array]:
        """The function from the tensors to the target."""
        equation = self.equation
        target = tuple(self.sizes[axis] for axis in equation.target.axes)
        dims = self.shapes[equation.target.name]
        dtype = np.float64 if equation.target.integer_range is None else np.int64
        reduced = self._sum() if equation.kind is ReductionKind.SUM else self._reduced()

        def step(tensors: Tensors) -> Array:
            value = reduced(tensors)
            return np.array(np.broadcast_to(value, (len(value), *target)), dtype=dtype).reshape((len(value), *dims))

        return step

    def _reduced(self) -> Callable[[Tensors], Array]:
        value, kind = _function(self.value(self.equation.value)), self.equation.kind
        if kind is None:
            return value
        space = tuple(self.sizes[axis] for axis in self.axes)
        over = tuple(range(1 + len(self.equation.target.axes), 1 + len(self.axes)))

        def reduced(tensors: Tensors) -> Array:
            found = value(tensors)
            whole = np.broadcast_to(found, (len(found), *space)).astype(np.float64)
            return np.asarray(REDUCE[kind](whole, axis=over))

        return reduced

    def _sum(self) -> Callable[[Tensors], Array]:
        """A sum of products as a contraction, multiplied by the lengths of axes that no factor depends on."""
        factors = [_function(self.value(factor)) for factor in _factors(self.equation.value)]
        count, targets = len(self.axes), len(self.equation.target.axes)
        sizes = [self.sizes[axis] for axis in self.axes]

        def contracted(tensors: Tensors) -> Array:
            operands: list[Any] = []
            present: set[int] = set()
            for factor in factors:
                value = np.asarray(factor(tensors), np.float64)
                kept = [axis for axis in range(count + 1) if value.shape[axis] > 1]
                present.update(kept)
                operands += [value.reshape([value.shape[axis] for axis in kept]), kept]
            left = [axis for axis in range(targets + 1) if axis in present]
            value = np.einsum(*operands, left)
            lone = prod(sizes[axis] for axis in range(targets, count) if axis + 1 not in present)
            shape = [1] * (targets + 1)
            for axis, size in zip(left, value.shape, strict=True):
                shape[axis] = size
            return np.asarray(value * lone if lone != 1 else value).reshape(shape)

        return contracted

    # ------------------------------------------------------------------------------------------ values

    def value(self, expr: Expr) -> Value:
        match expr:
            case Number(number):
                return self._constant(plain_number(number))
            case Size(name):
                return self._constant(self.sizes[name])
            case Name(name):
                return self.index(name)
            case Apply(function, arguments):
                parts = [self.value(argument) for argument in arguments]
                return _lifted(lambda *given: np.asarray(applied(function, list(given), self.functions)), parts)
            case Select(condition, then, otherwise):
                parts = [self.value(part) for part in (condition, then, otherwise)]
                return _lifted(lambda *given: np.where(*given), parts)
            case Read():
                return self.read(expr)
            case Uniform(index):
                return counter_uniform(self.position(index))
        raise TypeError(f"{self.equation.target.name}: {type(expr).__name__} in an equation")

    def _constant(self, number: Any) -> Array:
        return np.asarray(number).reshape((1,) * (1 + len(self.axes)))

    def index(self, axis: str) -> Array:
        shape = [1] * (1 + len(self.axes))
        shape[1 + self.axes.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis], dtype=np.int64).reshape(shape)

    def position(self, index: tuple[Expr, ...]) -> Array:
        """Row-major positions over the axes that `uniform` names."""
        position = self._constant(0)
        for part in index:
            if not isinstance(part, Name):
                raise TypeError(f"{self.equation.target.name}: `uniform` is indexed by axes")
            position = position * self.sizes[part.name] + self.index(part.name)
        return position

    def read(self, read: Read) -> Value:
        name, shape = read.tensor, self.shapes[read.tensor]
        plain = self._plain(read)
        if plain is not None:
            order, spread = plain
            return lambda tensors: tensors[name].transpose(order).reshape((len(tensors[name]), *spread))
        index = [self.value(part) for part in read.index]

        def flattened(*parts: Array) -> Array:
            """Row-major places, -1 outside of the tensor."""
            flat, inside = self._constant(0), self._constant(True)
            for part, size in zip(parts, shape, strict=True):
                inside = inside & (part >= 0) & (part < size)
                flat = flat * size + part
            if read.fill is None and not np.all(inside):
                raise IndexError(f"{self.equation.target.name}: {name} is read outside its bounds")
            return np.where(inside, flat, -1)

        def taken(tensor: Array, places: Array) -> Array:
            flat = places.reshape((len(places), -1))
            rows = tensor.reshape((len(tensor), -1))
            found = rows[:, flat[0]] if len(flat) == 1 else np.take_along_axis(rows, flat, axis=1)
            return found.reshape((len(found), *places.shape[1:]))

        places = _lifted(flattened, index)
        parts = [lambda tensors: tensors[name], places]
        if read.fill is None:
            return _lifted(taken, parts)
        filled = [*parts, self.value(read.fill)]
        return _lifted(lambda tensor, places, fill: np.where(places < 0, fill, taken(tensor, places)), filled)

    def _plain(self, read: Read) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The order of a tensor's dimensions and its shape over the space; None unless each is read at its own axis."""
        axes = [part.name for part in read.index if isinstance(part, Name)]
        shape = self.shapes[read.tensor]
        if len(axes) != len(shape) or len(set(axes)) != len(axes):
            return None
        if any(self.sizes[axis] != size for axis, size in zip(axes, shape, strict=True)):
            return None
        places = [self.axes.index(axis) for axis in axes]
        order = sorted(range(len(axes)), key=places.__getitem__)
        spread = [1] * len(self.axes)
        for place, size in zip(places, shape, strict=True):
            spread[place] = size
        return (0, *(1 + dim for dim in order)), tuple(spread)


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Apply) and expr.function == "*":
        return [factor for argument in expr.arguments for factor in _factors(argument)]
    return [expr]


def _function(value: Value) -> Callable[[Tensors], Array]:
    return value if callable(value) else lambda tensors: value


def _lifted(function: Callable[..., Array], parts: Sequence[Value]) -> Value:
    """A function of values. It is computed now if no value depends on the tensors."""
    arrays = [part for part in parts if not callable(part)]
    if len(arrays) == len(parts):
        return function(*arrays)
    functions = [_function(part) for part in parts]
    return lambda tensors: function(*(part(tensors) for part in functions))

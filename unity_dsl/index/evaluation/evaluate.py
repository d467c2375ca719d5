"""Reference evaluation of an instance in float64, by brute force over its index space, with NumPy.

No equation is rearranged and no library routine replaces one, so that every other stage can be tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FunctionDecl, Name, Number, Read, ReductionKind, Select, Size, Uniform
from ...syntax.rational import plain_number
from ..equations.instance import Equation, Instance, Operand
from ..library import Library
from .extern import evaluate_extern
from .native_calls import ARITHMETIC_CALLS, COMPARISON_CALLS, evaluate_native
from .uniform import uniform as counter_uniform

Array = npt.NDArray[Any]
RandomSource = Callable[[Equation, Array], Array]
"""Maps an equation and its global row-major positions (int64) to numbers in [0, 1)."""

REDUCE: Mapping[ReductionKind, Callable[..., Array]] = {
    ReductionKind.SUM: np.sum,
    ReductionKind.PROD: np.prod,
    ReductionKind.MAX: np.max,
    ReductionKind.MIN: np.min,
}


def evaluate(
    instance: Instance,
    inputs: Sequence[npt.ArrayLike],
    library: Library,
    *,
    training: bool = True,
    uniform: RandomSource | None = None,
) -> list[Array]:
    """The outputs for these inputs, in the shapes of the instance: integer tensors as int64, the others as float64.

    `uniform` provides the numbers of `uniform[…]`; the default is the numbers of seed, step and site 0. Raises
    ValueError for inputs of other shapes, and for integers out of range, given or computed.
    """
    values = evaluate_all(instance, inputs, library, training=training, uniform=uniform)
    return [values[output.name] for output in instance.outputs]


def evaluate_all(
    instance: Instance,
    inputs: Sequence[npt.ArrayLike],
    library: Library,
    *,
    training: bool = True,
    uniform: RandomSource | None = None,
) -> dict[str, Array]:
    """As `evaluate`, with all inputs and intermediates, by name."""
    source = uniform or (lambda _, position: counter_uniform(position))
    values = {
        operand.name: _input(instance, operand, np.asarray(value))
        for operand, value in zip(instance.inputs, inputs, strict=True)
    }
    if instance.extern:
        (output,) = instance.outputs
        return values | {output.name: in_range(output, evaluate_extern(instance, values))}
    equations = instance.equations if training or not instance.evaluation else instance.evaluation
    for equation in equations:
        with np.errstate(all="ignore"):
            result = _Space(instance, equation, values, library, source).result()
        values[equation.target.name] = in_range(equation.target, result)
    return values


def _input(instance: Instance, operand: Operand, value: Array) -> Array:
    if value.shape != instance.shape(operand):
        raise ValueError(f"{operand.name} has shape {value.shape}, expected {instance.shape(operand)}")
    if operand.integer_range is None:
        return value.astype(np.float64)
    return in_range(operand, value.astype(np.int64))


def in_range(operand: Operand, value: Array) -> Array:
    """The tensor, whose integers, if it has any, must be in range. Raises ValueError."""
    if operand.integer_range is not None and value.size and not 0 <= value.min() <= value.max() < operand.integer_range:
        raise ValueError(f"{operand.name} has values outside [0, {operand.integer_range})")
    return value


class _Space:
    """The index space of one equation: arrays have a dimension per axis, of length 1 where they do not depend on it."""

    def __init__(
        self,
        instance: Instance,
        equation: Equation,
        values: Mapping[str, Array],
        library: Library,
        source: RandomSource,
    ) -> None:
        self.sizes, self.own_sizes = instance.sizes, instance.own_sizes
        self.equation = equation
        self.values = values
        self.functions = library.functions
        self.source = source
        self.axes = equation.space

    def result(self) -> Array:
        equation = self.equation
        target = tuple(self.sizes[axis] for axis in equation.target.axes)
        value = np.asarray(self.value(equation.value))
        if equation.kind is not None:
            space = tuple(self.sizes[axis] for axis in self.axes)
            value = np.broadcast_to(value, space).astype(np.float64)
            value = REDUCE[equation.kind](value, axis=tuple(range(len(target), len(space))))
        dtype = np.float64 if equation.target.integer_range is None else np.int64
        dims = tuple(prod(self.sizes[axis] for axis in dim) for dim in equation.target.dims)
        return np.array(np.broadcast_to(value, target), dtype=dtype).reshape(dims)

    def value(self, expr: Expr) -> Any:
        match expr:
            case Number(number):
                return plain_number(number)
            case Size(name):
                return self.sizes[name]
            case Name(name):
                return self.index(name)
            case Apply("*", (Apply("==", (Name(axis), _)) as selects, selected)) if axis in self.equation.over:
                return np.where(self.value(selects), self.value(selected), 0)  # a guard is executed, not multiplied
            case Apply(function, arguments):
                return applied(function, [self.value(argument) for argument in arguments], self.functions)
            case Select(condition, then, otherwise):
                return np.where(self.value(condition), self.value(then), self.value(otherwise))
            case Read():
                return self.read(expr)
            case Uniform(index):
                return self.source(self.equation, self.position(index))
        raise TypeError(f"{self.equation.target.name}: {type(expr).__name__} in an equation")

    def index(self, axis: str) -> npt.NDArray[np.int64]:
        shape = [1] * len(self.axes)
        shape[self.axes.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis], dtype=np.int64).reshape(shape)

    def read(self, read: Read) -> Array:
        tensor = self.values[read.tensor]
        index = [np.asarray(self.value(part)) for part in read.index]
        inside: Array = np.asarray(True)
        for position, (part, size) in enumerate(zip(index, tensor.shape, strict=True)):
            valid = (part >= 0) & (part < size)
            inside = inside & valid
            index[position] = np.where(valid, part, 0)
        found: Array = np.asarray(tensor[tuple(index)])
        if read.fill is not None:
            return np.where(inside, found, self.value(read.fill))
        if not np.all(inside):
            raise IndexError(f"{self.equation.target.name}: {read.tensor} is read outside its bounds")
        return found

    def position(self, index: tuple[Expr, ...]) -> npt.NDArray[np.int64]:
        """Row-major positions over the axes, in the order that `uniform` names them."""
        position: npt.NDArray[np.int64] = np.zeros((1,) * len(self.axes), dtype=np.int64)
        for part in index:
            if not isinstance(part, Name):
                raise TypeError(f"{self.equation.target.name}: `uniform` is indexed by axes")
            position = position * self.own_sizes[part.name] + self.index(part.name)
        return position


def applied(function: str, arguments: list[Any], functions: Mapping[str, FunctionDecl]) -> Any:
    """A function of an equation at arrays: arithmetic, a comparison as 0 and 1, or an element function."""
    if function in ARITHMETIC_CALLS:
        return ARITHMETIC_CALLS[function](*arguments)
    if function in COMPARISON_CALLS:
        return COMPARISON_CALLS[function](*arguments).astype(np.float64)
    return _called(functions[function], arguments, functions)


def _called(decl: FunctionDecl, arguments: list[Any], functions: Mapping[str, FunctionDecl]) -> Any:
    """An element function: its definition, or for a primitive its `numpy:` line."""
    bound = dict(zip(decl.parameters, arguments, strict=True))
    if decl.definition is not None:
        return defined(decl.definition, bound, functions)
    if decl.numpy is None:
        raise TypeError(f"function {decl.name} has neither a definition nor a `numpy:` line")
    return evaluate_native(decl.numpy, bound)


def defined(expr: Expr, bound: Mapping[str, Any], functions: Mapping[str, FunctionDecl]) -> Any:
    """A definition or a derivative of a function at its parameters."""
    match expr:
        case Number(number):
            return plain_number(number)
        case Name(name):
            return bound[name]
        case Apply(function, arguments):
            return applied(function, [defined(argument, bound, functions) for argument in arguments], functions)
        case Select(condition, then, otherwise):
            return np.where(*(defined(part, bound, functions) for part in (condition, then, otherwise)))
    raise TypeError(f"{type(expr).__name__} in the definition of a function")

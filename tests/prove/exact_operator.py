"""One operator in exact numbers: its equations evaluated element by element, from the declarations alone.

Shares with the prover the parser and the instance (which axes there are), and nothing that computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from operator import itemgetter
from random import Random

from unity_dsl.index.equations.instance import Equation, Instance
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import (
    Apply,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    Number,
    Read,
    ReductionKind,
    Select,
    Size,
    Uniform,
)

from .exact_numbers import ARITHMETIC, PRIMITIVES, TooLarge, Value, decimal, greatest, multiplied, total

MAX_STEPS = 3_000
"""Positions of all equations of one operator."""

Elements = dict[tuple[int, ...], Value]
Indices = dict[str, int]
Compiled = Callable[[Indices], Value]


class NoMeaning(Exception):
    """The rule has no meaning at these sizes. The first argument says why."""


_REDUCE: Mapping[ReductionKind, Callable[[Iterable[Value]], Value]] = {
    ReductionKind.SUM: total,
    ReductionKind.PROD: multiplied,
    ReductionKind.MAX: greatest,
    ReductionKind.MIN: lambda values: greatest(values, least=True),
}


@dataclass(frozen=True)
class Operation:
    """An instance. `exact` are the attributes that floats stand for; `seed` is that of random operators."""

    instance: Instance
    library: Library
    exact: Mapping[float, Fraction]
    seed: int
    max_steps: int = MAX_STEPS

    def run(self, inputs: Sequence[Elements], result: int = 0) -> Elements:
        """An output, by position in each dimension. Raises TooLarge."""
        instance = self.instance
        steps = sum(prod(instance.sizes[axis] for axis in equation.space) for equation in instance.equations)
        if steps > self.max_steps:
            raise TooLarge(f"{instance.name}: {steps} positions")
        values = {operand.name: given for operand, given in zip(instance.inputs, inputs, strict=True)}
        for equation in instance.equations:
            values[equation.target.name] = self._equation(equation, values)
        return values[instance.outputs[result].name]

    def _equation(self, equation: Equation, values: Mapping[str, Elements]) -> Elements:
        sizes = self.instance.sizes
        value = self._compiled(equation.value, values)
        free = equation.target.axes
        found: Elements = {}
        for place in product(*(range(sizes[axis]) for axis in free)):
            here = dict(zip(free, place, strict=True))
            position = tuple(_position(dim, here, sizes) for dim in equation.target.dims)
            if equation.kind is None:
                found[position] = value(here)
            else:
                inner = product(*(range(sizes[axis]) for axis in equation.over))
                found[position] = _REDUCE[equation.kind](
                    value(here | dict(zip(equation.over, part, strict=True))) for part in inner
                )
        return found

    # ------------------------------------------------------------------------------------------ expressions

    def _compiled(self, expr: Expr, values: Mapping[str, Elements]) -> Compiled:
        match expr:
            case Number(number):
                constant = self.exact.get(number) or decimal(number)
                return lambda _: constant
            case Size(name):
                size = Fraction(self.instance.sizes[name])
                return lambda _: size
            case Name(name):
                return lambda at: Fraction(at[name])
            case Read():
                return self._read(expr, values)
            case Select():
                condition, then, otherwise = (
                    self._compiled(part, values) for part in (expr.condition, expr.then, expr.otherwise)
                )
                return lambda at: _chosen(condition(at), then, otherwise, at)
            case Uniform(index):
                return self._uniform(index)
            case Apply(function, arguments):
                parts = [self._compiled(argument, values) for argument in arguments]
                computed = ARITHMETIC.get(function) or self._function(self.library.functions[function])
                return lambda at: computed(*(part(at) for part in parts))
        raise TypeError(type(expr).__name__)

    def _read(self, read: Read, values: Mapping[str, Elements]) -> Compiled:
        elements = values[read.tensor]
        index = [self._index(part, values) for part in read.index]
        fill = None if read.fill is None else self._compiled(read.fill, values)

        def element(at: Indices) -> Value:
            place = tuple([part(at) for part in index])
            if place in elements:
                return elements[place]
            assert fill is not None, f"{read.tensor} is read outside"
            return fill(at)

        return element

    def _index(self, expr: Expr, values: Mapping[str, Elements]) -> Callable[[Indices], int]:
        if isinstance(expr, Name):
            return itemgetter(expr.name)
        value = self._compiled(expr, values)
        return lambda at: int(value(at))  # type: ignore[arg-type]

    def _uniform(self, index: tuple[Expr, ...]) -> Compiled:
        """A number of its own for every row-major position."""
        axes = [part.name for part in index if isinstance(part, Name)]

        def drawn(at: Indices) -> Value:
            position = _position(axes, at, self.instance.sizes)
            return Fraction(Random(f"{self.seed} {position}").randrange(20), 20)

        return drawn

    def _function(self, decl: FunctionDecl) -> Callable[..., Value]:
        if decl.definition is not None:
            return lambda *values: self._defined(decl.definition, dict(zip(decl.parameters, values, strict=True)))
        call = decl.numpy
        assert call is not None
        return lambda *values: _native(call, dict(zip(decl.parameters, values, strict=True)))

    def _defined(self, expr: Expr | None, known: Mapping[str, Value]) -> Value:
        match expr:
            case Number(number):
                return decimal(number)
            case Name(name):
                return known[name]
            case Apply(function, arguments):
                computed = ARITHMETIC.get(function) or self._function(self.library.functions[function])
                return computed(*(self._defined(argument, known) for argument in arguments))
            case Select(condition, then, otherwise):
                truth = self._defined(condition, known)
                return None if truth is None else self._defined(then if truth != 0 else otherwise, known)
        raise TypeError(type(expr).__name__)


def _chosen(truth: Value, then: Compiled, otherwise: Compiled, at: Indices) -> Value:
    return None if truth is None else then(at) if truth != 0 else otherwise(at)


def _position(dim: Sequence[str], here: Indices, sizes: Mapping[str, int]) -> int:
    found = 0
    for axis in dim:
        found = found * sizes[axis] + here[axis]
    return found


def _native(argument: NativeArgument, known: Mapping[str, Value]) -> Value:
    match argument:
        case Number(number):
            return decimal(number)
        case Name(name):
            return known[name]
    return PRIMITIVES[argument.function](*(_native(part, known) for part in argument.arguments))  # type: ignore[union-attr]

"""Lazy evaluation of one operator call, element by element, by interpreting its statements from the syntax tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from operator import itemgetter
from typing import Protocol

from unity_dsl.syntax.ast import (
    Apply,
    DeviceName,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    Number,
    OperatorDecl,
    ParallelDecl,
    Read,
    Reduce,
    ReductionKind,
    Select,
    Size,
    Statement,
    Uniform,
)

from .functions import ARITHMETIC, PRIMITIVES
from .shapes import Declaration, Frame, NoMeaning, axis_of
from .values import UNKNOWN, Value, greatest, least, literal, multiplied, total

Place = tuple[int, ...]
Indices = dict[str, int]
Compiled = Callable[[Indices], Value]
Element = Callable[[Place], Value]


class Untried(Exception):
    """Raised for an unsupported construct or an exhausted budget. The first argument says which."""


class Declarations(Protocol):
    """Syntax trees by name."""

    @property
    def operators(self) -> Mapping[str, OperatorDecl]: ...

    @property
    def parallels(self) -> Mapping[str, ParallelDecl]: ...

    @property
    def functions(self) -> Mapping[str, FunctionDecl]: ...


@dataclass
class Budget:
    """The number of elements and terms of reductions that may still be computed. `take` raises Untried beyond it."""

    left: int

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Untried("too many steps")


_REDUCE: Mapping[ReductionKind, Callable[[Iterable[Value]], Value]] = {
    ReductionKind.SUM: total,
    ReductionKind.PROD: multiplied,
    ReductionKind.MAX: greatest,
    ReductionKind.MIN: least,
}


@dataclass(frozen=True)
class _Tensor:
    """A tensor as reads see it: its declared dimensions, and its axes and their sizes with groups expanded."""

    slots: tuple[tuple[str, bool], ...]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]


class Operation:
    """A call at its shapes. Each of `inputs` maps a place, one position for each dimension, to an element.

    `uniform` maps a row-major position to its random number.
    """

    def __init__(
        self,
        decl: Declaration,
        statements: tuple[Statement, ...],
        frame: Frame,
        inputs: Sequence[Element],
        library: Declarations,
        budget: Budget,
        uniform: Callable[[int], Value],
    ) -> None:
        self.decl = decl
        self.frame = frame
        self.library = library
        self.budget = budget
        self.uniform = uniform
        self.inputs = {tensor.name: element for tensor, element in zip(decl.inputs, inputs, strict=True)}
        self.layouts = {tensor.name: layout for tensor, layout in zip(decl.inputs, frame.inputs, strict=True)}
        self.tensors = {
            tensor.name: _Tensor(
                tuple((axis_of(dim.name, dim.device), dim.rest) for dim in tensor.dims),
                layout.axes,
                tuple(frame.sizes[axis] for axis in layout.axes),
            )
            for tensor, layout in zip(decl.inputs, frame.inputs, strict=True)
        }
        self.statements = {statement.target: statement for statement in statements}
        self.compiled: dict[str, Compiled] = {}
        self.found: dict[str, dict[Place, Value]] = {name: {} for name in self.statements}
        for statement in statements:
            self.tensors[statement.target] = self._target(statement)

    def output(self, number: int, place: Place) -> Value:
        """The element of a result at a position in each dimension."""
        layout = self.frame.outputs[number]
        axes = [0] * len(layout.axes)
        for dim, position in zip(layout.dims, place, strict=True):
            for axis in reversed(dim):
                position, axes[axis] = divmod(position, self.frame.sizes[layout.axes[axis]])
        return self.element(self.decl.outputs[number].name, tuple(axes))

    def element(self, name: str, axes: Place) -> Value:
        """The element that a statement computes at these positions on its axes. Results are cached."""
        known = self.found[name]
        if axes not in known:
            self.budget.take()
            if name not in self.compiled:
                self.compiled[name] = self.compile(self.statements[name].value)
            known[axes] = self.compiled[name](dict(zip(self.tensors[name].axes, axes, strict=True)))
        return known[axes]

    def _target(self, statement: Statement) -> _Tensor:
        """The axes on the left side of a statement. The axes of an output take their sizes from its dimensions."""
        slots = tuple((_index_name(index), getattr(index, "rest", False)) for index in statement.index)
        axes = tuple(axis for name, rest in slots for axis in (self.frame.rests[name] if rest else (name,)))
        for tensor, layout in zip(self.decl.outputs, self.frame.outputs, strict=True):
            if tensor.name == statement.target:
                return _Tensor(slots, axes, tuple(self.frame.sizes[axis] for axis in layout.axes))
        return _Tensor(slots, axes, tuple(self.size_of(axis, statement.value) for axis in axes))

    def size_of(self, index: str, value: Expr) -> int:
        """The range of an index: the size of its dimension, or of a dimension that is read at exactly this index.

        Raises NoMeaning if neither exists.
        """
        if index in self.frame.sizes:
            return self.frame.sizes[index]
        for read in _reads(value):
            tensor = self.tensors[read.tensor]
            place = 0
            for part, (name, rest) in zip(read.index, tensor.slots, strict=True):
                if isinstance(part, Name) and part.name == index:
                    return tensor.sizes[place]
                place += len(self.frame.rests[name]) if rest else 1
        raise NoMeaning(f"{self.decl.name}: nothing says how far {index} runs")

    # ------------------------------------------------------------------------------------------ expressions

    def compile(self, expr: Expr) -> Compiled:
        match expr:
            case Number(number):
                constant = literal(number)
                return lambda _: constant
            case Size(name, rest):
                size = self._size(name, rest)
                return lambda _: size
            case Name(name) if name in self.frame.attributes:
                value = self.frame.attributes[name]
                return lambda _: value
            case Name() | DeviceName():
                return itemgetter(_index_name(expr))
            case Read():
                return self._read(expr)
            case Reduce():
                return self._reduction(expr)
            case Select():
                condition, then, otherwise = map(self.compile, (expr.condition, expr.then, expr.otherwise))
                return lambda at: _chosen(condition(at), then, otherwise, at)
            case Uniform(index):
                return self._uniform(index)
            case Apply(function, arguments):
                computed = self.function(function)
                parts = [self.compile(argument) for argument in arguments]
                if len(parts) == 2:
                    first, second = parts
                    return lambda at: computed(first(at), second(at))
                return lambda at: computed(*[part(at) for part in parts])
        raise TypeError(type(expr).__name__)

    def _size(self, name: str, rest: bool) -> int:
        if not rest:
            return self.frame.sizes[name]
        found = 1
        for axis in self.frame.rests[name]:
            found *= self.frame.sizes[axis]
        return found

    def _read(self, read: Read) -> Compiled:
        tensor = self.tensors[read.tensor]
        parts: list[Callable[[Indices], int]] = []
        for index, (name, rest) in zip(read.index, tensor.slots, strict=True):
            parts += [itemgetter(axis) for axis in self.frame.rests[name]] if rest else [self._index(index)]
        fill = None if read.fill is None else self.compile(read.fill)
        sizes, name = tensor.sizes, read.tensor
        element = self._input(name) if name in self.inputs else (lambda place: self.element(name, place))

        def outside(place: Place, at: Indices) -> Value:
            if fill is None:
                raise NoMeaning(f"{self.decl.name}: {name} is read outside, at {place}")
            return fill(at)

        if len(parts) == 1:
            (only,), (length,) = parts, sizes

            def vector(at: Indices) -> Value:
                position = only(at)
                return element((position,)) if 0 <= position < length else outside((position,), at)

            return vector

        def value(at: Indices) -> Value:
            place = tuple([part(at) for part in parts])
            for position, size in zip(place, sizes, strict=True):
                if not 0 <= position < size:
                    return outside(place, at)
            return element(place)

        return value

    def _input(self, name: str) -> Element:
        element, layout = self.inputs[name], self.layouts[name]
        sizes = [[self.frame.sizes[layout.axes[axis]] for axis in dim] for dim in layout.dims]
        if layout.dims == tuple((axis,) for axis in range(len(layout.axes))):
            return element

        def value(axes: Place) -> Value:
            place = []
            for dim, own in zip(layout.dims, sizes, strict=True):
                position = 0
                for axis, size in zip(dim, own, strict=True):
                    position = position * size + axes[axis]
                place.append(position)
            return element(tuple(place))

        return value

    def _index(self, expr: Expr) -> Callable[[Indices], int]:
        if isinstance(expr, Name | DeviceName) and expr.name not in self.frame.attributes:
            return itemgetter(_index_name(expr))
        value = self.compile(expr)

        def index(at: Indices) -> int:
            found = value(at)
            if not isinstance(found, int | Fraction) or found != int(found):
                raise NoMeaning(f"{self.decl.name}: an index of {found}")
            return int(found)

        return index

    def _reduction(self, reduction: Reduce) -> Compiled:
        names: list[str] = []
        sizes: list[int] = []
        for axis in reduction.axes:
            own = self.frame.rests[axis.name] if getattr(axis, "rest", False) else (_index_name(axis),)
            names += own
            sizes += [self.size_of(name, reduction.body) for name in own]
        body, reduce = self.compile(reduction.body), _REDUCE[reduction.kind]
        ranges = [range(size) for size in sizes]

        def values(at: Indices) -> Iterator[Value]:
            inner = dict(at)
            for places in product(*ranges):
                self.budget.take()
                inner.update(zip(names, places, strict=True))
                yield body(inner)

        return lambda at: reduce(values(at))

    def _uniform(self, index: tuple[Expr, ...]) -> Compiled:
        """The random number of the row-major position that these indices give."""
        axes = [
            axis
            for part in index
            if isinstance(part, Name)
            for axis in (self.frame.rests[part.name] if part.rest else (part.name,))
        ]

        def drawn(at: Indices) -> Value:
            position = 0
            for axis in axes:
                position = position * self.frame.sizes[axis] + at[axis]
            return self.uniform(position)

        return drawn

    # ------------------------------------------------------------------------------------------ functions

    def function(self, name: str) -> Callable[..., Value]:
        return ARITHMETIC.get(name) or element_function(self.library.functions[name], self.library)


def element_function(decl: FunctionDecl, library: Declarations) -> Callable[..., Value]:
    """Evaluates an element function from its definition, or a primitive from its `numpy:` line."""
    names = decl.parameters
    if decl.definition is not None:
        definition = decl.definition
        return lambda *values: _defined(definition, dict(zip(names, values, strict=True)), library)
    call = decl.numpy
    assert call is not None
    if call.arguments == tuple(Name(name) for name in names) and call.function in PRIMITIVES:
        return PRIMITIVES[call.function]
    return lambda *values: _native(call, dict(zip(names, values, strict=True)))


def _defined(expr: Expr, known: Mapping[str, Value], library: Declarations) -> Value:
    match expr:
        case Number(number):
            return literal(number)
        case Name(name):
            return known[name]
        case Apply(function, arguments):
            computed = ARITHMETIC.get(function) or element_function(library.functions[function], library)
            return computed(*(_defined(argument, known, library) for argument in arguments))
        case Select(condition, then, otherwise):
            truth = _defined(condition, known, library)
            if truth is None or truth is UNKNOWN:
                return truth
            return _defined(then if truth != 0 else otherwise, known, library)
    raise TypeError(type(expr).__name__)


def _native(argument: NativeArgument, known: Mapping[str, Value]) -> Value:
    match argument:
        case Number(number):
            return literal(number)
        case Name(name):
            return known[name]
        case NativeCall(function, arguments) if function in PRIMITIVES:
            return PRIMITIVES[function](*(_native(part, known) for part in arguments))
    raise Untried("a native call of no known function")


def _chosen(truth: Value, then: Compiled, otherwise: Compiled, at: Indices) -> Value:
    if truth is None or truth is UNKNOWN:
        return truth
    return then(at) if truth != 0 else otherwise(at)


def _index_name(index: Expr) -> str:
    assert isinstance(index, Name | DeviceName)
    return axis_of(index.name, isinstance(index, DeviceName))


def _reads(expr: Expr) -> Iterator[Read]:
    """Every read in the expression, in source order, the ones inside indices and fills excluded."""
    match expr:
        case Read():
            yield expr
        case Apply(_, arguments):
            for argument in arguments:
                yield from _reads(argument)
        case Reduce(body=body):
            yield from _reads(body)
        case Select():
            for part in (expr.condition, expr.then, expr.otherwise):
                yield from _reads(part)

"""Instances: an operator at concrete shapes, with its equations, axis sizes and operand dimensions.

An instance is what every later stage works on. Its statements speak of named axes; `sizes` gives their lengths, so the
same statements serve the prover, for which sizes are symbols.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ...syntax.ast import Expr, Name, OperatorDecl, ReductionKind, Ties
from ...syntax.rational import Rational
from ...syntax.span import Span
from .term import dim_axes, reads

Dim = tuple[str, ...]
"""The axes of a tensor dimension, major first. One axis, save for merged dimensions; none for a dimension of size 1."""


@dataclass(frozen=True)
class Operand:
    """An input, output or intermediate of an instance. `integer_range` is the bound of an integer tensor's values."""

    name: str
    dims: tuple[Dim, ...]
    integer_range: int | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for dim in self.dims for axis in dim)


@dataclass(frozen=True)
class Equation:
    """`target[axes] = reduce(kind, over) value`: one statement after cutting, with at most one reduction, outermost.

    `ties` say which of several equal elements has the gradient of a max or min, `over` being their order, major first.
    `value` holds no Reduce. Its reads name operands of the instance or targets of earlier equations. A read's index has
    one expression per dimension of what it reads; a merged dimension is read as `h * |k| + k` when the axes are those
    of the dimension, major first (`dim_index` builds it, `dim_axes` recognises it).
    """

    target: Operand
    value: Expr
    kind: ReductionKind | None = None
    over: tuple[str, ...] = ()
    ties: Ties = Ties.SHARE
    span: Span | None = None

    @property
    def space(self) -> tuple[str, ...]:
        """The axes that the equation iterates over: those of its result, then the reduced ones."""
        return self.target.axes + self.over


@dataclass(frozen=True)
class Instance:
    """An operator at a shape.

    `equations` end with those of the outputs. `evaluation` replaces them outside training where not empty.
    `native` says whether the declaration's torch call may stand for the equations (a pattern call binds axes that the
    native call does not know, so it may not). An extern operator has no equations; `declared` are the axes along which
    it may be divided, each with its name in the declaration.
    """

    operator: OperatorDecl
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    sizes: Mapping[str, int]
    attributes: Mapping[str, Rational]
    equations: tuple[Equation, ...]
    evaluation: tuple[Equation, ...] = ()
    native: bool = True
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def extern(self) -> bool:
        """Whether it is its native call: nothing of it can be proved."""
        return self.operator.extern

    @property
    def whole(self) -> bool:
        """Whether it returns integers: it has no gradient."""
        return all(output.integer_range is not None for output in self.outputs)

    @property
    def name(self) -> str:
        return self.operator.name

    @cached_property
    def identity(self) -> Key:
        """Equal for instances that are the same but for the place in the model."""
        return Key(self, (self.kind, self.inputs, self.outputs, tuple(self.sizes.items())))

    @cached_property
    def kind(self) -> Kind:
        """What it is whatever its sizes."""
        return Kind(self)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis the equations iterate over, in order of first appearance."""
        return tuple(dict.fromkeys(axis for equation in self.equations for axis in equation.space))

    def shape(self, operand: Operand) -> tuple[int, ...]:
        return tuple(prod(self.sizes[axis] for axis in dim) for dim in operand.dims)

    def operand(self, name: str) -> Operand:
        """The input, output or intermediate of that name. Raises KeyError."""
        for operand in (*self.inputs, *self.outputs, *(e.target for e in (*self.equations, *self.evaluation))):
            if operand.name == name:
                return operand
        raise KeyError(name)


class Key:
    """What an instance is looked up by: hashed once."""

    __slots__ = ("_hash", "instance", "parts")

    def __init__(self, instance: Instance, parts: tuple[Hashable, ...]) -> None:
        self.instance = instance
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts)


class Kind(Key):
    """An instance as far as its sizes do not matter: equal for all that differ in these alone.

    Sizes say which axes an index runs over one by one: of `p * 2 + r` that depends on how many r there are. What
    `dim_axes` finds is therefore part of a kind, and whatever else looks at sizes is no property of kinds.
    """

    __slots__ = ()

    def __init__(self, instance: Instance) -> None:
        super().__init__(
            instance,
            (
                instance.operator,
                tuple(map(_without_range, instance.inputs)),
                tuple(map(_without_range, instance.outputs)),
                tuple(instance.sizes),
                tuple((name, type(value), value) for name, value in instance.attributes.items()),
                instance.equations,
                instance.evaluation,
                instance.native,
                tuple(instance.declared.items()),
                tuple(_computed(instance)),
            ),
        )


def _without_range(operand: Operand) -> tuple[str, tuple[Dim, ...], bool]:
    return operand.name, operand.dims, operand.integer_range is None


def _computed(instance: Instance) -> Iterator[Dim | None]:
    """What axes the indices run over that are no bare axes."""
    for equation in (*instance.equations, *instance.evaluation):
        for read in reads(equation.value):
            yield from (dim_axes(index, instance.sizes) for index in read.index if not isinstance(index, Name))

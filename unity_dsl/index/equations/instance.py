"""Instances: an operator at concrete shapes, with its equations, axis sizes and operand dimensions.

All later stages work on instances. Equations refer to axes by name and `sizes` gives lengths, so the prover uses the
same equations with symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ...syntax.ast import Expr, Name, OperatorDecl, ReductionKind, Ties, Uniform
from ...syntax.rational import Rational
from ...syntax.span import Span
from .term import dim_axes, reads, walk

Dim = tuple[str, ...]
"""The axes of a tensor dimension, major first. Merged dimensions have several; a dimension of size 1 may have none."""


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
    """`target[axes] = reduce(kind, over) value`: a statement after splitting, with at most one reduction, outermost.

    `ties` says which of several equal elements gets the gradient of a max or min; `over` is their order, major first.
    `value` contains no Reduce; its reads name operands of the instance or targets of earlier equations, with one index
    expression per dimension. A merged dimension read at its own axes has the index `h * |k| + k`, major first
    (`dim_index` builds it, `dim_axes` recognises it).
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
    """An operator at given shapes.

    `equations` end with those of the outputs; `evaluation`, if not empty, replaces them outside training. `native` says
    whether the torch call may replace the equations: not for a call with a pattern, whose axes it does not know. An
    extern operator has no equations; `declared` are the axes along which it may be divided, with their names in the
    declaration. `unpadded` is the operator without padding, if it excludes padding from its reductions or draws
    numbers.
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
    unpadded: Instance | None = None

    @property
    def extern(self) -> bool:
        """Whether its native call alone defines it, so that nothing about it can be proved."""
        return self.operator.extern

    @property
    def whole(self) -> bool:
        """Whether its results are integers, which have no gradient."""
        return all(output.integer_range is not None for output in self.outputs)

    @cached_property
    def draws(self) -> bool:
        """Whether random numbers are drawn."""
        return any(isinstance(term, Uniform) for equation in self.equations for term in walk(equation.value))

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def own_sizes(self) -> Mapping[str, int]:
        """The sizes of its axes without padding, as far as `unpadded` says."""
        return self.sizes if self.unpadded is None else self.unpadded.sizes

    @cached_property
    def identity(self) -> Key:
        """A key that is equal for instances that differ only in their place in the model."""
        own = () if self.unpadded is None else (tuple(self.own_sizes.items()),)
        return Key(self, (self.kind, self.inputs, self.outputs, tuple(self.sizes.items()), *own))

    @cached_property
    def kind(self) -> Kind:
        """A key that also ignores sizes."""
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
    """The key of an instance, with its hash cached."""

    __slots__ = ("_hash", "instance", "parts")

    def __init__(self, instance: Instance, parts: tuple[Hashable, ...]) -> None:
        self.instance = instance
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Key) or self._hash != other._hash or self.parts != other.parts:
            return False
        other.parts = self.parts  # share equal parts: later comparisons find identical objects
        return True


class Kind(Key):
    """An instance up to sizes: equal for instances that differ only in sizes.

    Whether an index such as `p * 2 + r` is a merged one depends on the size of r, so the results of `dim_axes` are part
    of a kind; anything else that depends on sizes is not a property of kinds.
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
    """The result of `dim_axes` for each index that is not a bare axis."""
    for equation in (*instance.equations, *instance.evaluation):
        for read in reads(equation.value):
            yield from (dim_axes(index, instance.sizes) for index in read.index if not isinstance(index, Name))

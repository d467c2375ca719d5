"""A device's part of an operator: slices of axes, windows of operands, and the collectives inside the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...syntax.ast import Apply, DeviceName, Expr, Name, Number, ReductionKind, Size
from .torch_term import Term, integer, number


@dataclass(frozen=True)
class InnerReduce:
    """The result of an equation is reduced immediately over mesh axes: Partial to Invariant."""

    equation: int
    axes: tuple[int, ...]
    kind: ReductionKind


@dataclass(frozen=True)
class InnerReplicate:
    """An equation that runs over a divided axis reads an Invariant tensor: Invariant to Replicate.

    Free in the forward pass, an all-reduce in the backward pass. Absent for a tensor that carries no gradient.
    """

    equation: int
    operand: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class InnerMoments:
    """Mean and variance of a standardisation are computed over all parts on mesh axes. `equation` is the mean.

    Both are all-reduced in the forward pass, and two sums in the backward pass.
    """

    equation: int
    axes: tuple[int, ...]


InnerCollective = InnerReduce | InnerReplicate | InnerMoments


@dataclass(frozen=True)
class Cut:
    """`extent` positions divided over `degree` devices; `device` is the number of this device.

    `index` is the global position as an expression of the local one (named `local`), the device's number and `sizes`.
    `block` says that the slices are consecutive blocks.
    """

    degree: int
    extent: int
    device: Term
    index: Expr
    local: str
    sizes: Mapping[str, int]
    block: bool = True


class Window(Protocol):
    """A dimension of an operand held as `length` positions.

    The first one is `start` after the first of the slice itself.
    """

    @property
    def operand(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def axis(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...


@dataclass(frozen=True)
class Division:
    """The part of an operator on one device. `cuts` has the cuts of each divided axis, major first."""

    local_sizes: Mapping[str, int]
    cuts: Mapping[str, tuple[Cut, ...]] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    inner: Sequence[InnerCollective] = ()

    def start(self, axis: str, stride: int) -> list[Term] | None:
        """Terms whose sum is the start of an axis's local slice, times `stride`; None if the slice is not one block."""
        cuts = self.cuts.get(axis, ())
        if not all(cut.block for cut in cuts):
            return None
        return [integer("*", [number(cut.extent // cut.degree * stride), cut.device]) for cut in cuts]


def global_positions(local: Term, cuts: Sequence[Cut]) -> Term:
    """The global positions of local ones along a divided axis."""
    for cut in reversed(cuts):
        local = _position(cut.index, cut, local)
    return local


def _position(expr: Expr, cut: Cut, local: Term) -> Term:
    match expr:
        case Number(value=value):
            return number(value)
        case DeviceName():
            return cut.device
        case Name(name=name) if name == cut.local:
            return local
        case Name(name=name) | Size(name=name):
            return number(cut.sizes[name])
        case Apply(function=function, arguments=arguments):
            return integer(function, [_position(argument, cut, local) for argument in arguments])
    raise TypeError(f"{type(expr).__name__} in the index of a parallel op")

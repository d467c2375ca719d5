"""What a device has of an operator's axes and operands: slices, windows, and where terms and copies of tensors meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...syntax.ast import Apply, DeviceName, Expr, Name, Number, ReductionKind, Size
from .torch_term import Term, integer, number


@dataclass(frozen=True)
class InnerReduce:
    """The result of an equation is reduced at once over mesh axes: Partial to Invariant."""

    equation: int
    axes: tuple[int, ...]
    kind: ReductionKind


@dataclass(frozen=True)
class InnerReplicate:
    """An Invariant tensor is read by an equation that runs over a divided axis: Invariant to Replicate.

    Free forwards, an all-reduce backwards; absent for a tensor that carries no gradient.
    """

    equation: int
    operand: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class InnerMoments:
    """Mean and variance of a standardisation, whose mean is this equation, are taken of all parts over mesh axes.

    All-reduces: of both forwards, and of two sums backwards.
    """

    equation: int
    axes: tuple[int, ...]


InnerCollective = InnerReduce | InnerReplicate | InnerMoments


@dataclass(frozen=True)
class Cut:
    """`extent` positions cut over `degree` devices, of which this is number `device`.

    `index` is the whole's position of a local one, in the name `local`, the device's and `sizes`. `block` says that the
    slices are consecutive blocks.
    """

    degree: int
    extent: int
    device: Term
    index: Expr
    local: str
    sizes: Mapping[str, int]
    block: bool = True


class Window(Protocol):
    """A dimension of an operand held as `length` positions, the first of them `start` after the slice's own first."""

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
    """The part of an operator on one device. `cuts` are those of each divided axis, major first."""

    local_sizes: Mapping[str, int]
    cuts: Mapping[str, tuple[Cut, ...]] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    inner: Sequence[InnerCollective] = ()

    def start(self, axis: str, stride: int) -> list[Term] | None:
        """What adds up to where an axis's local slice begins, times `stride`; None where the slice is not one block."""
        cuts = self.cuts.get(axis, ())
        if not all(cut.block for cut in cuts):
            return None
        return [integer("*", [number(cut.extent // cut.degree * stride), cut.device]) for cut in cuts]


def global_positions(local: Term, cuts: Sequence[Cut]) -> Term:
    """The whole axis's positions of the local ones."""
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

"""Torch text of the positions that a device has of an axis that a declared parallel op cuts."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.declared_slices import Cut as CutTerm
from ..graph.declared_slices import cut_at
from ..index.library import Library
from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, Size
from .torch_expression import Piece, Sort, integer, number

Cut = tuple[str, int, int, str]
"""Declared op, number of devices, positions that are cut, text of this device's index; a list of them major first."""


def global_positions(local: str, cuts: Sequence[Cut], library: Library) -> str:
    """The whole axis's positions of the local ones."""
    piece = Piece(local, (), Sort.INT)
    for by, degree, extent, index in reversed(cuts):
        cut = cut_at(library.parallels[by], degree, extent)
        if cut is None:
            raise ValueError(f"{by} cannot cut {extent} positions over {degree} devices")
        piece = _text(cut.index, cut, piece, Piece(index, (), Sort.INT))
    return piece.code


def _text(expr: Expr, cut: CutTerm, local: Piece, device: Piece) -> Piece:
    match expr:
        case Number(value=value):
            return number(value)
        case DeviceName():
            return device
        case Name(name=name) if name == cut.local:
            return local
        case Name(name=name) | Size(name=name):
            return number(cut.sizes[name])
        case Apply(function=function, arguments=arguments):
            return integer(function, [_text(argument, cut, local, device) for argument in arguments])
    raise TypeError(f"{type(expr).__name__} in the index of a parallel op")

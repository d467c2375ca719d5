"""Torch text of the positions that a device has of an axis that a declared parallel op cuts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..graph.declared_slices import cut_at, cut_index
from ..index.library import Library
from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, ParallelDecl, Size
from .program_names import Names
from .torch_expression import Piece, Sort, integer, number

Cut = tuple[str, int, int, str]
"""Declared op, number of devices, positions that are cut, text of this device's index; a list of them major first."""


@dataclass(frozen=True)
class PositionsFunction:
    """A declared cut as a Python function of the device's index, the local positions and the sizes that it names.

    `sizes` are the declaration's names of these with those of the arguments, `words` what the declaration says of it.
    """

    name: str
    sizes: tuple[tuple[str, str], ...]
    code: str
    words: str


def global_positions(local: str, cuts: Sequence[Cut], library: Library) -> str:
    """The whole axis's positions of the local ones."""
    piece = Piece(local, (), Sort.INT)
    for by, degree, extent, index in reversed(cuts):
        cut = cut_at(library.parallels[by], degree, extent)
        if cut is None:
            raise ValueError(f"{by} cannot cut {extent} positions over {degree} devices")
        sizes = {name: number(size) for name, size in cut.sizes.items()}
        piece = _text(cut.index, cut.local, piece, Piece(index, (), Sort.INT), sizes)
    return piece.code


def positions_function(name: str, declaration: ParallelDecl) -> PositionsFunction:
    """The positions for all sizes."""
    index, local = cut_index(declaration)
    names = Names(("device", "local"))
    sizes = {size: names.fresh(size) for size in dict.fromkeys(_sizes(index, local))}
    pieces = {size: Piece(argument, (), Sort.INT) for size, argument in sizes.items()}
    code = _text(index, local, Piece("local", (), Sort.INT), Piece("device", (), Sort.INT), pieces).code
    return PositionsFunction(name, tuple(sizes.items()), code, declaration.doc)


def _sizes(expr: Expr, local: str) -> Iterator[str]:
    match expr:
        case Size(name=name):
            yield name
        case Name(name=name) if name != local:
            yield name
        case Apply(arguments=arguments):
            for argument in arguments:
                yield from _sizes(argument, local)


def _text(expr: Expr, name_of_local: str, local: Piece, device: Piece, sizes: Mapping[str, Piece]) -> Piece:
    match expr:
        case Number(value=value):
            return number(value)
        case DeviceName():
            return device
        case Name(name=name) if name == name_of_local:
            return local
        case Name(name=name) | Size(name=name):
            return sizes[name]
        case Apply(function=function, arguments=arguments):
            return integer(function, [_text(part, name_of_local, local, device, sizes) for part in arguments])
    raise TypeError(f"{type(expr).__name__} in the index of a parallel op")

"""Torch text of which positions a device holds of an axis that is cut over the mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..index.library import Library
from .piece import Binding, Piece, Sort

Cut = tuple[str, int, int, str]
"""Declared op, number of devices, positions that are cut, text of this device's index; a list of them major first."""


def global_positions(local: str, cuts: Sequence[Cut], library: Library) -> Piece:
    """The whole axis's positions of the local ones `local`."""
    text = local
    for by, degree, extent, index in reversed(cuts):
        if by != "partition":
            raise NotImplementedError(by)
        text = f"{text} + {extent // degree} * {index}"
    return Piece(text, (), Sort.INT, Binding.SUM)


def local_positions(wanted: Piece, cuts: Sequence[Cut], extent: int, keep: Callable[[str, str], str]) -> str:
    """Where positions of the whole axis lie in the local slice: outside it, a number that is outside it."""
    text = wanted.within(Binding.SUM)
    for by, degree, extent, index in cuts:
        if by != "partition":
            raise NotImplementedError(by)
        text = f"{text} - {extent // degree} * {index}"
    return text

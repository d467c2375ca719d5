"""Operand shapes of a call, with integer ranges, and the axes that a view names."""

from __future__ import annotations

from dataclasses import dataclass

from ...syntax.span import Span

Factors = tuple[tuple[str, int], ...]
"""The axes of one dimension with their sizes, major first; none for a dimension of size 1."""


@dataclass(frozen=True)
class Shape:
    """The shape of an argument. `origin` is its place in the program; `integer_range` bounds an integer's values.

    `text` replaces the numbers in diagnostics.
    """

    dims: tuple[int, ...]
    integer_range: int | None = None
    origin: Span | None = None
    text: str = ""

    def __str__(self) -> str:
        return self.text or shape_text(self.dims)


@dataclass(frozen=True)
class Binding:
    """`x[b, s, (h k)] -> [b, h, s, k]`: the axes of the operand's dimensions and of the result's."""

    source: tuple[Factors, ...]
    target: tuple[Factors, ...]


def shape_text(dims: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"

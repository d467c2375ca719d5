"""Joins neighbouring mesh axes: those of one link level until the search can take the mesh, and for coarser meshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

from ...graph.layout import Mesh
from ...machine.mesh import MOST_AXES, Blocks, joined


def joined_mesh(mesh: Mesh) -> tuple[Mesh, Blocks]:
    """A mesh of at most `MOST_AXES` axes, and which axes of the first each of its axes is made of.

    Joins the neighbours of one level whose joint degree is the smallest, of different levels only when no others are
    left; innermost first.
    """
    blocks: list[tuple[int, ...]] = [(axis,) for axis in range(len(mesh.axes))]
    while len(blocks) > MOST_AXES:
        at = min(range(len(blocks) - 1), key=lambda i: (_levels(mesh, blocks[i] + blocks[i + 1]), -i))
        blocks[at : at + 2] = [blocks[at] + blocks[at + 1]]
    return joined(mesh, tuple(blocks)), tuple(blocks)


def _levels(mesh: Mesh, block: tuple[int, ...]) -> tuple[int, int]:
    return len({mesh.axes[axis].level for axis in block}), mesh.degree(block)


def coarsenings(meshes: Iterable[Mesh], most: int) -> Iterator[Mesh]:
    """The meshes of so many axes at most that some meshes split, each once, those with few axes first."""
    found = dict.fromkeys(
        joined(mesh, blocks)
        for mesh in meshes
        for count in range(1, most + 1)
        for blocks in _cuts(len(mesh.axes), count)
    )
    yield from sorted(found, key=lambda mesh: len(mesh.axes))


def _cuts(axes: int, count: int) -> Iterator[Blocks]:
    """Every way to join neighbouring axes to so many blocks."""
    for inner in combinations(range(1, axes), count - 1):
        ends = (0, *inner, axes)
        yield tuple(tuple(range(*block)) for block in pairwise(ends))

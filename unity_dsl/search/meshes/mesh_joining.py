"""Joins adjacent mesh axes: those of one link level until a mesh has few enough axes, and all kinds for
coarser meshes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

from ...graph.layout import Mesh
from ...machine.mesh import MOST_AXES, Blocks, joined


def joined_mesh(mesh: Mesh) -> tuple[Mesh, Blocks]:
    """A mesh of at most `MOST_AXES` axes, and the axes of the given mesh that each of its axes joins.

    Joins adjacent axes of one level with the smallest joint degree, innermost first. Axes of different levels are
    joined only when no others are left.
    """
    blocks: list[tuple[int, ...]] = [(axis,) for axis in range(len(mesh.axes))]
    while len(blocks) > MOST_AXES:
        at = min(range(len(blocks) - 1), key=lambda i: (_levels(mesh, blocks[i] + blocks[i + 1]), -i))
        blocks[at : at + 2] = [blocks[at] + blocks[at + 1]]
    return joined(mesh, tuple(blocks)), tuple(blocks)


def _levels(mesh: Mesh, block: tuple[int, ...]) -> tuple[int, int]:
    return len({mesh.axes[axis].level for axis in block}), mesh.degree(block)


def coarsenings(meshes: Iterable[Mesh], most: int) -> Iterator[Mesh]:
    """The meshes of at most `most` axes that some meshes split, each once, those with few axes first."""
    found = dict.fromkeys(
        joined(mesh, blocks)
        for mesh in meshes
        for count in range(1, most + 1)
        for blocks in _cuts(len(mesh.axes), count)
    )
    yield from sorted(found, key=lambda mesh: len(mesh.axes))


def _cuts(axes: int, count: int) -> Iterator[Blocks]:
    """Every way to join adjacent axes to `count` blocks."""
    for inner in combinations(range(1, axes), count - 1):
        ends = (0, *inner, axes)
        yield tuple(tuple(range(*block)) for block in pairwise(ends))

"""Joins neighbouring mesh axes of one link level until the search can take the mesh."""

from __future__ import annotations

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

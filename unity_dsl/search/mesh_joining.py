"""Joins neighbouring mesh axes of one link level until the search can take the mesh."""

from __future__ import annotations

from ..graph.layout import Mesh, MeshAxis

LARGEST_SPACE = 3
"""Mesh axes that are searched in full: a tensor of rank 4 then has 7^3 layouts, and all pairs of them a price."""


def joined_mesh(mesh: Mesh) -> tuple[Mesh, tuple[tuple[int, ...], ...]]:
    """A mesh of at most `LARGEST_SPACE` axes, and which axes of the first each of its axes is made of.

    Joins the neighbours of one level whose joint degree is the smallest, of different levels only when no others are
    left; innermost first.
    """
    blocks: list[tuple[int, ...]] = [(axis,) for axis in range(len(mesh.axes))]
    while len(blocks) > LARGEST_SPACE:
        at = min(range(len(blocks) - 1), key=lambda i: (_levels(mesh, blocks[i] + blocks[i + 1]), -i))
        blocks[at : at + 2] = [blocks[at] + blocks[at + 1]]
    axes = [
        MeshAxis(mesh.axes[i].name, mesh.degree(block), max(mesh.axes[axis].level for axis in block))
        for i, block in enumerate(blocks)
    ]
    return Mesh(tuple(axes)), tuple(blocks)


def _levels(mesh: Mesh, block: tuple[int, ...]) -> tuple[int, int]:
    return len({mesh.axes[axis].level for axis in block}), mesh.degree(block)

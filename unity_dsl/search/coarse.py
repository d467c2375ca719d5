"""Small parts of the space that hold good plans: mesh axes joined, so that they do the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..graph.layout import Layout, Mesh, Shard
from .network import Mask
from .options import all_invariant
from .part import Domains, Part
from .problem import Meaning, Problem

Blocks = tuple[tuple[int, ...], ...]
"""Mesh axes joined into blocks."""


def coarse_domains(problem: Problem, mesh: Mesh) -> Iterator[Domains]:
    """Domains in which the mesh axes of a block do the same, the smallest first; before them the undivided model."""
    yield _undivided(problem, problem.part, problem.meaning)
    for blocks in _joinings(len(mesh.axes)):
        yield _joined(problem, problem.part, problem.meaning, blocks)


def _joinings(count: int) -> list[Blocks]:
    """All axes in one block, then in two."""
    if count < 2:
        return []
    axes = tuple(range(count))
    return [(axes,)] + [(axes[:cut], axes[cut:]) for cut in range(1, count) if count > 2]


def _joined(problem: Problem, part: Part, meaning: Meaning, blocks: Blocks) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for variable, options in meaning.nodes.values():
        masks[variable] = np.array([_same(found.configuration, blocks) for found in options.typed])
    for value, variable, layouts in meaning.kept.values():
        space = problem.spaces.of(value)
        masks[variable] = np.array([_same(_kinds(space.layouts[i]), blocks) for i in layouts])
    bodies = [
        _joined(problem, repeat.body, body, blocks) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)
    ]
    return Domains(masks, bodies)


def _undivided(problem: Problem, part: Part, meaning: Meaning) -> Domains:
    """Everything Invariant that may be: there is a plan, however large the graph."""
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for variable, options in meaning.nodes.values():
        masks[variable] = _preferred([all_invariant(found) for found in options.typed])
    for value, variable, layouts in meaning.kept.values():
        masks[variable] = _preferred(layouts == problem.spaces.of(value).invariant)
    bodies = [_undivided(problem, repeat.body, body) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)]
    return Domains(masks, bodies)


def _preferred(mask: Sequence[bool] | Mask) -> Mask:
    """Those that are wanted, or all if none is."""
    found = np.asarray(mask, dtype=bool)
    return found if found.any() else ~found


def _same(roles: Sequence[object], blocks: Blocks) -> bool:
    return all(roles[axis] == roles[block[0]] for block in blocks for axis in block)


def _kinds(layout: Layout) -> list[object]:
    """Kinds without the nesting, which differs between axes that cut the same dimension."""
    return [(kind.dim, kind.by) if isinstance(kind, Shard) else kind for kind in layout.kinds]

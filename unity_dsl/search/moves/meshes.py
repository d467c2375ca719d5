"""Edits of the mesh: its axes in another order, two joined, one split, a prime factor moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations

from ...graph.layout import Mesh
from ...machine.mesh import describe_mesh
from ...simulation.timeline import Timeline
from ..constants import DEARER, Effort
from ..point import Point
from ..solver import Solver
from .edit import Edit


def propose_meshes(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Neighbours of the mesh: at best nothing is exposed there."""
    for mesh in neighbours(point.plan.mesh, solver.meshes)[: effort.meshes]:
        solved = partial(solver.on_mesh, point, mesh, DEARER)
        yield Edit("mesh", describe_mesh(mesh), timeline.seconds - timeline.exposed(), solved)


def neighbours(mesh: Mesh, every: Sequence[Mesh]) -> list[Mesh]:
    """Meshes that one edit makes of a mesh: its axes in another order, two joined, one split, a factor moved."""
    degrees = mesh.degrees
    found = dict.fromkeys(sorted(set(permutations(degrees))))
    for axis, degree in enumerate(degrees):
        before, after = degrees[:axis], degrees[axis + 1 :]
        if after:
            found[(*before, degree * after[0], *after[1:])] = None
        for factor in (factor for factor in range(2, degree) if degree % factor == 0):
            found[(*before, factor, degree // factor, *after)] = None
    for axis, degree in enumerate(degrees):
        for factor in (factor for factor in (2, 3, 5, 7) if degree % factor == 0 and degree > factor):
            for other in range(len(degrees)):
                moved = list(degrees)
                moved[axis] //= factor
                moved[other] *= factor
                found[tuple(moved)] = None
    by_degrees = {one.degrees: one for one in every}
    return [by_degrees[one] for one in found if one in by_degrees and one != degrees]

"""Edits of the mesh: its axes in another order, two joined, one split, a prime factor moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations, zip_longest

from ...graph.layout import Mesh
from ...machine.mesh import describe_mesh
from ...simulation.timeline import Timeline
from ..constants import DEARER, Effort
from ..point import Point
from ..solver import Solver
from .edit import Edit


def propose_meshes(point: Point, timeline: Timeline, solver: Solver, effort: Effort) -> Iterator[Edit]:
    """Edits that go to a neighbour of the mesh: at best nothing is exposed there."""
    for mesh in neighbours(point.plan.mesh, solver.meshes)[: effort.meshes]:
        solved = partial(solver.on_mesh, point, mesh, DEARER)
        yield Edit("mesh", describe_mesh(mesh), timeline.seconds - timeline.exposed(), solved)


def neighbours(mesh: Mesh, every: Sequence[Mesh]) -> list[Mesh]:
    """Meshes that one edit makes of a mesh, the kinds alternating: a factor moved, the axes reordered, one axis split,
    two joined.
    """
    by_degrees = {one.degrees: one for one in every if one.degrees != mesh.degrees}
    kinds = (_moved, _permuted, _split, _joined)
    found = ([degrees for degrees in dict.fromkeys(kind(mesh.degrees)) if degrees in by_degrees] for kind in kinds)
    in_turn = (degrees for row in zip_longest(*found) for degrees in row if degrees is not None)
    return [by_degrees[degrees] for degrees in dict.fromkeys(in_turn)]


Degrees = tuple[int, ...]


def _moved(degrees: Degrees) -> Iterator[Degrees]:
    for axis, degree in enumerate(degrees):
        for factor in (factor for factor in (2, 3, 5, 7) if degree % factor == 0 and degree > factor):
            for other in range(len(degrees)):
                found = list(degrees)
                found[axis] //= factor
                found[other] *= factor
                yield tuple(found)


def _permuted(degrees: Degrees) -> Iterator[Degrees]:
    yield from sorted(set(permutations(degrees)))


def _split(degrees: Degrees) -> Iterator[Degrees]:
    for axis, degree in enumerate(degrees):
        for factor in (factor for factor in range(2, degree) if degree % factor == 0):
            yield (*degrees[:axis], factor, degree // factor, *degrees[axis + 1 :])


def _joined(degrees: Degrees) -> Iterator[Degrees]:
    for axis in range(len(degrees) - 1):
        yield (*degrees[:axis], degrees[axis] * degrees[axis + 1], *degrees[axis + 2 :])

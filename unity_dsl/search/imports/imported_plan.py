"""A plan that another system exported, as a strategy that chooses exactly that plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...graph.graph import Graph, Model, Node, Segment
from ...graph.layout import Mesh
from ...machine.machine import Machine
from ...machine.mesh import build_mesh
from ...syntax.diagnostic import InputError, fail
from ..choices.restriction import node_path
from ..recomputed_segments import NONE
from ..strategies.strategy import Algorithm, Meshes, Strategy
from .json_text import Json

MOST_AXES = 3
"""Axes of a mesh, at most: with more there are too many layouts."""


@dataclass(frozen=True)
class ImportedPlan:
    """The plan of a `system`: the mesh that it is for, and how it is chosen from a space. `recompute` gives, as text,
    the segments of a model that its backward pass recomputes.
    """

    system: str
    mesh: Meshes
    choose: Algorithm
    micro_batches: int = 1
    recompute: Callable[[Model], str] = lambda model: NONE

    @property
    def strategy(self) -> Strategy:
        return Strategy(f"a plan that {self.system} exported", algorithm=self.choose, meshes=self.mesh)


def unfit(part: Json, message: str, help: str = "") -> InputError:
    """The error E322 for a plan that is not one of this model on these devices."""
    return fail("E322", message, part.span, help=help)


def outside(part: Json, what: str, help: str = "") -> InputError:
    """The error E323 for a plan of a kind that the space does not have."""
    return fail("E323", f"{what}: not in the space of plans", part.span, help=help)


def mesh_of_cuts(machine: Machine, devices: int, cuts: Sequence[int], part: Json) -> tuple[Mesh, ...]:
    """The coarsest mesh whose leading axes have, for each of these sizes, that size together. Raises E302, and E322 if
    no such mesh has at most `MOST_AXES` axes.
    """
    sizes = sorted({1, devices, *cuts})
    degrees = [after // before for before, after in pairwise(sizes)]
    if any(after % before for before, after in pairwise(sizes)):
        told = ", ".join(map(str, sizes[1:-1]))
        raise unfit(part, f"no mesh of {devices} devices has groups that begin after {told} of them")
    if len(degrees) > MOST_AXES:
        raise unfit(part, f"the plan needs a mesh of {' x '.join(map(str, degrees))}, more than {MOST_AXES} axes")
    return (build_mesh(machine, devices, tuple(degrees) or None),)


@dataclass(frozen=True)
class Position:
    """An operator of a model whose repeats are written out: its path, and the iteration of each repeat around it."""

    path: str
    node: Node
    iterations: tuple[int, ...] = ()

    def __str__(self) -> str:
        around = f" in iteration {', '.join(map(str, self.iterations))}" if self.iterations else ""
        return f"`{self.path}` ({self.node.instance.name}){around}"


def positions(model: Model) -> Iterator[Position]:
    """All operators in the order of execution, those of repeats once for each iteration."""
    yield from _positions(model.graph, "", ())


def _positions(graph: Graph, prefix: str, around: tuple[int, ...]) -> Iterator[Position]:
    for step in graph.steps:
        if isinstance(step, Node):
            yield Position(node_path(prefix, step), step, around)
        else:
            for iteration in range(step.count):
                yield from _positions(step.body, f"{prefix}{step.name}.", (*around, iteration))


def layers_of(model: Model) -> list[Segment]:
    """The repeats of a model that are in no other one, without scans and conds."""
    segments = (step for step in model.graph.steps if isinstance(step, Segment))
    return [segment for segment in segments if not segment.sliced and segment.predicate is None]

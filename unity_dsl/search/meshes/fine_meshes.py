"""Fine meshes with the coarser ones that they split, and the sizes of the problems of meshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from ...graph.layout import Mesh
from ...machine.mesh import refined_blocks
from ...rules.process_map import processors
from ..folded_solver.problem_part import Part
from ..layout_problem.model_problem import Problem
from ..layout_problem.variable_meaning import Meaning
from .near_search import BestOnMesh, Near


@dataclass
class Fine:
    """A fine mesh with the plans of coarser meshes `above` it, which it splits, and the result `near` them, if it is
    promising.
    """

    mesh: Mesh
    above: Sequence[BestOnMesh]
    near: Near | None = None

    def promise(self) -> tuple[bool, float]:
        return self.near is None, least_of(self.above)[0] if self.near is None else self.near.cost

    @property
    def cost(self) -> float:
        """The cost of the best known plan on the mesh; infinite if there is none."""
        return inf if self.near is None else self.near.cost

    @property
    def least_above(self) -> float:
        """The cost of the cheapest plan of the coarser meshes."""
        return min((found.best.cost for found in self.above if found.best.plan is not None), default=inf)

    @property
    def effort(self) -> float:
        """An estimate of the number of configurations, from coarser meshes."""
        return effort_of([found.problem for found in self.above], len(self.mesh.axes))


def promising_first(meshes: Sequence[Mesh], coarse: Sequence[BestOnMesh]) -> list[Fine]:
    """The meshes with the coarser ones that they split. Meshes that split one with a cheap plan come first."""
    every = [Fine(mesh, [one for one in coarse if refined_blocks(mesh, one.mesh) is not None]) for mesh in meshes]
    return sorted(every, key=lambda one: least_of(one.above))


def least_of(coarse: Iterable[BestOnMesh]) -> tuple[float, bool]:
    """The lowest cost on coarse meshes, and whether no plan was found for it: then it is the cutoff that other meshes
    gave.
    """
    return min(((found.best.cost, found.best.plan is None) for found in coarse), default=(inf, True))


def effort_of(coarse: Sequence[Problem], axes: int) -> float:
    """An estimate of the number of configurations on a mesh with so many axes, from the problem of the finest coarser
    mesh.
    """
    if not coarse:
        return 0.0
    finest = max(coarse, key=lambda problem: len(problem.spaces.mesh.axes))
    power = axes / max(1, len(finest.spaces.mesh.axes))
    return float(sum(count**power for count in counts(finest.part)))


def configurations_of(meaning: Meaning) -> int:
    """How many configurations the operators of a problem have, including those left out in a neighbourhood
    of a plan.
    """
    own = (options.configurations.by_axis for _, options in meaning.nodes.values())
    return sum(prod(map(len, by_axis)) for by_axis in own) + sum(map(configurations_of, meaning.bodies))


def coarse_count(coarse: Sequence[BestOnMesh]) -> int:
    """How many configurations there are on the finest of coarser meshes."""
    return max((sum(counts(found.problem.part)) for found in coarse), default=0)


def counts(part: Part) -> Iterator[int]:
    """How many choices every variable has."""
    yield from map(len, part.costs)
    for repeat in part.repeats:
        yield from counts(repeat.body)


def processes_when(configurations: float, alone: int) -> int:
    """How many processes search meshes where coarser ones have so many configurations: one process up to `alone`."""
    return processors() if configurations > alone else 1

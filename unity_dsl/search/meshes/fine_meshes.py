"""Fine meshes beside the coarser ones that they split, and local searches on them from what is known there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from ...graph.layout import Mesh
from ...machine.mesh import refined_blocks, regrouped_axes
from ...rules.process_map import processors
from ..constants import NOTHING, PROMISING, UNLIKELY
from ..folded_solver.problem_part import Part
from ..layout_problem.model_problem import Problem
from ..layout_problem.starting_domains import Held
from ..layout_problem.variable_meaning import Meaning
from .near_search import Found, Near, held_by


@dataclass
class Fine:
    """A fine mesh with the plans of coarser ones that it splits, and what is known `near` them, if it is promising."""

    mesh: Mesh
    above: Sequence[Found]
    near: Near | None = None

    def promise(self) -> tuple[bool, float]:
        return self.near is None, least_of(self.above)[0] if self.near is None else self.near.cost

    def is_likely(self, best: Fine) -> bool:
        """Whether a search as a whole may find more than that of the most promising mesh."""
        return best.near is None or (self.near is not None and self.near.cost <= UNLIKELY * best.near.cost)

    @property
    def cost(self) -> float:
        """Of the best plan that is known."""
        return inf if self.near is None else self.near.cost

    @property
    def is_crowded(self) -> bool:
        """Whether the tables were too large for whole neighbourhoods: a local search does not go on there."""
        return self.near is not None and self.near.crowded

    @property
    def least_above(self) -> float:
        """The cost of the cheapest plan of the coarser meshes."""
        return min((found.best.cost for found in self.above if found.best.plan is not None), default=inf)

    def has_gained(self, part: float) -> bool:
        """Whether the plan is better, by more than a part, than those of coarser meshes, next to which it is the best
        one.
        """
        return self.near is not None and self.near.cost < self.least_above * (1 - part)

    @property
    def effort(self) -> float:
        """How many configurations there are, as far as coarser meshes tell."""
        return effort_of([found.problem for found in self.above], len(self.mesh.axes))


@dataclass(frozen=True)
class Local:
    """A local search on a mesh from what is held, for a plan that costs less than `below`. A plan that is held, if one
    is, is `known` to cost less than so much.
    """

    mesh: Mesh
    held: Held
    below: float
    known: float = inf
    rounds: int = 1
    reach: int = 1


def compared_search(one: Fine, below: float) -> Local:
    """Next to the plans of coarser meshes, which cost no more here."""
    return Local(one.mesh, held_by(one.mesh, one.above), below, one.least_above * (1 + NOTHING))


def moved_search(one: Fine, other: Fine, order: Sequence[int]) -> Local:
    """The best plan of another mesh, as far as this one has it: each axis does what the axis of the `order` does there.
    Operators that cannot do that have all their choices.
    """
    assert other.near is not None, "a plan of the other mesh"
    return Local(one.mesh, other.near.held.reordered(order), other.near.cost * PROMISING, reach=0)


def regrouped_search(one: Fine, coarse: Iterable[Found], below: float) -> Local | None:
    """Next to the plans of coarse meshes of which axes that are no neighbours here make up an axis: these cost more or
    less here. None where there is no such mesh.
    """
    held = Held()
    for found in (found for found in coarse if len(found.mesh.axes) < len(one.mesh.axes)):
        for part_of in regrouped_axes(one.mesh, found.mesh):
            held.join(held_by(found.mesh, [found]).reordered(part_of))
    return Local(one.mesh, held, below) if held.chosen else None


def further_search(one: Fine, rounds: int, reach: int) -> Local:
    """On from the best plan that is known of the mesh."""
    assert one.near is not None, "a plan of the mesh"
    return Local(one.mesh, one.near.held, one.near.cost, rounds=rounds, reach=reach)


def promising_first(meshes: Sequence[Mesh], coarse: Sequence[Found]) -> list[Fine]:
    """Meshes with the coarser ones that they split: those first that split one with a cheap plan."""
    every = [Fine(mesh, [one for one in coarse if refined_blocks(mesh, one.mesh) is not None]) for mesh in meshes]
    return sorted(every, key=lambda one: least_of(one.above))


def least_of(coarse: Iterable[Found]) -> tuple[float, bool]:
    """The cost of the cheapest plan; where none was found, that of the best of other meshes, and that it was not."""
    return min(((found.best.cost, found.best.plan is None) for found in coarse), default=(inf, True))


def effort_of(coarse: Sequence[Problem], axes: int) -> float:
    """How many configurations there are on a mesh with so many axes, as far as the problem of a coarser mesh tells."""
    if not coarse:
        return 0.0
    finest = max(coarse, key=lambda problem: len(problem.spaces.mesh.axes))
    power = axes / max(1, len(finest.spaces.mesh.axes))
    return float(sum(count**power for count in counts(finest.part)))


def configurations_of(meaning: Meaning) -> int:
    """How many configurations the operators of a problem have, with those that are left out next to a plan."""
    own = (options.configurations.by_axis for _, options in meaning.nodes.values())
    return sum(prod(map(len, by_axis)) for by_axis in own) + sum(map(configurations_of, meaning.bodies))


def coarse_count(coarse: Sequence[Found]) -> int:
    """How many configurations there are on the finest of coarser meshes."""
    return max((sum(counts(found.problem.part)) for found in coarse), default=0)


def counts(part: Part) -> Iterator[int]:
    """How many choices every variable has."""
    yield from map(len, part.costs)
    for repeat in part.repeats:
        yield from counts(repeat.body)


def processes_when(configurations: float, alone: int) -> int:
    """How many processes search meshes of which the coarser ones have so many configurations: one where these are not
    more than it does `alone`.
    """
    return processors() if configurations > alone else 1

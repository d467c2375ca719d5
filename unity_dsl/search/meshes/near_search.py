"""Local search on a mesh: the best plan in the neighbourhood of some plans, then in that of the result, until none is
better.

The neighbourhood has all plans in which every operator differs from one of the plans along one mesh axis at most. Only
its configurations are typed and priced, a small part of those that a mesh of several axes has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...machine.mesh import Blocks, refined_blocks
from ...syntax.diagnostic import InputError
from ..choices.extractions import Extractions
from ..choices.proved_configurations import Around
from ..choices.restriction import Restriction
from ..constants import LOCAL_GAIN, LOCAL_ROUNDS, MANY
from ..exact_search.bounded_search import ROUNDS, Optimum, improved, optimise
from ..folded_solver.problem_part import everything
from ..layout_problem.held_price import HeldPrice
from ..layout_problem.model_problem import Problem, build_problem
from ..layout_problem.problem_context import Prices
from ..layout_problem.starting_domains import KnownChoices, axis_domains, known_domain, near_domain
from ..layout_problem.variable_meaning import Impossible
from ..search_end import SearchEnded


@dataclass(frozen=True)
class Task:
    """A model to be planned: its prices on a mesh, a price of `memory` where that is the limit, and what is allowed
    there.

    `allowed` raises InputError for a mesh that cannot have what is pinned, or what the strategy asks for.
    """

    model: Model
    priced: Callable[[Mesh], Prices]
    allowed: Callable[[Mesh], Restriction]
    memory: HeldPrice | None = None

    def problem(self, mesh: Mesh, near: Mapping[str, Around] = {}, algebra: Mapping[str, Extractions] = {}) -> Problem:
        """The search problem on a mesh. Raises Impossible, and InputError as `allowed`."""
        return build_problem(self.model, self.priced(mesh), self.allowed(mesh), near, self.memory, algebra)


@dataclass(frozen=True)
class BestOnMesh:
    """The best plan found on a mesh, or the known cost if none is below it; the `bound` holds for all plans of the
    problem.
    """

    problem: Problem
    best: Optimum

    @property
    def mesh(self) -> Mesh:
        return self.problem.spaces.mesh


@dataclass(frozen=True)
class Near:
    """The result of a local search, as one process sends it to another: its cost and the choices of its plan."""

    cost: float
    choices: KnownChoices


def near_by(found: BestOnMesh | None) -> Near | None:
    return None if found is None else Near(found.best.cost, choices_of(found.mesh, [found]))


def near_plan(
    task: Task,
    mesh: Mesh,
    choices: KnownChoices,
    below: float,
    *,
    rounds: int = LOCAL_ROUNDS,
    reach: int = 1,
) -> BestOnMesh | None:
    """The plan of a local search on a mesh from known `choices`, if it costs less than `below`; None as well where no
    choices are known. Operators and values without known choices have all their choices in the first round. An operator
    differs from its known choices along at most `reach` mesh axes; where the tables are too large for whole
    neighbourhoods, all operators differ along the same one.
    """
    found: BestOnMesh | None = None
    cost, whole = below, True
    for _ in range(rounds):
        try:
            better = _next_to(task, mesh, choices, cost, reach, whole) if choices.chosen else None
        except SearchEnded:
            if found is None:
                raise
            break
        if better is None:
            break
        found, gained, cost = better, cost - better.best.cost, better.best.cost
        whole = whole and better.best.exact
        if gained < cost * LOCAL_GAIN or (not whole and has_many(better.problem)):
            break
        choices = choices_of(mesh, [better])
    return found


def choices_of(mesh: Mesh, starts: Iterable[BestOnMesh]) -> KnownChoices:
    """The choices of plans on a mesh: plans of meshes that it splits, and of meshes with as many axes."""
    choices = KnownChoices()
    for found in starts:
        blocks = _parts(mesh, found.mesh)
        if blocks is not None and found.best.plan is not None:
            choices.add(found.problem, found.best.plan, blocks)
    return choices


def _parts(mesh: Mesh, other: Mesh) -> Blocks | None:
    """The axes that correspond to each axis of another mesh: those that split it, or the one in its place."""
    if len(mesh.axes) == len(other.axes):
        return tuple((axis,) for axis in range(len(mesh.axes)))
    return refined_blocks(mesh, other)


def _next_to(task: Task, mesh: Mesh, choices: KnownChoices, below: float, reach: int, whole: bool) -> BestOnMesh | None:
    """The best plan in the neighbourhood of known `choices`. It is not exact if the tables are too large: it is then
    improved along each mesh axis alone, unless there are MANY variables.
    """
    try:
        problem = task.problem(
            mesh, {path: Around(frozenset(chosen), reach) for path, chosen in choices.chosen.items()}
        )
    except (Impossible, InputError):
        return None
    part, every = problem.part, everything(problem.part)
    best = Optimum(None, below, -inf, False)
    if whole:
        near = every.intersected(near_domain(problem, choices, range(len(mesh.axes)), reach))
        best = optimise(part, near, below=below, rounds=1 if has_many(problem) else ROUNDS)
    if not best.exact:
        first = optimise(part, every.intersected(known_domain(problem, choices)))
        if best.plan is not None and best.cost < first.cost:
            first = best
        if not has_many(problem):
            first = improved(part, every, partial(axis_domains, problem), first)
        best = replace(first, bound=-inf, exact=False)
    return BestOnMesh(problem, best) if best.plan is not None and best.cost < below else None


def has_many(problem: Problem) -> bool:
    """Whether a problem has more than MANY variables."""
    return everything(problem.part).variables > MANY

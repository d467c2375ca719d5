"""The cheapest plan over several meshes: coarse ones first, then refinements of those that have the best plans.

A plan on a mesh is one on every mesh that splits its axes, and costs no more there. So only the finest meshes have the
best plans; but the problems of coarse ones are small, and their plans are where the search on finer ones starts: it
looks for cheaper ones only, and leaves out meshes of which a lower bound says that there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, pairwise
from math import inf

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...machine.mesh import Blocks, joined, refined_blocks
from ...syntax.diagnostic import InputError
from ..choices.restriction import Restriction
from ..exact_search.bounded_search import ROUNDS, Optimum, Survey, improved, least_cost, optimise, search, survey
from ..folded_solver.exact_minimum import Solved, Solver
from ..folded_solver.materialised_layouts import crowded_tensor
from ..folded_solver.problem_part import Domains, Part, everything
from ..folded_solver.reduced_cost_filtering import TOLERANCE
from ..layout_problem.changed_operators import changed_paths, next_to
from ..layout_problem.model_problem import Prices, Problem, build_problem
from ..layout_problem.starting_domains import (
    Held,
    axis_domains,
    even_domain,
    held_domain,
    near_domain,
    undivided_domain,
)
from ..layout_problem.variable_meaning import Crowded, Impossible

COARSE = 2
"""Axes of the meshes that are searched first."""
EFFORT_COARSE = 24_000
EFFORT_FINE = 48_000
"""Configurations of operators on the meshes of two axes, and on finer ones, that are searched. Where there are more,
those that come first in the order are searched: one of either kind in any case, two fine ones that are not large.
Those of fine meshes that a bound does not rule out count twice.
"""
EFFORT_MESH = 1_200
"""What a mesh takes besides, in configurations."""
LARGE = 20_000
"""Configurations of a problem of which tables are likely to be too large for a proof."""
NEGLIGIBLE = 1e-4
"""Of the best plan's cost: a large problem is not searched for plans that save less, which its bound tells."""
HOPELESS = 1.2
"""Of the best plan's cost: a mesh is left out where it splits only meshes whose plans cost more."""


@dataclass(frozen=True)
class Task:
    """A model to be planned: what it costs on a mesh, and what is allowed there.

    `allowed` raises InputError for a mesh on which what is pinned, or what the strategy asks for, cannot be.
    """

    model: Model
    priced: Callable[[Mesh], Prices]
    allowed: Callable[[Mesh], Restriction]

    def problem(self, mesh: Mesh) -> Problem:
        """Raises Impossible, and InputError as `allowed`."""
        return build_problem(self.model, self.priced(mesh), self.allowed(mesh))


@dataclass(frozen=True)
class Found:
    """The best plan of a mesh, or what was known before; its `bound` holds for all plans on the mesh."""

    problem: Problem
    best: Optimum

    @property
    def mesh(self) -> Mesh:
        return self.problem.spaces.mesh

    @property
    def large(self) -> bool:
        """Whether its tables are likely to be too large for a proof."""
        return sum(_counts(self.problem.part)) > LARGE


@dataclass
class Outcome:
    """The best plan so far costs `cost`, `found` where it is one of the meshes. `bounds` are lower bounds on the plans
    of the meshes that were searched, `refused` the reasons why others have none.
    """

    cost: float
    found: Found | None = None
    bounds: dict[Mesh, float] = field(default_factory=dict)
    coarse: list[Found] = field(default_factory=list)
    refused: dict[Mesh, Impossible | InputError] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """Of all plans on the meshes that were searched."""
        return min(self.bounds.values())

    @property
    def exact(self) -> bool:
        """Whether no plan on the meshes that were searched costs less."""
        return self.bound >= self.cost * (1 - TOLERANCE)


def search_meshes(
    task: Task, meshes: Sequence[Mesh], below: float = inf, aid: Task | None = None, known: Sequence[Found] = ()
) -> Outcome:
    """The cheapest plan that costs less than `below`.

    The search starts near plans that are `known`, of this model or of one with other operators. Where there is none and
    all meshes are fine, `aid` finds plans on coarser ones: its pins may be fewer.
    """
    coarse = [mesh for mesh in meshes if len(mesh.axes) <= COARSE]
    fine = [mesh for mesh in meshes if len(mesh.axes) > COARSE]
    outcome = Outcome(below)
    _search_coarse(task, coarse, outcome, known)
    starts = [*known, *outcome.coarse]
    if fine and not starts and aid is not None:
        aided = Outcome(inf)
        _search_coarse(aid, list(_coarsenings(fine)), aided, ())
        starts = aided.coarse
    left: float = EFFORT_FINE
    for number, (mesh, above) in enumerate(_promising_first(fine, starts)):
        effort = EFFORT_MESH + _effort(above, len(mesh.axes))
        left -= effort
        enough = number >= (2 if effort <= LARGE else 1)
        if (enough and left < 0) or (number and _least(above)[0] > outcome.cost * HOPELESS):
            break
        if _search_fine(task, mesh, above, outcome):
            left -= effort
    return outcome


def search_around(task: Task, start: Found, below: float) -> Outcome:
    """The best plan on the mesh of a plan that a model with other operators has, if it costs less than `below`: of
    those with its layouts everywhere but at operators that differ and at those that share a tensor with these. The
    outcome has no bound but 0, since other plans of the mesh are not looked at.
    """
    outcome = Outcome(below)
    if (problem := _problem(task, start.mesh, outcome)) is None or start.best.plan is None:
        return outcome
    outcome.bounds[start.mesh] = 0.0
    held = Held()
    held.add(start.problem, start.best.plan)
    changed = changed_paths(problem.meaning, start.problem.meaning)
    part, whole = problem.part, everything(problem.part)
    first = optimise(part, whole.intersected(held_domain(problem, held.without(changed))))
    if first.plan is not None:

        def around(plan: Solved) -> Iterator[Domains]:
            near = Held()
            near.add(problem, plan)
            yield held_domain(problem, near.without(next_to(problem.meaning, changed)))

        best = improved(part, whole, around, first)
        if best.cost < below:
            outcome.cost, outcome.found = best.cost, Found(problem, replace(best, bound=0.0, exact=False))
    return outcome


def _search_coarse(task: Task, meshes: Iterable[Mesh], outcome: Outcome, starts: Sequence[Found]) -> None:
    """Searches meshes in the order of their lower bounds, and keeps what is found for finer ones."""
    every: list[tuple[Problem, Survey]] = []
    left = EFFORT_COARSE
    for mesh in meshes:
        if (problem := _problem(task, mesh, outcome)) is not None:
            every.append((problem, _survey(problem)))
            left -= sum(_counts(problem.part))
        if left < 0 and len(mesh.axes) == COARSE:
            break
    for problem, known in sorted(every, key=lambda entry: entry[1].bound):
        found = Found(problem, _best(problem, known, starts, outcome.cost))
        _take(found, outcome)
        outcome.coarse.append(found)


def _search_fine(task: Task, mesh: Mesh, starts: Sequence[Found], outcome: Outcome) -> bool:
    """Searches a mesh for a cheaper plan; whether it was not ruled out before."""
    if (problem := _problem(task, mesh, outcome)) is None:
        return False
    if sum(_counts(problem.part)) <= LARGE:
        least = least_cost(problem.part, everything(problem.part))
        if least >= outcome.cost:
            outcome.bounds[mesh] = least
            return False
    if outcome.found is not None:
        starts = [*starts, outcome.found]
    _take(Found(problem, _best(problem, _survey(problem), starts, outcome.cost)), outcome)
    return True


def _take(found: Found, outcome: Outcome) -> None:
    if outcome.cost == inf and found.best.plan is None:  # layouts convert to any other, but few are held at once
        outcome.refused[found.mesh] = Crowded(crowded_tensor(found.problem.part))
        return
    outcome.bounds[found.mesh] = found.best.bound
    if found.best.plan is not None and found.best.cost < outcome.cost:
        outcome.cost, outcome.found = found.best.cost, found


def _survey(problem: Problem) -> Survey:
    return survey(problem.part, everything(problem.part))


def _problem(task: Task, mesh: Mesh, outcome: Outcome) -> Problem | None:
    try:
        return task.problem(mesh)
    except (Impossible, InputError) as reason:
        outcome.refused[mesh] = reason
        return None


def _best(problem: Problem, known: Survey, starts: Sequence[Found], below: float) -> Optimum:
    """The best plan of a problem, if it costs less than `below`. Large problems are bounded once, and what is near the
    starts is not improved again.
    """
    if known.bound >= below:
        return Optimum(None, known.bound, known.bound, True)
    large = known.domains.count > LARGE
    if large and known.bound >= below * (1 - NEGLIGIBLE):
        return Optimum(None, below, known.bound, False)
    near = partial(axis_domains, problem)
    first = Optimum(None, below, -inf, False) if isinstance(known.found, Solver) else _start(problem, starts, below)
    best = search(known, near, min(below, first.cost), rounds=1 if large else ROUNDS)
    if best.plan is None and first.plan is not None and first.cost < below:
        best = replace(best, plan=first.plan)
        if not best.exact and not large:
            best = improved(known.part, known.domains, near, best)
    return best


def _start(problem: Problem, starts: Sequence[Found], below: float) -> Optimum:
    """A good plan: near those of other meshes, or else one with all mesh axes doing the same, or nothing divided."""
    part, whole = problem.part, everything(problem.part)
    held, axes = Held(), range(len(problem.spaces.mesh.axes))
    for found in starts:
        blocks = _parts(problem.spaces.mesh, found.mesh)
        if blocks is not None and found.best.plan is not None:
            held.add(found.problem, found.best.plan, blocks)
    if held.chosen:
        first = optimise(part, whole.intersected(near_domain(problem, held, axes)), below=below)
        if first.plan is not None or first.exact:
            return first
        first = optimise(part, whole.intersected(held_domain(problem, held)))
        if first.plan is not None:
            return improved(part, whole, partial(axis_domains, problem), first)
    if below < inf:
        return Optimum(None, below, -inf, False)
    first = optimise(part, whole.intersected(even_domain(problem)))
    return first if first.plan is not None else optimise(part, whole.intersected(undivided_domain(problem)))


def _parts(mesh: Mesh, other: Mesh) -> Blocks | None:
    """The axes that do what each axis of another mesh does: those that split it, or the one in its place."""
    if len(mesh.axes) == len(other.axes):
        return tuple((axis,) for axis in range(len(mesh.axes)))
    return refined_blocks(mesh, other)


def _coarsenings(meshes: Iterable[Mesh]) -> Iterator[Mesh]:
    """The coarse meshes that the meshes split, each once, those with few axes first."""
    found = dict.fromkeys(
        joined(mesh, blocks)
        for mesh in meshes
        for count in range(1, COARSE + 1)
        for blocks in _cuts(len(mesh.axes), count)
    )
    yield from sorted(found, key=lambda mesh: len(mesh.axes))


def _cuts(axes: int, count: int) -> Iterator[Blocks]:
    """Every way to join neighbouring axes to so many blocks."""
    for inner in combinations(range(1, axes), count - 1):
        ends = (0, *inner, axes)
        yield tuple(tuple(range(*block)) for block in pairwise(ends))


def _promising_first(meshes: Sequence[Mesh], coarse: Sequence[Found]) -> list[tuple[Mesh, list[Found]]]:
    """Meshes with the coarser ones that they split: those first that split one with a cheap plan."""
    every = [(mesh, [one for one in coarse if refined_blocks(mesh, one.mesh) is not None]) for mesh in meshes]
    return sorted(every, key=lambda entry: _least(entry[1]))


def _least(coarse: Iterable[Found]) -> tuple[float, bool]:
    """The cost of the cheapest plan; where none was found, that of the best of other meshes, and that it was not."""
    return min(((found.best.cost, found.best.plan is None) for found in coarse), default=(inf, True))


def _effort(coarse: Sequence[Found], axes: int) -> float:
    """How many configurations there are on a mesh with so many axes, as far as a coarser mesh tells."""
    if not coarse:
        return 0.0
    finest = max(coarse, key=lambda found: len(found.mesh.axes))
    power = axes / max(1, len(finest.mesh.axes))
    return float(sum(count**power for count in _counts(finest.problem.part)))


def _counts(part: Part) -> Iterator[int]:
    """How many choices every variable has."""
    yield from map(len, part.costs)
    for repeat in part.repeats:
        yield from _counts(repeat.body)

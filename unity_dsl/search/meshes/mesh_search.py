"""The cheapest plan over several meshes: coarse ones first, then refinements of those that have the best plans.

A plan on a mesh is also a plan on every mesh that splits its axes, and costs no more there. The finest meshes therefore
have the best plans. But the problems of coarse ones are small, and their plans are where local searches on finer ones
start. The most promising fine mesh is searched as a whole if that is quick, for cheaper plans only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from ...graph.layout import Mesh
from ...rules.process_map import lasting_processes
from ...syntax.diagnostic import InputError
from ..constants import (
    CANDIDATES,
    COARSE,
    EFFORT_COARSE,
    EFFORT_SCOUTED,
    EFFORT_WHOLE,
    LARGE,
    NEGLIGIBLE,
    PARALLEL_BOUNDS_FROM,
    PARALLEL_FROM,
    PARALLEL_STEPS_FROM,
    PROMISING,
    PRUNED,
    PRUNED_MANY,
    SCOUTED,
    SEARCHED_TWICE,
)
from ..exact_search.bounded_search import (
    ROUNDS,
    Optimum,
    Survey,
    improved,
    nowhere,
    optimise,
    search,
)
from ..folded_solver.exact_minimum import Solver
from ..folded_solver.materialised_layouts import crowded_tensor
from ..folded_solver.problem_part import everything
from ..folded_solver.reduced_cost_filtering import TOLERANCE
from ..layout_problem.changed_operators import changed_paths
from ..layout_problem.model_problem import Problem
from ..layout_problem.starting_domains import KnownChoices, axis_domains, even_domain, known_domain, undivided_domain
from ..layout_problem.variable_meaning import Crowded, Impossible
from ..search_end import SearchEnded, check_end, ended_by, why_ended
from ..search_progress import tell_cost
from .fine_meshes import Fine, configurations_of, counts, effort_of, processes_when, promising_first
from .fine_search import search_near
from .mesh_joining import coarsenings
from .mesh_surveys import Surveys
from .near_search import BestOnMesh, Near, Task, choices_of, has_many, near_plan


@dataclass
class Outcome:
    """The result of a search over meshes. The best plan so far costs `cost`; it is `found` if it is on one of the
    meshes. `bounds` are lower bounds on the plans of searched meshes, `refused` the reasons why others have none.
    `coarse` are the plans of coarse meshes, `near` the results of local searches on others, `beside` the best of these.
    `surveyed` are the problems that were bounded. If the search was ended early, `ended` says why. With `told`, better
    plans are reported as progress.
    """

    cost: float
    found: BestOnMesh | None = None
    surveyed: list[tuple[Problem, Survey]] = field(default_factory=list)
    ended: str | None = None
    told: bool = False
    bounds: dict[Mesh, float] = field(default_factory=dict)
    coarse: list[BestOnMesh] = field(default_factory=list)
    near: dict[Mesh, Near] = field(default_factory=dict)
    beside: list[BestOnMesh] = field(default_factory=list)
    refused: dict[Mesh, Impossible | InputError] = field(default_factory=dict)

    @property
    def candidates(self) -> list[BestOnMesh]:
        """The best plan, then plans of other coarse and fine meshes that cost little more, one a mesh."""
        assert self.found is not None, "a plan was found"
        others = [one for one in (*self.coarse, *self.beside) if one.best.plan is not None]
        near = [one for one in others if one.mesh != self.found.mesh and one.best.cost <= self.cost * PROMISING]
        near.sort(key=lambda one: one.best.cost)
        of_kind = ([one for one in near if (len(one.mesh.axes) > COARSE) == fine] for fine in (False, True))
        return [self.found, *(one for some in of_kind for one in some[: CANDIDATES - 1])]

    @property
    def bound(self) -> float:
        """Lower bound on all plans on the meshes that were searched."""
        return min(self.bounds.values(), default=0.0)

    @property
    def exact(self) -> bool:
        """Whether no plan on the meshes that were searched costs less."""
        return self.bound >= self.cost * (1 - TOLERANCE)


def search_meshes(
    task: Task,
    meshes: Sequence[Mesh],
    below: float = inf,
    aid: Task | None = None,
    known: Sequence[BestOnMesh] = (),
    candidates: bool = True,
) -> Outcome:
    """The cheapest plan that costs less than `below`. With `candidates`, the outcome has plans of other fine meshes as
    well.

    The search starts near the plans `known`, of this model or of one with other operators. If there is none and all
    meshes are fine, `aid` finds plans on coarser ones; it may have fewer pins. Raises SearchEnded where the search is
    ended before any plan is known.
    """
    coarse = [mesh for mesh in meshes if len(mesh.axes) <= COARSE]
    fine = [mesh for mesh in meshes if len(mesh.axes) > COARSE]
    outcome, every = Outcome(below, told=task.memory is None), list[Fine]()
    try:
        _search_coarse(task, coarse, outcome, known)
        starts = [*known, *outcome.coarse]
        if fine and not starts and aid is not None:
            aided = Outcome(inf)
            _search_coarse(aid, list(coarsenings(fine, COARSE)), aided, ())
            starts = aided.coarse
        every += promising_first(fine, starts)
        search_near(task, every, outcome.cost)
        outcome.near = {one.mesh: one.near for one in every if one.near is not None}
        _search_whole(task, sorted(every, key=Fine.promise), outcome)
        _take_near(task, outcome)
        outcome.beside += _beside(task, outcome) if candidates else ()
    except SearchEnded:
        outcome.near = {one.mesh: one.near for one in every if one.near is not None} | outcome.near
        with ended_by(None):
            _settle(task, outcome)
        if outcome.found is None:
            raise
    outcome.ended = why_ended()
    return outcome


def _settle(task: Task, outcome: Outcome) -> None:
    """Completes the outcome of a search that was ended: the best known plan, or a simple one of the smallest problem,
    and the bounds of all problems that were looked at.
    """
    for problem, known in outcome.surveyed:
        outcome.bounds.setdefault(problem.spaces.mesh, known.bound)
    _take_near(task, outcome)
    simple = sorted((problem for problem, _ in outcome.surveyed), key=lambda problem: sum(counts(problem.part)))
    for problem in simple[: outcome.found is None]:
        _keep(BestOnMesh(problem, _start(problem, KnownChoices(), outcome.cost)), outcome)


def search_around(task: Task, start: BestOnMesh, below: float) -> Outcome:
    """The best plan on the mesh of a given plan, of a model with other operators, if it costs less than `below`. This
    is a local search from that plan's layouts, with all choices at operators that differ. The outcome has no bound but
    0, since other plans of the mesh are not looked at.
    """
    outcome = Outcome(below, bounds={start.mesh: 0.0})
    changed = changed_paths(task.model.graph, start.problem.meaning.graph)
    choices = choices_of(start.mesh, [start]).without(changed)
    if (found := near_plan(task, start.mesh, choices, below)) is not None:
        _keep(found, outcome)
    return outcome


def _search_coarse(task: Task, meshes: Sequence[Mesh], outcome: Outcome, starts: Sequence[BestOnMesh]) -> None:
    """Searches meshes, the smallest lower bounds first, and keeps what is found for finer ones."""
    surveys, every, left = Surveys(task), outcome.surveyed, EFFORT_COARSE
    further = meshes
    while further:
        mesh, further = further[0], further[1:]
        if (looked_at := surveys.of(mesh)) is None:
            outcome.refused[mesh] = surveys.refused[mesh]
        else:
            every.append(looked_at)
            left -= sum(counts(looked_at[0].part))
            if len(every) == 1:
                _look_ahead(surveys, looked_at[0], further, left)
        if left < 0 and len(mesh.axes) == COARSE:
            break
    for mesh in _scouted(surveys, further, every):
        if (looked_at := surveys.of(mesh)) is not None:
            every.append(looked_at)
    _solve_coarse(sorted(every, key=lambda entry: entry[1].bound), outcome, starts)


def _solve_coarse(every: Sequence[tuple[Problem, Survey]], outcome: Outcome, starts: Sequence[BestOnMesh]) -> None:
    """Finds the best plans of problems: of the first, then of two at a time. Plans much dearer than the best before are
    left out.
    """

    def best(asked: tuple[int, float]) -> Optimum:
        check_end()
        problem, known = every[asked[0]]
        below = asked[1] * (PRUNED_MANY if has_many(problem) else PRUNED)
        return _best(problem, known, choices_of(problem.spaces.mesh, starts), below)

    configurations = sum(sum(counts(problem.part)) for problem, _ in every)
    processes = 1 if len(every) < 3 else min(2, processes_when(configurations, PARALLEL_FROM))
    with lasting_processes(best, processes, check_end) as bests:
        for last in range(1, len(every) + 2, 2):
            numbers = range(max(last - 2, 0), min(last, len(every)))
            for number, optimum in zip(numbers, bests([(n, (n, outcome.cost)) for n in numbers]), strict=True):
                found = BestOnMesh(every[number][0], optimum)
                _take(found, outcome)
                outcome.coarse.append(found)


def _look_ahead(surveys: Surveys, first: Problem, meshes: Sequence[Mesh], left: int) -> None:
    """Bounds the meshes after the first one in several processes: as many as will be needed, estimated from the first
    one.
    """
    size = max(1, int(effort_of([first], COARSE)))
    ahead = meshes[: max(0, left) // size + 1 + EFFORT_SCOUTED // size]
    surveys.look_at(ahead, processes_when(size * len(ahead), PARALLEL_BOUNDS_FROM))


def _scouted(surveys: Surveys, meshes: Sequence[Mesh], every: Sequence[tuple[Problem, Survey]]) -> list[Mesh]:
    """The remaining meshes with lower bounds below those of all known problems, the best ones first. Several processes
    compute the bounds, for as many meshes as the effort allows.
    """
    known = min((one.bound for _, one in every), default=inf)
    size = max((sum(counts(problem.part)) for problem, _ in every), default=0)
    looked_at = meshes[: EFFORT_SCOUTED // max(1, size)]
    surveys.look_at(looked_at, processes_when(size * len(looked_at), PARALLEL_BOUNDS_FROM))
    better = [mesh for mesh in looked_at if surveys.least(mesh) < known]
    return sorted(better, key=surveys.least)[:SCOUTED]


def _search_whole(task: Task, every: Sequence[Fine], outcome: Outcome) -> None:
    """Searches fine meshes as a whole for a cheaper plan: the most promising ones up to a total number of
    configurations, and further ones while no plan is known.
    """
    left: float = EFFORT_WHOLE
    for one in every:
        known = min([outcome.cost, *(near.cost * (1 + TOLERANCE) for near in outcome.near.values())])
        left -= one.effort
        if known < inf and left < 0:
            break
        surveys = Surveys(task)
        if (surveyed := surveys.of(one.mesh)) is None:
            outcome.refused |= surveys.refused
            continue
        choices = choices_of(one.mesh, one.above) if one.near is None else one.near.choices
        _take(BestOnMesh(surveyed[0], _best(*surveyed, choices, known)), outcome)


def _take_near(task: Task, outcome: Outcome) -> None:
    """Takes the best of the plans of fine meshes, if it is the best of all."""
    best = _best_near(outcome)
    if best is not None and outcome.near[best].cost < outcome.cost:
        if outcome.near[best].choices.chosen:
            found = _plan_near(task, outcome, best)
        else:  # nothing is chosen anywhere: no operator has a gradient or is worth dividing
            problem = task.problem(best)
            found = BestOnMesh(problem, optimise(problem.part, everything(problem.part)))
        if found is not None:
            _keep(found, outcome)


def _beside(task: Task, outcome: Outcome) -> Iterator[BestOnMesh]:
    """Plans of the fine meshes besides the best one that cost little more, as many as may be candidates."""
    best = None if outcome.found is None else outcome.found.mesh
    near = [mesh for mesh, one in outcome.near.items() if one.cost <= outcome.cost * PROMISING and one.choices.chosen]
    others = sorted((mesh for mesh in near if mesh != best), key=lambda mesh: outcome.near[mesh].cost)
    for mesh in others[: CANDIDATES - 1]:
        found = _plan_near(task, outcome, mesh)
        if found is not None:
            yield found


def _plan_near(task: Task, outcome: Outcome, mesh: Mesh) -> BestOnMesh | None:
    """The plan that a local search found on a fine mesh, made again from the choices that were reported of it."""
    return near_plan(task, mesh, outcome.near[mesh].choices, inf, rounds=1, reach=0)


def _best_near(outcome: Outcome) -> Mesh | None:
    """The fine mesh with the cheapest known plan."""
    return min(outcome.near, key=lambda mesh: outcome.near[mesh].cost, default=None)


def _keep(found: BestOnMesh, outcome: Outcome) -> None:
    if found.best.plan is not None and found.best.cost < outcome.cost:
        outcome.cost, outcome.found = found.best.cost, found
        if outcome.told:
            tell_cost(outcome.cost, min((known.bound for _, known in outcome.surveyed), default=0.0))


def _take(found: BestOnMesh, outcome: Outcome) -> None:
    if outcome.cost == inf and found.best.plan is None:  # layouts convert to any other, but few are held at once
        outcome.refused[found.mesh] = Crowded(crowded_tensor(found.problem.part))
        return
    outcome.bounds[found.mesh] = found.best.bound
    _keep(found, outcome)


def _best(problem: Problem, known: Survey, choices: KnownChoices, below: float) -> Optimum:
    """The best plan of a problem, if it costs less than `below`. Large problems are bounded once, and a plan with
    known `choices` is not improved again there.
    """
    if known.bound >= below:
        return Optimum(None, known.bound, known.bound, True)
    large = known.domains.count > LARGE
    if large and known.bound >= below * (1 - NEGLIGIBLE):
        return Optimum(None, below, known.bound, False)
    near = nowhere if has_many(problem) else partial(axis_domains, problem)
    first = Optimum(None, below, -inf, False) if isinstance(known.found, Solver) else _start(problem, choices, below)
    is_pruned = has_many(problem) and first.cost > known.bound * PRUNED
    dearest = below if is_pruned else min(below, first.cost)
    best = search(known, near, dearest, rounds=1 if large or has_many(problem) else ROUNDS)
    if is_pruned and best.plan is not None:
        first = Optimum(None, inf, -inf, False)
    if best.plan is None and first.plan is not None and first.cost < below * PROMISING:
        better = replace(best, plan=first.plan, cost=first.cost)
        if not best.exact and not large:
            better = improved(known.part, known.domains, near, better)
        if better.cost < below:
            best = better
    begun, missed = first.plan is not None, best.plan is None and below < inf
    if not best.exact and (begun or missed) and known.domains.count <= SEARCHED_TWICE:
        other = search(known, near) if begun else _best(problem, known, choices, inf)
        best = other if other.cost < best.cost else best
    return best


def _start(problem: Problem, choices: KnownChoices, below: float) -> Optimum:
    """A good plan: one with known `choices`, else one in which all mesh axes do the same, or nothing is divided."""
    part, whole = problem.part, everything(problem.part)
    if choices.chosen:
        first = optimise(part, whole.intersected(known_domain(problem, choices)))
        if first.plan is not None:
            return first
    if below < inf:
        return Optimum(None, below, -inf, False)
    first = optimise(part, whole.intersected(even_domain(problem)))
    return first if first.plan is not None else optimise(part, whole.intersected(undivided_domain(problem)))


def is_large(found: BestOnMesh) -> bool:
    """Whether all plans of its mesh are too many to be searched once more."""
    return len(found.mesh.axes) > COARSE or sum(counts(found.problem.part)) > LARGE


def is_beyond_proof(found: BestOnMesh) -> bool:
    """Whether the whole problem of its mesh has so many configurations that searching it is likely to prove nothing."""
    return configurations_of(found.problem.meaning) > LARGE


def processes_for(problem: Problem) -> int:
    """How many processes search problems like this one, and simulate what they find."""
    return processes_when(sum(counts(problem.part)), PARALLEL_STEPS_FROM)

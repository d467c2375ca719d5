"""Chooses algebra and layouts together: one cost network over the e-graphs of a model, on a mesh.

A value that algebra makes in several ways is one variable. Its values are the configurations of all operators that may
make it, for each extraction of its group, and one for each extraction without it. A lower bound of the network holds
for all extractions. Iterations of a repeat have one body: where they choose differently, the search branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

import numpy as np

from ...graph.layout import Mesh
from ...rules.process_map import lasting_processes, processors
from ..choices.extractions import Extractions
from ..choices.proved_configurations import Around
from ..constants import JOINT_ALONE, JOINT_ATTEMPTS, JOINT_BRANCHES, JOINT_NEAR
from ..exact_search.bounded_search import ROUNDS, Optimum, Survey, optimise, survey
from ..exact_search.bounded_search import search as optimum_of
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, everything
from ..layout_problem.model_problem import Problem
from ..layout_problem.starting_domains import KnownChoices
from ..layout_problem.variable_meaning import Meaning
from ..meshes.near_search import Task
from ..search_end import check_end
from .extracted_model import Algebra, Chosen

Group = tuple[str, int]
"""A group: the path prefix of its graph, and its number there."""


@dataclass(frozen=True)
class JointOptimum:
    """The best extraction that costs less than what was known, None if there is none, and its cost. No other costs less
    than `bound`, and none less than `cost` if `exact`.
    """

    chosen: Chosen | None
    cost: float
    bound: float
    exact: bool


def search_joint(
    problem: Problem, algebra: Algebra, below: float, near: Sequence[Domains] = (), most: float = inf
) -> JointOptimum:
    """The extraction and the layouts of least cost, if that is less than `below`. Searches small domains `near` some
    plan first, then the whole problem if it has at most `most` values.
    """
    search = _Search(problem, algebra, below, inf if most == inf else JOINT_ATTEMPTS)
    every = everything(problem.part)
    surveys: list[Survey] = []

    def done(step: tuple[_Step, float]) -> Optimum | None:
        """The result of a step, which considers plans below the given cost. Only the last step returns its optimum; the
        results of the others are kept in their process.
        """
        match step:
            case _Step.NEAR, _:
                for number, domain in enumerate(near):
                    within = every.intersected(domain)
                    if not number or within.count <= JOINT_NEAR:
                        search.run(within, 1 if number else ROUNDS)
            case _Step.SURVEY, _:
                surveys.append(survey(problem.part, every.agreed(problem.part)))
            case _, cost:
                rounds = ROUNDS if most == inf else 1
                return optimum_of(surveys[0], below=cost, rounds=rounds, attempts=search.attempts)
        return None

    whole = every.count <= most
    processes = processors() if whole and every.count > JOINT_ALONE else 1
    with lasting_processes(done, processes, check_end) as results:
        results([(step, (step, inf)) for step in ((_Step.NEAR, _Step.SURVEY) if whole else (_Step.NEAR,))])
        search.bound, search.exact = -inf, False
        if whole:
            search.bound, search.exact = inf, True
            (first,) = results([(_Step.SURVEY, (_Step.SEARCH, search.cost))])
            search.run(every, ROUNDS if most == inf else 1, first)
    return JointOptimum(search.best, search.cost, min(search.bound, search.cost), search.exact)


class _Step(Enum):
    """The searches in the neighbourhood of plans, the bound of the whole problem, and its search for a lower cost."""

    NEAR, SURVEY, SEARCH = range(3)


@dataclass(frozen=True)
class _Branch:
    """A part of the space: the extractions that are `fixed`, and a lower bound that is known for it."""

    fixed: Mapping[Group, int]
    bound: float


class _Search:
    """The best extraction so far."""

    def __init__(self, problem: Problem, algebra: Algebra, below: float, attempts: float) -> None:
        self.problem = problem
        self.attempts = attempts
        self.algebra = algebra
        self.cost = below
        self.best: Chosen | None = None
        self.bound = inf
        self.exact = True

    def run(self, domains: Domains, rounds: int, first: Optimum | None = None) -> None:
        """Searches a domain for a lower cost; the result of the `first` search may be known. Branches where iterations
        choose differently, first into the extractions that some of them have.
        """
        pending = [_Branch({}, -inf)]
        for _ in range(JOINT_BRANCHES if self.attempts < inf else 16 * JOINT_BRANCHES):
            if not pending:
                return
            branch = pending.pop()
            found, first = first or self._optimum(domains, branch.fixed, rounds), None
            taken = {} if found.plan is None else _taken(self.problem.meaning, self.algebra, found.plan)
            mixed = next((group for group, numbers in taken.items() if len(numbers) > 1), None)
            if mixed is not None:
                count = self.algebra.graphs[mixed[0]].groups[mixed[1]].extractions
                likely = sorted(range(count), key=lambda number: number in taken[mixed])
                pending += [_Branch({**branch.fixed, mixed: number}, found.bound) for number in likely]
                continue
            if found.plan is not None:
                self.best, self.cost = _chosen(self.algebra, taken), found.cost
            self.bound, self.exact = min(self.bound, found.bound), self.exact and found.exact
        if pending:
            self.bound, self.exact = min(self.bound, *(branch.bound for branch in pending)), False

    def _optimum(self, domains: Domains, fixed: Mapping[Group, int], rounds: int) -> Optimum:
        problem = self.problem
        if fixed:
            domains = domains.intersected(_fixed(problem.meaning, self.algebra, "", domains, fixed))
        return optimise(
            problem.part, domains.agreed(problem.part), below=self.cost, rounds=rounds, attempts=self.attempts
        )


def near_problem(task: Task, mesh: Mesh, algebra: Algebra, choices: KnownChoices, whole: bool) -> Problem:
    """The problem of a model with all that can be extracted. If not `whole`, operators of the model have only
    configurations in the neighbourhood of known `choices`.
    """
    near = {} if whole else {path: Around(frozenset(chosen)) for path, chosen in choices.chosen.items()}
    return task.problem(mesh, near, algebra.graphs)


def _fixed(meaning: Meaning, algebra: Algebra, prefix: str, domains: Domains, fixed: Mapping[Group, int]) -> Domains:
    """The domains that are left when the extractions of some groups are fixed."""
    masks = [np.ones(len(mask), dtype=bool) for mask in domains.masks]
    for number, group in enumerate(algebra.graphs[prefix].groups):
        if (prefix, number) in fixed:
            for choice in group.choices:
                variable, extractions = meaning.chosen[choice.value.name]
                masks[variable] = extractions == fixed[prefix, number]
    bodies = [
        _fixed(body, algebra, inner, part, fixed)
        for (inner, body), part in zip(_bodies(meaning, prefix), domains.bodies, strict=True)
    ]
    return Domains(masks, bodies)


def _bodies(meaning: Meaning, prefix: str) -> Iterator[tuple[str, Meaning]]:
    for segment, body in zip(meaning.graph.segments, meaning.bodies, strict=True):
        yield f"{prefix}{segment.name}.", body


def _taken(meaning: Meaning, algebra: Algebra, solved: Solved) -> dict[Group, set[int]]:
    """The extractions of each group that a plan has, several where iterations differ."""
    found: dict[Group, set[int]] = {}

    def visit(meaning: Meaning, prefix: str, solved: Solved) -> None:
        for number, extraction in enumerate(_extractions(meaning, algebra.graphs[prefix], solved)):
            found.setdefault((prefix, number), set()).add(extraction)
        for (inner, body), iterations in zip(_bodies(meaning, prefix), solved.repeats, strict=True):
            for iteration in dict.fromkeys(iterations):
                visit(body, inner, iteration)

    visit(meaning, "", solved)
    return found


def _extractions(meaning: Meaning, graph: Extractions, solved: Solved) -> Iterator[int]:
    """The extraction of each group, which all its values share."""
    for group in graph.groups:
        variables = (meaning.chosen[choice.value.name] for choice in group.choices)
        every = {int(extractions[solved.values[variable]]) for variable, extractions in variables}
        (extraction,) = every
        yield extraction


def _chosen(algebra: Algebra, taken: Mapping[Group, set[int]]) -> Chosen:
    return {
        prefix: tuple(min(taken[prefix, number]) for number in range(len(graph.groups)))
        for prefix, graph in algebra.graphs.items()
    }

"""From orbits to layouts: decides which mesh axis does what, after how many do.

A lower bound over orbits holds for layouts. So a plan of layouts that costs what the bound says is optimal, and if the
best renaming of the best plan of orbits costs more, only the orbits that a plan below that cost may have are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...graph.graph import Model, Segment
from ...graph.layout import Layout
from ...graph.layout_typing import Configuration
from ..choices.mesh_symmetry import no_symmetry, symmetry_of
from ..choices.problem_scope import Everything, Neighbours, Renamings, Scope, Selection
from ..choices.restriction import Restriction
from ..exact_search.bounded_search import Optimum, least_cost, nowhere, optimise, raised
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.materialised_layouts import crowded_tensor
from ..folded_solver.problem_part import Domains, Part, everything
from ..folded_solver.reduced_cost_filtering import TOLERANCE
from .model_problem import Prices, Problem, build_problem
from .starting_domains import axis_domains, even_domain, undivided_domain
from .variable_meaning import Crowded, Impossible, Meaning

WORTHWHILE = 1e-3
"""Of the cost: a round of improvement that can gain no more is not begun."""
LAST = 0.02
"""Of the cost: a round that gains less is the last. The next gains a twentieth of that, as far as is known."""
PRECISION = 1e-4
"""Of the cost: plans that are cheaper by less are not looked for in such a round."""
CLOSE = 5e-4
"""Of the cost: a plan of orbits this near to its bound is placed, and only proved where that may prove more."""
HOPELESS = 0.01
"""Of the bound: plans this far above it are not proved optimal by what the bound excludes."""
MOST_PLACED = 16
"""Orbits a variable, on average, that are told apart for a proof; where more are left the gap is told."""


Found = tuple[Problem, Optimum]
"""A plan, with the problem that it is one of."""


def find_plan(model: Model, prices: Prices, restriction: Restriction, below: float) -> Found | None:
    """The best plan of a model; None where none costs less than `below`. Raises Impossible."""
    symmetry = symmetry_of(prices.mesh)
    counted = build_problem(model, prices, restriction, Everything(symmetry))
    if below < np.inf and least_cost(counted.part, everything(counted.part)) >= below:
        return None
    even, best = _solve(counted, beside=symmetry.trivial, precision=0.0 if symmetry.trivial else CLOSE)
    if symmetry.trivial:
        return counted, best
    try:
        return _place(_Placing(model, prices, restriction, counted), even, best)
    except Impossible:  # pins that tell axes apart leave no renaming of this plan
        told = build_problem(model, prices, restriction, Everything(no_symmetry(prices.mesh)))
        return told, _solve(told, beside=True, precision=0.0)[1]


def _solve(problem: Problem, beside: bool, precision: float) -> tuple[Optimum, Optimum]:
    """A good plan with all mesh axes doing the same, or with nothing divided; and the best plan, which is improved by
    what is `beside` it where it is not proved to be that. Raises Crowded where there is none.
    """
    whole = everything(problem.part)
    first = optimise(problem.part, whole.intersected(even_domain(problem)))
    if first.plan is None:
        first = optimise(problem.part, whole.intersected(undivided_domain(problem)))
    near = partial(axis_domains, problem) if beside else nowhere
    best = optimise(problem.part, whole, near, first.cost, precision)
    if best.plan is None:
        best = replace(best, plan=first.plan)
    if best.plan is None:  # every layout converts to any other, but few are held at once
        raise Crowded(crowded_tensor(problem.part))
    return first, best


@dataclass(frozen=True)
class _Placing:
    """What is to be placed: the problem in which mesh axes are `counted`."""

    model: Model
    prices: Prices
    restriction: Restriction
    counted: Problem

    def solve(self, scope: Scope, below: float = np.inf) -> Found:
        problem = build_problem(self.model, self.prices, self.restriction, scope)
        return problem, optimise(problem.part, everything(problem.part), below=below, precision=PRECISION)


def _place(placing: _Placing, even: Optimum, best: Optimum) -> Found:
    """The best renaming of the best plan, or a better plan if there may be one. Raises Impossible if it has none."""
    problem, found = placing.solve(Renamings(_select(placing.counted, [best])))
    if found.plan is None:
        raise Impossible("", None, None)
    if found.cost > best.bound * (1 + WORTHWHILE):
        problem, found = _descend(placing, problem, found, even, best.bound)
    if not best.exact and TOLERANCE < found.cost / best.bound - 1 < HOPELESS:
        before, best = best, raised(best)
        if best.cost < before.cost:
            problem, found = _renamed(placing, best, problem, found)
    if TOLERANCE < found.cost / best.bound - 1 < HOPELESS:
        left = best.narrowed(found.cost, MOST_PLACED)
        if left is not None and not left.empty:
            wider = _tell_apart(placing, left)
            better = optimise(wider.part, everything(wider.part), partial(axis_domains, wider), found.cost)
            best = replace(best, bound=max(best.bound, better.bound))
            if better.plan is not None:
                problem, found = wider, better
    bound = min(best.bound, found.cost)
    return problem, replace(found, bound=bound, exact=found.cost <= bound * (1 + TOLERANCE))


def _tell_apart(placing: _Placing, left: Domains) -> Problem:
    """The problem over the layouts of some orbits."""
    scope = Renamings(_selected(placing.counted, left))
    return build_problem(placing.model, placing.prices, placing.restriction, scope)


def _descend(placing: _Placing, problem: Problem, found: Optimum, even: Optimum, bound: float) -> Found:
    """Better and better plans, each differing from one before along one mesh axis for every operator."""
    selection = _select(problem, [found]).united(_select(placing.counted, [even]))
    while True:
        nearby, better = placing.solve(Neighbours(selection), found.cost)
        if better.plan is None:
            break
        gain, problem, found = 1 - better.cost / found.cost, nearby, better
        if gain < LAST or found.cost <= bound * (1 + WORTHWHILE):
            break
        selection = _select(problem, [found])
    return _renamed(placing, even, problem, found) if even.cost < found.cost else (problem, found)


def _renamed(placing: _Placing, orbits: Optimum, problem: Problem, found: Optimum) -> Found:
    """The best renaming of a plan of orbits, if it costs less than what was found."""
    renamed, better = placing.solve(Renamings(_select(placing.counted, [orbits])), found.cost)
    return (problem, found) if better.plan is None else (renamed, better)


def _select(problem: Problem, found: Sequence[Optimum]) -> Selection:
    """What plans have."""
    return _selected(problem, _chosen(problem.part, [one.plan for one in found if one.plan is not None]))


def _chosen(part: Part, plans: Sequence[Solved]) -> Domains:
    """What any of some plans has."""
    masks = []
    for number, cost in enumerate(part.costs):
        mask = np.zeros(len(cost), dtype=bool)
        mask[[plan.values[number] for plan in plans]] = True
        masks.append(mask)
    bodies = []
    for number, repeat in enumerate(part.repeats):
        iterations = dict.fromkeys(solved for plan in plans for solved in plan.repeats[number])
        bodies.append(_chosen(repeat.body, list(iterations)))
    return Domains(masks, bodies)


def _selected(problem: Problem, left: Domains) -> Selection:
    """The configurations and layouts of what is left, and all that weights may be kept in."""
    configurations: dict[str, frozenset[Configuration]] = {}
    layouts: dict[tuple[int, ...], set[Layout]] = {}
    for prefix, meaning, domains in _parts(problem.meaning, left, ""):
        for name, (variable, options) in meaning.nodes.items():
            kept = np.flatnonzero(domains.masks[variable]).tolist()
            configurations[prefix + name] = frozenset(options.typed[number].configuration for number in kept)
        chosen = [(value, numbers[domains.masks[variable]]) for variable, (value, numbers) in meaning.layouts.items()]
        chosen += [(stored.value, problem.spaces.of(stored.value).storable) for stored in meaning.stored.values()]
        for value, numbers in chosen:
            every = problem.spaces.of(value).layouts
            layouts.setdefault(value.shape, set()).update(every[number] for number in numbers.tolist())
    return Selection(problem.spaces.mesh, configurations, {shape: frozenset(found) for shape, found in layouts.items()})


def _parts(meaning: Meaning, left: Domains, prefix: str) -> Iterator[tuple[str, Meaning, Domains]]:
    yield prefix, meaning, left
    segments = (step for step in meaning.graph.steps if isinstance(step, Segment))
    for segment, body, inner in zip(segments, meaning.bodies, left.bodies, strict=True):
        yield from _parts(body, inner, f"{prefix}{segment.name}.")

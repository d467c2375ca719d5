"""Small domains that hold good plans: all mesh axes alike, nothing divided, neighbours of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ..choices.mesh_symmetry import without_places
from ..choices.operator_options import all_invariant
from ..cost_network.message_passing import Mask
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, Layouts, Part, Port, Repeat, left
from .model_problem import Problem
from .variable_meaning import Meaning


def even_domain(problem: Problem) -> Domains:
    """The part of the space where all mesh axes do the same."""
    return _even(problem, problem.part, problem.meaning)


def undivided_domain(problem: Problem) -> Domains:
    """Everything Invariant that may be: there is such a plan."""
    return _undivided(problem, problem.part, problem.meaning)


def _even(problem: Problem, part: Part, meaning: Meaning) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for variable, found in _choices(problem, meaning):
        masks[variable] = np.array([all(one == every[0] for one in every) for every in found])
    bodies = [_even(problem, repeat.body, body) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)]
    return Domains(masks, bodies)


@dataclass(frozen=True)
class _Around:
    """A body's repeat, and what is left outside of it. `chosen` are the variables that were limited there."""

    repeat: Repeat
    masks: Sequence[Mask]
    chosen: frozenset[int]


def _undivided(problem: Problem, part: Part, meaning: Meaning, around: _Around | None = None) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    chosen = set()
    for variable, options in meaning.nodes.values():
        masks[variable] = _preferred([all_invariant(found) for found in options.typed])
        chosen.add(variable)
    for variable in meaning.kept.values():
        value, layouts = meaning.layouts[variable]
        masks[variable] = _preferred(layouts == problem.spaces.of(value).invariant)
        chosen.add(variable)
    if around is not None:
        _fit(around, masks)
    bodies = [
        _undivided(problem, repeat.body, body, _Around(repeat, masks, frozenset(chosen)))
        for repeat, body in zip(part.repeats, meaning.bodies, strict=True)
    ]
    return Domains(masks, bodies)


def _fit(around: _Around, masks: list[Mask]) -> None:
    """Lets iterations enter with and leave what is there before, between and after them, and take what is there: a pin
    may have fixed some of these, and then Invariant at the others fits nowhere.
    """
    repeat, outside = around.repeat, around.masks
    body = repeat.body

    def add(port: Port, layouts: Layouts) -> None:
        possible = np.isfinite(body.costs[port.variable]) & np.isin(port.layouts, layouts)
        masks[port.variable] = masks[port.variable] | possible

    for initial, result, entry, exit_ in zip(repeat.initial, repeat.results, body.entries, body.exits, strict=True):
        ends = (left(outside, initial), left(outside, result), left(masks, entry), left(masks, exit_))
        for port in (entry, exit_):
            add(port, reduce(np.union1d, ends))
    for own, given in zip(body.captured, repeat.captured, strict=True):
        if given.variable in around.chosen:
            add(own, left(outside, given))


def axis_domains(problem: Problem, plan: Solved) -> Iterator[Domains]:
    """Per mesh axis, what differs from a plan along that axis only; or along an axis that may trade places with it."""
    for axis in range(len(problem.spaces.mesh.axes)):
        yield _beside(problem, problem.part, problem.meaning, [plan], axis)


def _beside(problem: Problem, part: Part, meaning: Meaning, plans: Sequence[Solved], axis: int) -> Domains:
    """Of the plans of a body's iterations any one may be kept along the other axes."""
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    groups = problem.spaces.scope.symmetry.groups
    for variable, found in _choices(problem, meaning):
        kept = {_others(found[plan.values[variable]], groups, axis) for plan in plans}
        masks[variable] = np.array([any(_others(c, groups, a) in kept for a in _group(groups, axis)) for c in found])
    bodies = []
    for number, (repeat, body) in enumerate(zip(part.repeats, meaning.bodies, strict=True)):
        iterations = list(dict.fromkeys(solved for plan in plans for solved in plan.repeats[number]))
        bodies.append(_beside(problem, repeat.body, body, iterations, axis))
    return Domains(masks, bodies)


def _others(chosen: Sequence[Hashable], groups: Sequence[tuple[int, ...]], axis: int) -> Hashable:
    """What the axes other than one do; of axes that may trade places, how many do what."""
    counts = [Counter(chosen[other] for other in group if other != axis) for group in groups]
    return tuple(frozenset(count.items()) for count in counts)


def _group(groups: Sequence[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    return next(group for group in groups if axis in group)


def _choices(problem: Problem, meaning: Meaning) -> Iterator[tuple[int, list[Sequence[Hashable]]]]:
    """Per variable what each of its values does along every mesh axis."""
    for variable, options in meaning.nodes.values():
        yield variable, [found.configuration for found in options.typed]
    for variable in meaning.kept.values():
        value, layouts = meaning.layouts[variable]
        space = problem.spaces.of(value)
        yield variable, [without_places(space.layouts[i]) for i in layouts]


def _preferred(mask: Sequence[bool] | Mask) -> Mask:
    """Those that are wanted, or all if none is."""
    found = np.asarray(mask, dtype=bool)
    return found if found.any() else ~found

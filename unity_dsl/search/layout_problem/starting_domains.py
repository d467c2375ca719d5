"""Small domains that contain good plans: uniform over mesh axes, undivided, or in the neighbourhood of a plan."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from ...machine.mesh import Blocks, refined
from ..choices.axis_choices import AxisChoices
from ..cost_network.message_passing import Mask
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, Layouts, Part, Port, Repeat, left
from .model_problem import Problem
from .variable_meaning import Meaning


def even_domain(problem: Problem) -> Domains:
    """The domain in which every operator and value does the same along all mesh axes."""
    return _even(problem, problem.part, problem.meaning)


def undivided_domain(problem: Problem) -> Domains:
    """The domain in which everything is Invariant that may be. It contains a plan."""
    return _undivided(problem, problem.part, problem.meaning)


def _even(problem: Problem, part: Part, meaning: Meaning) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for _, variable, found in _choices(problem, meaning):
        masks[variable] = (found == found[:, :1]).all(axis=1)
    bodies = [_even(problem, repeat.body, body) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)]
    return Domains(masks, bodies)


@dataclass(frozen=True)
class _Around:
    """A body's repeat, and the masks of the part around it. `chosen` are that part's variables that were limited."""

    repeat: Repeat
    masks: Sequence[Mask]
    chosen: frozenset[int]


def _undivided(problem: Problem, part: Part, meaning: Meaning, around: _Around | None = None) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    chosen = set()
    for variable, options in meaning.nodes.values():
        masks[variable] = _preferred(options.configurations.invariant)
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
    """Allows a body the layouts that are left around it: for carried values those before, between and after iterations,
    for captured values those outside. A pin may have fixed some of these, and then Invariant at the others fits
    nowhere.
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
    """For each mesh axis, the domain of plans that differ from `plan` along that axis only."""
    choices = KnownChoices()
    choices.add(problem, plan)
    for axis in range(len(problem.spaces.mesh.axes)):
        yield near_domain(problem, choices, (axis,))


@dataclass(frozen=True)
class KnownChoices:
    """The choices of some plans along every mesh axis, as `AxisChoices`, by path of operator or value."""

    chosen: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)

    def add(self, problem: Problem, plan: Solved, blocks: Blocks | None = None) -> None:
        """Adds a plan. With `blocks` the plan is of a coarser mesh: an axis takes the choice of the coarser axis it is
        part of.
        """
        self._add(problem, problem.meaning, [plan], "", blocks)

    def join(self, other: KnownChoices) -> None:
        """Adds the choices of other plans."""
        for path, chosen in other.chosen.items():
            self.chosen.setdefault(path, set()).update(chosen)

    def without(self, paths: Container[str]) -> KnownChoices:
        """A copy without the choices at some paths."""
        return KnownChoices({path: chosen for path, chosen in self.chosen.items() if path not in paths})

    def reordered(self, order: Sequence[int]) -> KnownChoices:
        """The same choices on a mesh with other axes: its axis i takes the choice of axis `order[i]`."""
        return KnownChoices(
            {path: {tuple(one[axis] for axis in order) for one in chosen} for path, chosen in self.chosen.items()}
        )

    def _add(
        self, problem: Problem, meaning: Meaning, plans: Sequence[Solved], prefix: str, blocks: Blocks | None
    ) -> None:
        for name, variable, found in _choices(problem, meaning):
            chosen: set[tuple[int, ...]] = {tuple(found[plan.values[variable]].tolist()) for plan in plans}
            if blocks is not None:
                chosen = {refined(one, blocks) for one in chosen}
            self.chosen.setdefault(prefix + name, set()).update(chosen)
        for number, (segment, body) in enumerate(zip(meaning.graph.segments, meaning.bodies, strict=True)):
            iterations = list(dict.fromkeys(solved for plan in plans for solved in plan.repeats[number]))
            self._add(problem, body, iterations, f"{prefix}{segment.name}.", blocks)


def known_domain(problem: Problem, choices: KnownChoices) -> Domains:
    """The domain of the choices that some plans have."""
    return near_domain(problem, choices, ())


def near_domain(problem: Problem, choices: KnownChoices, axes: Sequence[int], reach: int = 1) -> Domains:
    """The domain of choices that differ from one of some plans along at most `reach` of the mesh `axes`, for every
    operator and value.

    A path that the plans lack, because their models have other operators, keeps all its choices.
    """
    others = [axis for axis in range(len(problem.spaces.mesh.axes)) if axis not in axes]

    def near(path: str, found: AxisChoices) -> Mask:
        if path not in choices.chosen:
            return np.ones(len(found), dtype=bool)
        known = np.array(sorted(choices.chosen[path]), dtype=np.intp)
        differs = found[:, None, :] != known
        return np.asarray(((differs.sum(axis=2) <= reach) & ~differs[:, :, others].any(axis=2)).any(axis=1))

    return _limited(problem, problem.part, problem.meaning, "", near)


def _limited(
    problem: Problem, part: Part, meaning: Meaning, prefix: str, holds: Callable[[str, AxisChoices], Mask]
) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for name, variable, found in _choices(problem, meaning):
        masks[variable] = _preferred(holds(prefix + name, found))
    bodies = [
        _limited(problem, repeat.body, body, f"{prefix}{segment.name}.", holds)
        for repeat, body, segment in zip(part.repeats, meaning.bodies, meaning.graph.segments, strict=True)
    ]
    return Domains(masks, bodies)


def _choices(problem: Problem, meaning: Meaning) -> Iterator[tuple[str, int, AxisChoices]]:
    """For each operator or value that has a variable, what each of its choices does along every mesh axis."""
    for name, (variable, options) in meaning.nodes.items():
        yield name, variable, options.along
    for name, variable in meaning.kept.items():
        value, layouts = meaning.layouts[variable]
        yield name, variable, problem.spaces.of(value).along[layouts]


def _preferred(mask: Sequence[bool] | Mask) -> Mask:
    """The mask, or all values if it contains none."""
    found = np.asarray(mask, dtype=bool)
    return found if found.any() else ~found

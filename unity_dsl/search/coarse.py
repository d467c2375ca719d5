"""Small parts of the space that hold good plans: mesh axes doing the same, nothing divided, or what is near a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..graph.layout import Cut, Layout
from .exact import Solved
from .meaning import Meaning
from .network import Mask
from .options import all_invariant
from .part import Domains, Part
from .problem import Problem


def coarse_domains(problem: Problem) -> tuple[Domains, Domains]:
    """The part of the space where all mesh axes do the same, and the undivided model, which always has a plan."""
    return _uniform(problem, problem.part, problem.meaning), _undivided(problem, problem.part, problem.meaning)


def _uniform(problem: Problem, part: Part, meaning: Meaning) -> Domains:
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for variable, options in meaning.nodes.values():
        masks[variable] = np.array([_same(found.configuration) for found in options.typed])
    for value, variable, layouts in meaning.kept.values():
        space = problem.spaces.of(value)
        masks[variable] = np.array([_same(_kinds(space.layouts[i])) for i in layouts])
    bodies = [_uniform(problem, repeat.body, body) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)]
    return Domains(masks, bodies)


def _undivided(problem: Problem, part: Part, meaning: Meaning) -> Domains:
    """Everything Invariant that may be."""
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]
    for variable, options in meaning.nodes.values():
        masks[variable] = _preferred([all_invariant(found) for found in options.typed])
    for value, variable, layouts in meaning.kept.values():
        masks[variable] = _preferred(layouts == problem.spaces.of(value).invariant)
    bodies = [_undivided(problem, repeat.body, body) for repeat, body in zip(part.repeats, meaning.bodies, strict=True)]
    return Domains(masks, bodies)


def axis_domains(problem: Problem, plan: Solved) -> Iterator[Domains]:
    """Per mesh axis, what differs from a plan along that axis only."""
    for axis in range(len(problem.spaces.mesh.axes)):
        yield _beside(problem, problem.part, problem.meaning, [plan], axis)


def _beside(problem: Problem, part: Part, meaning: Meaning, plans: Sequence[Solved], axis: int) -> Domains:
    """Of the plans of a body's iterations any one may be kept along the other axes."""
    masks = [np.ones(len(cost), dtype=bool) for cost in part.costs]

    def others(kinds: Sequence[object]) -> tuple[object, ...]:
        return (*kinds[:axis], *kinds[axis + 1 :])

    def keep(variable: int, found: Sequence[tuple[object, ...]]) -> None:
        kept = {found[plan.values[variable]] for plan in plans}
        masks[variable] = np.array([value in kept for value in found])

    for variable, options in meaning.nodes.values():
        keep(variable, [others(found.configuration) for found in options.typed])
    for value, variable, layouts in meaning.kept.values():
        space = problem.spaces.of(value)
        keep(variable, [others(_kinds(space.layouts[i])) for i in layouts])
    bodies = []
    for number, (repeat, body) in enumerate(zip(part.repeats, meaning.bodies, strict=True)):
        iterations = list(dict.fromkeys(solved for plan in plans for solved in plan.repeats[number]))
        bodies.append(_beside(problem, repeat.body, body, iterations, axis))
    return Domains(masks, bodies)


def _preferred(mask: Sequence[bool] | Mask) -> Mask:
    """Those that are wanted, or all if none is."""
    found = np.asarray(mask, dtype=bool)
    return found if found.any() else ~found


def _same(roles: Sequence[object]) -> bool:
    return all(role == roles[0] for role in roles)


def _kinds(layout: Layout) -> list[object]:
    """Kinds without the nesting, which differs between axes that cut the same dimension."""
    return [(type(kind), kind.dim, kind.by) if isinstance(kind, Cut) else kind for kind in layout.kinds]

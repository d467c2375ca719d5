"""Small parts of the space that hold good plans: all mesh axes doing the same, or nothing divided."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.layout import Cut, Layout
from .network import Mask
from .options import all_invariant
from .part import Domains, Part
from .problem import Meaning, Problem


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


def _preferred(mask: Sequence[bool] | Mask) -> Mask:
    """Those that are wanted, or all if none is."""
    found = np.asarray(mask, dtype=bool)
    return found if found.any() else ~found


def _same(roles: Sequence[object]) -> bool:
    return all(role == roles[0] for role in roles)


def _kinds(layout: Layout) -> list[object]:
    """Kinds without the nesting, which differs between axes that cut the same dimension."""
    return [(type(kind), kind.dim, kind.by) if isinstance(kind, Cut) else kind for kind in layout.kinds]

"""Strategy `unity`: substitutions and machine views together, by backtracking (Unger et al., OSDI 2022).

The search has three levels, with the limits of the authors' artifact. A graph is split, at values that all paths go
through, into parts of about 10 operators. In each part substitutions are searched best first, with a threshold of 1.2
and 20 changed graphs. Every graph has the cost of its best mapping to devices. A mapping gives each operator a 1-D
view: one of its axes is divided over a contiguous group of devices, sums included, and weights are stored as they are
read. Here mappings are solved exactly for the whole graph. The authors' programme splits the graph, and their
substitutions partition one operator at a time, so the result here is no worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ...graph.graph import Graph, Model, Node, Segment
from ...graph.layout import Invariant, Mesh
from ...graph.layout_typing import Along, Configuration, TypedOperator, Uniformly
from ...syntax.diagnostic import InputError
from ..exact_search.bounded_search import Optimum, optimise
from ..layout_problem.model_problem import Problem
from ..model_variants.rewritten_model import Variant
from ..search_end import ended_by, why_ended
from .backtracking import Limits, Place, backtrack
from .kept_storage import KeptAsRead
from .operator_sites import Site, allowed_domains, first_plan
from .recipes import batch_configurations
from .strategy import Chosen, Space, no_plan

LIMITS = Limits(threshold=1.2, budget=20, made=60)
PART = 10
"""Operators in a part: the authors' threshold for a split."""
MADE = 240
"""Most models made for all parts together."""


def unity(space: Space) -> Chosen:
    """Substitutions by backtracking, each model with its best mapping to 1-D views of devices."""
    known: dict[int, tuple[Model, float]] = {}

    def cost(model: Model) -> float:
        if id(model) not in known:
            try:
                known[id(model)] = model, _mapped(space, model)[1].cost
            except InputError:  # a pin may not fit the changed model
                known[id(model)] = model, inf
        return known[id(model)][1]

    best, whole, made = Variant(space.model), True, 0
    if space.rules:
        parts = list(parts_of(space.model))
        for part in parts:
            others = frozenset(place for other in parts if other is not part for place in other)
            before = len(known)
            best, ended = backtrack(best, space.rules, space.library, cost, LIMITS, without=others)
            whole, made = whole and ended, made + len(known) - before
            if made >= MADE or why_ended() is not None:
                whole = False
                break
    with ended_by(None):
        problem, mapped = _mapped(space, best.model)
    if mapped.plan is None:
        raise no_plan("unity", "no 1-D views of operators go together")
    ended_text = "" if whole else "; the search ended at its limits"
    note = f"{len(best.rules)} substitutions in {len(known)} models with their mappings{ended_text}"
    return Chosen(best, problem, mapped.plan, mapped.cost, KeptAsRead(), (note,))


def _mapped(space: Space, model: Model) -> tuple[Problem, Optimum]:
    """The best mapping of a model."""
    mesh = space.meshes[0]
    problem = space.problem(model, mesh, held=KeptAsRead())
    batch = batch_configurations(space.of(model), mesh) or {}
    domains = allowed_domains(problem, lambda site, typed: is_view(site, typed, mesh, batch.get(site.path)))
    found = optimise(problem.part, domains)
    return problem, found if found.plan is not None else first_plan(problem, domains, batch)


def is_view(site: Site, typed: TypedOperator, mesh: Mesh, batch: Configuration | None) -> bool:
    """Whether a configuration divides one axis over a contiguous group of devices whose size is a power of two, or is
    that of data parallelism.
    """
    if typed.configuration == batch:
        return True
    whole = Uniformly(Invariant())
    inner = [axis for axis, role in enumerate(typed.configuration) if role != whole]
    roles = {typed.configuration[axis] for axis in inner}
    count, size = len(mesh.axes), mesh.degree(inner)
    contiguous = inner == list(range(count - len(inner), count))
    return (
        contiguous
        and len(roles) <= 1
        and all(isinstance(role, Along) for role in roles)
        and (not typed.inner and size & (size - 1) == 0)
    )


def parts_of(model: Model) -> Iterator[frozenset[Place]]:
    """The parts of a model: about PART consecutive operators between values on all paths, in every body."""
    for path, graph in _bodies(model.graph, ()):
        part: list[Place] = []
        for place, cut in _cuts(path, graph):
            part.append(place)
            if cut and len(part) >= PART:
                yield frozenset(part)
                part = []
        if part:
            yield frozenset(part)


def _bodies(graph: Graph, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Graph]]:
    yield path, graph
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _bodies(step.body, (*path, step.name))


def _cuts(path: tuple[str, ...], graph: Graph) -> Iterator[tuple[Place, bool]]:
    """Every operator of a graph, and whether at most one value with a gradient is still needed after it."""
    last: dict[str, int] = {}
    for number, step in enumerate(graph.steps):
        last |= {value.name: number for value in step.reads}
    made: set[str] = set()
    for number, step in enumerate(graph.steps):
        made |= {value.name for value in step.makes if value.needs_gradient}
        live = [name for name in made if last.get(name, len(graph.steps)) > number]
        if isinstance(step, Node):
            yield (path, step.name), len(live) <= 1

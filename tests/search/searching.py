"""Sets up a search of a model's plans on some meshes, as a compilation does."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.evaluate import Evaluator
from unity_dsl.search.expected_exposure import expected_exposure
from unity_dsl.search.improve import Search
from unity_dsl.search.layout_pins import Pin
from unity_dsl.search.point import Point
from unity_dsl.search.search_space import SearchSpace
from unity_dsl.search.solver import Part, Solver


def searching(
    model: Model,
    meshes: Sequence[Mesh],
    machine: Machine,
    library: Library,
    pins: dict[str, Pin] | None = None,
    most: float = inf,
) -> Search:
    """A search that has not started. It may simulate at most `most` steps."""
    space = SearchSpace(machine, library, ShardingTheorems(library), pins=pins or {})
    part = Part(model, None, None, frozenset())
    return Search(Solver(space, meshes, lambda count: part), Evaluator(machine, library, most))


def cheapest_point(search: Search) -> Point:
    """The cheapest plan under the expected exposure of steps, without passes."""
    space = search.solver.space
    model = search.solver.part_of(1).model
    point, _ = search.solver.start(1, expected_exposure(space.machine, model, search.solver.meshes[0]))
    return point


def found(search: Search) -> Plan:
    """The plan that the search returns."""
    space, model = search.solver.space, search.solver.part_of(1).model
    plan = search.shortest(expected_exposure(space.machine, model, search.solver.meshes[0]), search.started(1))
    return search.finished(plan)

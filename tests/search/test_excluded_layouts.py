"""Excluded layouts, against the cheapest plan in which a value is pinned to another layout."""

from __future__ import annotations

import pytest

from unity_dsl.graph.layout import Layout
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan, PlannedGraph, PlannedSegment
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.choices.layout_space import Space
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

MODEL = """\
model m[b = 4096, d = 2048, h = 4096]
  input x: f32[b, d]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(0.02)
  y = relu(linear(x, first))
  repeat 3 as layer
    weight up: f32[h, d] ~ normal(0.02)
    weight down: f32[d, h] ~ normal(0.02)
    inner = relu(linear(y, up))
    y = y + linear(inner, down)
  loss mse(y, target)
"""
LIBRARY = load_library()
MACHINE = load_machine("dgx-h100")
MESH = build_mesh(MACHINE, 4, (2, 2))
PINNED = {"first": "weight", "layer.up": "weight", "layer.inner": "value"}


@pytest.fixture(scope="module")
def best() -> Plan:
    model = build_model(parse_model(Source("m.udl", MODEL)), LIBRARY)
    return search(model, MESH, MACHINE, LIBRARY)


def layouts(graph: PlannedGraph, path: str) -> set[Layout]:
    first, _, rest = path.partition(".")
    found = set()
    for step in graph.steps:
        if isinstance(step, PlannedSegment) and step.segment.name == first:
            for run in step.runs:
                found |= layouts(run.body, rest)
    return found | ({graph.values[path].produced} if path in graph.values else set())


@pytest.mark.parametrize("path", PINNED)
def test_the_next_best_layout_is_the_best_that_can_be_pinned(path: str, best: Plan) -> None:
    held = layouts(best.graph, path)
    assert len(held) == 1, "a pin is one layout for all iterations"
    excluded = search(best.model, MESH, MACHINE, LIBRARY, excluded={path: frozenset(held)})
    assert not layouts(excluded.graph, path) & held
    costs = []
    for layout in Space((4096, 2048), best.conversions).layouts:  # type: ignore[arg-type]
        if layout not in held:
            try:
                costs.append(search(best.model, MESH, MACHINE, LIBRARY, pins={path: layout.kinds}).cost.seconds)
            except InputError:
                continue
    assert len(costs) > 2
    assert excluded.cost.seconds <= min(costs) * (1 + 1e-9)
    if len(layouts(excluded.graph, path)) == 1:
        assert excluded.cost.seconds == pytest.approx(min(costs))


def test_what_is_not_chosen_may_be_excluded(best: Plan) -> None:
    other = next(
        layout for layout in Space((2048, 2048), best.conversions).layouts if layout not in layouts(best.graph, "first")
    )  # type: ignore[arg-type]
    found = search(best.model, MESH, MACHINE, LIBRARY, excluded={"first": frozenset({other})})
    assert found.cost.seconds == pytest.approx(best.cost.seconds)

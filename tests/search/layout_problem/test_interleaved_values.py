"""How the cost counts values of repeats that allow interleaved execution."""

from __future__ import annotations

from math import prod

import pytest

from unity_dsl.graph.graph import Segment
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Exposure, PlannedGraph, PlannedSegment
from unity_dsl.index.library import Library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.accounting.plan_cost import plan_cost
from unity_dsl.search.choices.layout_space import ConversionOverlap
from unity_dsl.search.layout_pins import parse_pin
from unity_dsl.search.layout_problem.gather_exposure import interleaved_values
from unity_dsl.search.layout_problem.variable_meaning import Meaning
from unity_dsl.search.meshes.near_search import BestOnMesh
from unity_dsl.search.plan_search import search

from ..conftest import Build

TOWERS = """model towers[b = 64, d = 4096]
  input user: f32[b, d]
  input item: f32[b, d]
  input target: f32[b, d]
  left = user
  repeat 3 as left_layer
    weight w: f32[d, d] ~ normal(0.1)
    left = relu(linear(left, w))
  right = item
  repeat 3 as right_layer
    weight w: f32[d, d] ~ normal(0.1)
    right = relu(linear(right, w))
  both = left * right
  repeat 2 as top_layer
    weight w: f32[d, d] ~ normal(0.1)
    both = relu(linear(both, w))
  loss mse(both, target)
"""


def test_values_of_a_body_are_hidden_and_its_weights_are_not(build: Build) -> None:
    left, *_ = (step for step in build(TOWERS).graph.steps if isinstance(step, Segment))
    found = interleaved_values(left.body, 0.5)
    assert set(found.values()) == {ConversionOverlap(0.5, interleaved=True)} and "w" not in found
    assert {value.name for value in (*left.entry, *left.exit)} <= set(found)


@pytest.mark.parametrize("values", [0.25, 0.5, 1.0])
def test_the_cost_of_a_plan_is_what_the_search_minimised(build: Build, library: Library, values: float) -> None:
    machine = load_machine("dgx-h100")
    mesh, known = build_mesh(machine, 8, (2, 4)), dict[Mesh, BestOnMesh]()
    plan = search(build(TOWERS), mesh, machine.exposing(Exposure(values=values)), library, known=known)
    (found,) = known.values()
    assert plan.cost.seconds == pytest.approx(found.best.cost, rel=1e-6)
    whole = search(build(TOWERS), mesh, machine, library).cost.seconds
    assert plan.cost.seconds <= whole * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize("pin", ["left_layer.w=S0,S1", "left_layer.w=S1,S1", "right_layer.w=S1,S0"])
def test_what_travels_there_and_back_is_hidden_in_both_towers(
    shape: tuple[int, int], pin: str, build: Build, library: Library
) -> None:
    """All other conversions count in full, such as those behind the towers."""
    machine = load_machine("dgx-h100").exposing(Exposure(values=0.5))
    mesh = build_mesh(machine, prod(shape), shape)
    plan = search(build(TOWERS), mesh, machine, library, pins=dict([parse_pin(pin)]))
    prices = ConversionModel(mesh, machine, library, plan.model.gradient_bytes)
    free = {source.value.name for source in plan.model.graph.inputs}
    bodies = [Meaning(segment.body) for segment in plan.model.graph.segments]
    nothing = Meaning(plan.model.graph, free=free, bodies=bodies)
    whole = plan_cost(plan.graph, nothing, prices, plan.model.loss)
    towers = [s for s in plan.graph.steps if isinstance(s, PlannedSegment) and s.segment.name != "top_layer"]
    overlap = sum(run.count * both_ways(run.body, prices) for step in towers for run in step.runs)
    saved = whole.communication - plan.cost.communication
    assert saved == pytest.approx(0.5 * overlap, rel=1e-6, abs=1e-12) and overlap > 0
    assert whole.compute == plan.cost.compute


def both_ways(body: PlannedGraph, prices: ConversionModel) -> float:
    """Seconds of the conversions of a body's values that take time both forward and backward."""
    found = 0.0
    for planned in body.values.values():
        value = planned.value
        for made in () if value.is_weight else planned.materialised:
            steps = prices.conversion(made.source, made.layout, value.shape, value.bytes)
            there = prices.seconds_of(steps.forward, made.source, value.shape, value.bytes)
            back = prices.seconds_of(steps.backward, made.layout.transpose, value.shape, value.bytes)
            if min(there, back) > 1e-7:  # otherwise one of them is a slice, or nothing
                found += there + back
    return found

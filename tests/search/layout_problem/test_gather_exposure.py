"""Which weights a program prefetches, compared with the simulated step."""

from __future__ import annotations

import pytest

from unity_dsl.graph.graph import Segment
from unity_dsl.graph.plan import Exposure, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.choices.layout_space import ConversionOverlap
from unity_dsl.search.layout_pins import parse_pin
from unity_dsl.search.layout_problem.gather_exposure import gather_exposure
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.step_tasks import step_tasks
from unity_dsl.simulation.task import Purpose

from ..conftest import Build

MODEL = """model m[n = 1]
  input x: f32[64, 64]
  input target: f32[64, 64]
  weight first: f32[64, 64] ~ normal(0.1)
  weight tied: f32[64, 64] ~ normal(0.1)
  v = linear(linear(linear(x, first), tied), tied)
  repeat 4 as layer
    weight own: f32[64, 64] ~ normal(0.1)
    v = relu(linear(v, own))
  weight head: f32[64, 64] ~ normal(0.1)
  y = linear(v, head)
  loss mse(y, target)
"""


def test_weights_of_a_loop_and_behind_it_are_gathered_ahead(build: Build) -> None:
    graph = build(MODEL).graph
    (layer,) = (step for step in graph.steps if isinstance(step, Segment))
    assert gather_exposure(graph, 1, 0.1) == {"head": ConversionOverlap(0.1, if_summed=True)}
    assert gather_exposure(layer.body, layer.count, 0.1) == {"own": ConversionOverlap((1 + 3 * 0.1) / 4)}
    assert gather_exposure(layer.body, 1, 0.1) == {}


def test_the_simulated_step_gathers_the_same_ahead(build: Build, library: Library) -> None:
    machine = load_machine("dgx-a100")
    plan = search(build(MODEL), build_mesh(machine, 4), machine, library, "zero")
    gathers = [task for task in step_tasks(plan, machine, library).tasks if task.name == "all_gather"]
    ahead = [task.place for task in gathers if task.purpose is Purpose.WEIGHTS]
    assert sorted(ahead) == ["head", "layer.1.own", "layer.2.own", "layer.3.own"]
    assert {"first", "layer.0.own"} <= {task.place for task in gathers}


@pytest.mark.parametrize(("held", "ahead"), [("S0", True), ("I", False)])
def test_behind_a_loop_only_what_has_a_sum_of_gradients_is_gathered_ahead(
    build: Build, library: Library, held: str, ahead: bool
) -> None:
    """If every device computes the same, the gradient of a gathered weight is sliced, not summed: the gather is
    exposed.
    """
    machine = load_machine("dgx-a100")
    pins = dict(map(parse_pin, ["head=S0", "first=I", "tied=I", "layer.own=I", f"layer.v={held}", f"y={held}"]))

    def plan(gathers: float) -> Plan:
        model, seen = build(MODEL), machine.exposing(Exposure(gathers=gathers))
        return search(model, build_mesh(machine, 4), seen, library, pins=pins)

    found = plan(0.05)
    purposes = {task.place: task.purpose for task in step_tasks(found, machine, library).tasks if "gather" in task.name}
    assert purposes["head"] is (Purpose.WEIGHTS if ahead else Purpose.VALUES)
    assert (found.cost.seconds < plan(1.0).cost.seconds) is ahead

"""A finished plan costs what the search found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import PlannedNode
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.operator_price import price_operator
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.accounting.plan_cost import plan_cost
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.plan_assembly import assemble
from unity_dsl.search.layout_problem.problem_context import prices_on
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..conftest import FOUR, Build
from ..random_models import random_machine

THIN = str(Path(__file__).parents[2] / "program" / "thin.toml")

LARGE = Path(__file__).parents[2] / "program" / "large.udl"


@pytest.mark.parametrize("devices", [2, 4])
def test_windows_cost_what_the_search_found(devices: int, library: Library) -> None:
    """One image and few channels: it is divided along its height, and halos are exchanged."""
    machine = load_machine(THIN)
    model = build_model(parse_model(read_source(LARGE)), library)
    prices = prices_on(build_mesh(machine, devices), machine, library, ShardingTheorems(library))
    problem = build_problem(model, prices, Restriction())
    best = optimise(problem.part, everything(problem.part))
    assert best.plan is not None
    graph = assemble(problem, best.plan, prices.mesh, model)
    nodes = [step for step in graph.steps if isinstance(step, PlannedNode)]
    assert any(layout.overlaps for node in nodes for layout in node.typed.arguments)
    cost = plan_cost(graph, problem.meaning, prices.conversions, model.loss)
    assert cost.seconds == pytest.approx(best.cost, rel=1e-6)


CHAINED = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  a = linear(x, w)
  b = relu(linear(a, w))
  c = linear(b, w) * a
  loss mse(linear(c, w), target)
"""


def test_a_copy_of_a_weight_made_of_a_copy_costs_what_the_search_found(build: Build, library: Library) -> None:
    """Only gradients of a copy that is made from the stored weight are summed in buckets."""
    model, chained = build(CHAINED), 0
    for seed in range(16, 24):
        machine = random_machine(Random(f"copies {seed}"))
        prices = prices_on(FOUR, machine, library, ShardingTheorems(library), model.gradient_bytes)
        problem = build_problem(model, prices, Restriction())
        best = optimise(problem.part, everything(problem.part))
        assert best.plan is not None and best.exact
        graph = assemble(problem, best.plan, prices.mesh, model)
        weight = graph.values["w"]
        chained += sum(made.source != weight.produced for made in weight.materialised)
        cost = plan_cost(graph, problem.meaning, prices.conversions, model.loss)
        assert cost.seconds == pytest.approx(best.cost, rel=1e-6), f"seed {seed}"
    assert chained, "some plan makes a copy of a copy"


PLACED = """model m[n = 1]
  input x: f32[64, 64]
  input target: f32[64, 64]
  weight w1: f32[64, 64] ~ normal(0.1)
  weight w2: f32[64, 64] ~ normal(0.1)
  weight w3: f32[64, 64] ~ normal(0.1)
  first = linear(x, w1)
  second = linear(x, w2)
  third = linear(x, w3)
  loss mse(first * second * third, target)
"""


@pytest.mark.parametrize(("places", "most"), [("000", 3), ("110", 2), ("010", 2), ("012", 1)])
def test_the_busiest_device_counts(places: str, most: int, tmp_path: Path, library: Library) -> None:
    """Three equal products run on single devices. The cost counts those on the busiest device."""
    (tmp_path / "model.udl").write_text(PLACED)
    pins = [f"{name}=@{place}" for name, place in zip(("first", "second", "third"), places, strict=True)]
    request = Request(tmp_path / "model.udl", devices=4, mesh=(4,), pins=["w*=I", *pins])
    plan = compile_model(request).plan
    product, *_ = (step for step in plan.graph.steps if isinstance(step, PlannedNode))
    assert product.placement
    machine, node = load_machine("local"), product.node
    given = node.instance, product.typed, node.dtype, plan.mesh, machine, node.gradients, library
    apart = [step for step in plan.graph.steps if isinstance(step, PlannedNode) and not step.placement]
    rest = sum(
        price_operator(one.node.instance, one.typed, one.node.dtype, plan.mesh, machine, one.node.gradients, library)
        for one in apart
    )
    assert plan.cost.compute == pytest.approx(rest + most * price_operator(*given), rel=1e-6)

"""How the cost counts conversions that decomposed matmuls can overlap with."""

from __future__ import annotations

import pytest

from unity_dsl.graph.chunked_products import chunked_products
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Exposure, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.accounting.plan_cost import plan_cost
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.layout_problem.variable_meaning import Meaning
from unity_dsl.search.meshes.near_search import BestOnMesh
from unity_dsl.search.plan_search import search

from ..conftest import Build

ROWS, WIDTH, HIDDEN = 4096, 2048, 8192
MODEL = f"""model mlp
  input x: f32[{ROWS}, {WIDTH}]
  input target: f32[{ROWS}, {WIDTH}]
  weight a: f32[{WIDTH}, {WIDTH}] ~ normal(0.1)
  weight u: f32[{HIDDEN}, {WIDTH}] ~ normal(0.1)
  weight v: f32[{WIDTH}, {HIDDEN}] ~ normal(0.1)
  h = relu(x * linear(x, a))
  m = relu(linear(h, u))
  y = linear(m, v)
  loss mse(h + y, target)
"""
PINS = parse_pins(["a=I", "h=S0", "m=S1", "y=P"])
PART = 0.25


def planned(build: Build, library: Library, products: float) -> tuple[Plan, float, Machine]:
    """A plan, the cost that the search minimised, and the machine. The second half of the plan is tensor parallel, with
    rows in slices around it.
    """
    machine = load_machine("dgx-h100").exposing(Exposure(products=products))
    mesh, known = build_mesh(machine, 8, (8,)), dict[Mesh, BestOnMesh]()
    plan = search(build(MODEL), mesh, machine, library, pins=PINS, known=known)
    (found,) = known.values()
    return plan, found.best.cost, machine


@pytest.mark.parametrize("products", [PART, 0.9, 1.0])
def test_the_cost_of_a_plan_is_what_the_search_minimised(build: Build, library: Library, products: float) -> None:
    plan, minimised, _ = planned(build, library, products)
    assert plan.cost.seconds == pytest.approx(minimised, rel=1e-6)


def test_a_product_hides_as_much_as_it_takes(build: Build, library: Library) -> None:
    """Overlap of a gather that a product reads and of a sum of its result, forward and backward. It is limited to the
    time of the product, and to a fraction of the conversion.
    """
    plan, _, machine = planned(build, library, PART)
    found = chunked_products(plan.graph, plan.conversions, plan.mesh, library, 2, [])
    assert {found.value.name for found in found.products} == {"h", "y"}
    prices = ConversionModel(plan.mesh, machine, library, plan.model.gradient_bytes)
    nothing = Meaning(plan.model.graph, free={source.value.name for source in plan.model.graph.inputs})
    whole = plan_cost(plan.graph, nothing, prices, plan.model.loss)
    product = 2 * ROWS * WIDTH * HIDDEN / 8 / (machine.peak["f32"] * machine.compute_efficiency)
    saved = 0.0
    for name in ("h", "y"):
        (value, (made,)) = plan.graph.values[name].value, plan.graph.values[name].materialised
        steps = prices.conversion(made.source, made.layout, value.shape, value.bytes)
        there = prices.seconds_of(steps.forward, made.source, value.shape, value.bytes)
        back = prices.seconds_of(steps.backward, made.layout.transpose, value.shape, value.bytes)
        assert min(there, back) > 1e-6
        saved += sum(min(product, (1 - PART) * seconds) for seconds in (there, back))
    assert whole.seconds - plan.cost.seconds == pytest.approx(saved, rel=1e-6)

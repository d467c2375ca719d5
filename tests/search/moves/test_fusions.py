"""The edit that fuses operators in the layouts of a point, against the exact search of the fused model."""

from __future__ import annotations

from dataclasses import replace

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.shipped_rules import ShippedRules, shipped_sources
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.point import Point
from unity_dsl.search.solver import Solver
from unity_dsl.search.strategy_space import algebras_for
from unity_dsl.simulation.step_tasks import simulate_step

from ..conftest import FOUR, Build
from ..searching import cheapest_point, searching

BIASED = """
model m[n = 1]
  input x: f32[64, 32]
  input target: f32[64, 32]
  weight u: f32[32, 32] ~ normal(0.1)
  weight a: f32[32] ~ zeros
  weight v: f32[32, 32] ~ normal(0.1)
  weight b: f32[32] ~ zeros
  h = linear(x, u) + a
  loss mse(linear(relu(h), v) + b, target)
"""
MACHINE = load_machine("dgx-h100")


def unfused(build: Build, library: Library, pins: tuple[str, ...] = ()) -> tuple[Solver, Point]:
    """The cheapest point of the model as written, and a solver that knows the shipped fusions."""
    model = build(BIASED)
    search = searching(model, [FOUR], MACHINE, library, pins=parse_pins(pins))
    shipped = ShippedRules(shipped_sources(), library)
    algebras = algebras_for(model, "auto", shipped, ())
    assert algebras is not None
    algebras.of(model, MACHINE, frozenset())
    space = replace(search.solver.space, fusions=list(shipped.fitting(model)), algebras=algebras)
    return replace(search.solver, space=space), cheapest_point(search)


def operators(plan: Plan) -> list[str]:
    names = (node.instance.operator.name for node in plan.model.graph.nodes())
    return sorted(name for name in names if name.startswith("linear"))


def test_biases_are_added_within_products_for_fewer_launches(build: Build, library: Library) -> None:
    """The plan costs what the exact search of the fused model finds, or is a local optimum near it. Its step is
    shorter.
    """
    solver, point = unfused(build, library)
    new = solver.fused(point)
    assert new is not None and operators(point.plan) == ["linear", "linear"]
    assert operators(new.plan) == ["linear_bias", "linear_bias"]
    assert [rule.rule for rule in new.plan.rules] == ["linear_with_bias", "linear_with_bias"]
    problem = build_problem(new.plan.model, point.context.priced(FOUR), Restriction())
    best = optimise(problem.part, everything(problem.part))
    assert best.exact and best.cost * (1 - 1e-9) <= new.plan.cost.seconds < point.plan.cost.seconds
    steps = [simulate_step(one.plan, MACHINE, library).seconds for one in (point, new)]
    assert steps[1] < steps[0]
    assert solver.fused(new) is None, "nothing is left to fuse"


def test_a_pinned_value_is_not_fused_away(build: Build, library: Library) -> None:
    solver, point = unfused(build, library, ("linear_1=S0",))
    new = solver.fused(point)
    assert new is not None and operators(new.plan) == ["linear", "linear_bias"]

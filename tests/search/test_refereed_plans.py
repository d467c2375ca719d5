"""Meshes that a model as it is was nearly as fast on, once rules have changed it: by plans whose seconds are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import AppliedRule, Plan
from unity_dsl.graph.typed_configurations import Theorems
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.meshes.fine_meshes import PROMISING
from unity_dsl.search.plan_search import search
from unity_dsl.search.refereed_plans import shortest_of_ties
from unity_dsl.search.shortest_beside import Later
from unity_dsl.search.wanted import Wanted
from unity_dsl.simulation.step_tasks import simulate_step

from .conftest import Build

MODEL = """
model small[n = 1]
  input x: f32[64, 64]
  input target: f32[64, 64]
  weight a: f32[64, 64] ~ normal(0.1)
  loss mse(relu(linear(x, a)), target)
"""


def test_the_shortest_step_of_the_model_that_rules_made(build: Build, library: Library) -> None:
    machine = load_machine("dgx-h100")
    theorems: Theorems = ShardingTheorems(library)
    plans = {mesh: replace(search(build(MODEL), mesh, machine, library), mesh=mesh) for mesh in all_meshes(machine, 8)}
    first, *others = plans
    asked: list[tuple[Mesh, float]] = []

    def plan_on(meshes: Sequence[Mesh], _: Wanted, below: float) -> Plan | None:
        asked.append((meshes[0], below))
        return plans[meshes[0]]

    for seconds, taken in (((3.0, 2.0, 2.5), 1), ((3.0, 2.5, 2.0), 2), ((2.0, 2.5, 3.0), 0)):
        told = dict(zip(plans, seconds, strict=False))

        def referee(plan: Plan, below: float = inf, told: dict[Mesh, float] = told) -> float:
            return told[plan.mesh]

        wanted = Wanted(machine, library, theorems, "auto", {}, 0.0, referee=referee)
        wanted.ties[:] = others[:2]
        plain, asked[:] = plans[first], []
        assert shortest_of_ties(plain, wanted, plan_on) is plain and not asked, "no rule changed the model"
        changed = replace(plain, rules=(AppliedRule("a_rule", "h"),), considered=7)
        best = shortest_of_ties(changed, wanted, plan_on)
        assert asked == [(mesh, wanted.cost(plain) * PROMISING) for mesh in others[:2]]
        assert (best.mesh, best.rules, best.considered) == ([first, *others][taken], changed.rules, 7)
        assert (best is changed) == (taken == 0)


def test_of_equal_steps_that_on_the_mesh_of_the_fewest_axes(build: Build, library: Library) -> None:
    """A model that is too small to be divided: all meshes have the same step."""
    machine = load_machine("local")
    meshes = sorted(all_meshes(machine, 8), key=lambda mesh: -len(mesh.axes))
    assert len(meshes) > 2
    small = build(MODEL.replace("64", "8"))
    later = Later()

    def referee(plan: Plan, below: float = inf) -> float:
        return simulate_step(plan, machine, library).seconds

    plan = search(small, meshes, machine, library, referee=referee, later=later)
    others = later.compared(plan)
    assert others and all(other.mesh.degrees != (8,) and referee(other) == referee(plan) for other in others)
    (told,) = (note for note in plan.notes if note.startswith("simulated were"))
    assert told.endswith("the shortest step is that on 8")
    assert plan.mesh.degrees == (8,)

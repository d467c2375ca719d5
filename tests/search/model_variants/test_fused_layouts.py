"""Layouts of fused models that are too large for a whole search: against the whole search, and against pins."""

from __future__ import annotations

from random import Random

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine
from unity_dsl.rules.shipped_fusions import fusions_for, shipped_fusions
from unity_dsl.search.choices.restriction import places
from unity_dsl.search.layout_pins import Pin
from unity_dsl.search.meshes import mesh_search
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.read import read_source

from ..conftest import FOUR, Build
from ..random_models import random_machine

LAYERS = """model layers[b = {b}, d = {d}, h = {h}]
  input x: f32[b, d]
  input target: f32[b, d]
  weight up: f32[h, d] ~ normal(0.1)
  weight up_bias: f32[h] ~ normal(0.1)
  weight down: f32[d, h] ~ normal(0.1)
  weight down_bias: f32[d] ~ normal(0.1)
  a = relu(linear(x, up) + up_bias)
  y = down_bias + linear(a, down)
{then}  loss mse(y * x, target)
"""
REPEATED = """  repeat 3 as layer
    weight turn: f32[d, d] ~ normal(0.1)
    weight turn_bias: f32[d] ~ normal(0.1)
    y = tanh(linear(y, turn) + turn_bias)
"""
NEAR = "layouts were searched in the neighbourhood of the plan before; notes above are of the model before"


def planned(
    model: Model, machine: Machine, library: Library, fuse: bool = True, pins: dict[str, Pin] | None = None
) -> Plan:
    sources = [read_source(shipped_fusions())] if fuse else []
    fusions = [accepted.rule for accepted in fusions_for(model, sources, library)]
    return search(model, FOUR, machine, library, pins=pins or {}, fusions=fusions)


def pins_of(plan: Plan, model: Model) -> dict[str, Pin]:
    """The layouts of a plan, for the weights and values that another model has as well."""
    kept = {place.path for place in places(model) if not place.given}
    return {name: value.produced.kinds for name, value in plan.graph.values.items() if name in kept}


def test_what_is_near_the_fused_operators_is_searched(
    library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never dearer than the given plan, nor than the fused model in that plan's layouts. Never cheaper than the
    optimum.
    """
    fused = 0
    for seed in range(24):
        rng = Random(seed)
        b, d, h = (4 * rng.choice((1, 8, 64, 512)) for _ in "bdh")
        repeated, machine = seed % 2 == 1, random_machine(rng)
        model = build(LAYERS.format(b=b, d=d, h=h, then=REPEATED if repeated else ""))
        whole, given = planned(model, machine, library), planned(model, machine, library, fuse=False)
        with monkeypatch.context() as patched:
            patched.setattr(mesh_search, "LARGE", 0)
            near = planned(model, machine, library)
        assert [used.place for used in near.rules] == [used.place for used in whole.rules], seed
        if not near.rules:
            continue
        fused += 1
        assert near.notes[-1].endswith(NEAR) and not whole.notes[-1].endswith(NEAR), seed
        assert near.notes[:-1] == given.notes, seed
        assert whole.cost.seconds <= near.cost.seconds * (1 + 1e-9) and near.cost.seconds < given.cost.seconds, seed
        if not repeated:
            carried = planned(near.model, machine, library, fuse=False, pins=pins_of(given, near.model))
            assert near.cost.seconds <= carried.cost.seconds * (1 + 1e-9), seed
    assert fused >= 12, fused

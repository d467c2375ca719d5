"""The exposure that is expected before a plan is known, for models whose sums and products are counted by hand."""

from __future__ import annotations

import pytest

from unity_dsl.graph.plan import Exposure
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.expected_exposure import AHEAD, expected_exposure

from .conftest import Build

MODEL = """
model m[b = 1024, d = 4096]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.1)
  weight v: f32[d, d] ~ normal(0.1)
  loss mse(linear(relu(linear(x, w)), v), target)
"""


@pytest.mark.parametrize("b", [32, 128, 1 << 20])
def test_sums_are_exposed_as_far_as_they_take_longer_than_the_backward_pass(build: Build, b: int) -> None:
    machine, d, devices = load_machine("dgx-a100"), 4096, 8
    model = build(MODEL.replace("1024", str(b)))
    found = expected_exposure(machine, model, build_mesh(machine, devices))
    first = machine.levels[0]
    hops = 8.4e-6 + (devices - 1) * 3.4e-6  # hops of a ring with Simple
    summed = hops + (devices - 1) / devices * 2 * 4 * d * d / first.bandwidth
    beside = 2 / 3 / 0.5 * 5 * (2 * b * d * d) / devices / (machine.peak["f32"] * machine.compute_efficiency)
    assert found.sums == pytest.approx(max(AHEAD.sums, 1 - beside / summed), abs=0.02)
    assert (found.launches, found.gathers) == (AHEAD.launches, AHEAD.gathers)


def test_without_sums_it_is_what_experience_says(build: Build) -> None:
    machine, model = load_machine("dgx-a100"), build(MODEL)
    assert expected_exposure(machine, model, build_mesh(machine, 1)) == AHEAD
    call = build(
        "model m[n = 1]\n  input x: f32[8, 8]\n  weight w: f32[8, 8] ~ normal(0.1)\n  output linear(x, w) as y"
    )
    assert expected_exposure(machine, call, build_mesh(machine, 8)) == AHEAD


def test_everything_where_the_host_computes(build: Build) -> None:
    machine = load_machine("local")
    assert expected_exposure(machine, build(MODEL), build_mesh(machine, 2)) == Exposure()

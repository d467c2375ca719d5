"""A machine file is read back as measured, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.index.cost.lowering_class import LoweringClass
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import read_machine
from unity_dsl.machine.measured_collectives import MeasuredCollectives
from unity_dsl.machine.measured_curves import Curve
from unity_dsl.machine.measured_operators import CurveKey, Direction, GridKey, MeasuredOperators, WorkCurve, class_name
from unity_dsl.profiling.machine_file import machine_file
from unity_dsl.profiling.machine_profile import MachineProfile
from unity_dsl.profiling.measured_tables import operator_curves, product_grid, rising_curve
from unity_dsl.profiling.samples import ProductPlan, streamed_samples
from unity_dsl.syntax.span import Source

LIBRARY = load_library()


def drawn_profile(random: np.random.Generator) -> MachineProfile:
    """A profile of random times, in the form of measurements."""

    def curve() -> Curve:
        return rising_curve([(amount, float(random.exponential(1e-3))) for amount in (1e3, 123456.0, 7654321.0)])

    plans = [ProductPlan(LoweringClass.CONTRACTION, batched, (1, 8), (4, 64), (9, 81)) for batched in (False, True)]
    grids = {
        GridKey(plan.kind, "f32", Direction.LEFT, plan.batched): product_grid(
            plan, random.exponential(1e-3, (2, 2, 2)), 3.21e-6
        )
        for plan in plans
    }
    curves = {
        CurveKey(class_name(LoweringClass.ROW_REDUCTION), "f32", Direction.BACKWARD): WorkCurve("bytes", curve()),
        CurveKey("causal_attention", "bf16", Direction.FORWARD): WorkCurve("flops", curve()),
    }
    collectives = {(StepKind.ALL_GATHER, 2): curve(), (StepKind.ALL_REDUCE, 4): curve()}
    return MachineProfile(
        "cpu",
        4,
        ("f32",),
        dict.fromkeys(("f64", "f32", "bf16", "f16"), 3.2e10),
        12.3e9,
        1.7e-6,
        MeasuredOperators(curves, grids, curve()),
        MeasuredCollectives(collectives),
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_back(seed: int) -> None:
    profile = drawn_profile(np.random.default_rng(seed))
    text = machine_file(profile, "mine", 4e9, ["a comment"])
    machine = read_machine(Source("mine.toml", text))
    assert machine.measured == profile.operators
    assert machine.collectives.measured == profile.collectives
    assert machine.name == "mine"
    assert machine.devices == 4
    assert machine.memory_bandwidth == pytest.approx(12.3e9)
    assert machine.peak["f32"] == pytest.approx(32e9)
    assert max(map(len, text.splitlines())) <= 150


def test_noise_is_taken_out_where_more_seems_faster() -> None:
    """Two points out of order both get their geometric mean."""
    assert rising_curve([(1.0, 1e-3), (2.0, 4e-3), (3.0, 1e-3), (4.0, 9e-3)]).seconds == pytest.approx(
        (1e-3, 2e-3, 2e-3, 9e-3)
    )
    assert rising_curve([(5.0, 1e-3), (5.0, 3e-3), (5.0, 2e-3)]) == Curve((5.0,), (2e-3,))


def test_a_batch_is_told_from_its_launch() -> None:
    plan = ProductPlan(LoweringClass.CONTRACTION, True, (8,), (8,), (8,))
    batch = plan.batch(8, 8, 8)
    assert batch == 256
    grid = product_grid(plan, np.full((1, 1, 1), 5e-6 + batch * 2e-7), 5e-6)
    assert grid.seconds[0, 0, 0] == pytest.approx(2e-7)
    assert grid.launch == pytest.approx(5e-6)


def test_an_operator_unlike_its_class_has_a_curve_of_its_own() -> None:
    """`relu`, `neg` and `abs` take about the same time, `exp` ten times that. `add` passes its gradients on."""
    seconds = {"relu": 1.0, "neg": 1.1, "abs": 0.9, "exp": 10.0, "add": 1.0}
    points = {}
    for name, factor in seconds.items():
        for sample in streamed_samples(LIBRARY.operators[name], [2**16, 2**20], "f32"):
            points.setdefault((name, sample.direction), []).append((sample, factor * sample.bytes * 1e-9))
    found = operator_curves(points, [2**16, 2**20], "f32")
    forward = CurveKey(class_name(LoweringClass.ELEMENTWISE), "f32", Direction.FORWARD)
    assert found[forward].curve.at(1e6) == pytest.approx(1e-3, rel=1e-3)
    assert {key.name for key in found if key.direction is Direction.FORWARD} == {forward.name, "exp"}
    assert not any(key.name == "add" for key in found)

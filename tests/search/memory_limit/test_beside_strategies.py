"""Plans within a memory limit, by simulated steps: against those of other strategies and fixed settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan

MODEL = """
model m[b = 8, s = 16, d = 32, f = 64, v = 64]
  input tokens: int<v>[b, s]
  input target: int<v>[b, s]
  weight table: f32[v, d] ~ normal(0.1)
  x = embedding(tokens, table)
  repeat 3 as layer
    weight gain: f32[d] ~ ones
    weight up: f32[f, d] ~ normal(0.1)
    weight down: f32[d, f] ~ normal(0.1)
    x = x + linear(relu(linear(rms_norm(x, gain), up)), down)
  loss cross_entropy(linear(x, table), target)
"""
OTHERS = (
    {"strategy": "zero"},
    {"strategy": "data_parallel"},
    {"recompute": "layer:1"},
    {"recompute": "all"},
    {"micro_batches": 2},
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("model") / "m.udl"
    model.write_text(MODEL)
    return model


@pytest.fixture(scope="module")
def free(path: Path) -> Plan:
    return compile_model(Request(path, devices=2)).plan


@pytest.mark.a_day(2)
@pytest.mark.parametrize("part", [0.95, 0.85, 0.75, 0.7])
def test_no_other_plan_within_the_memory_has_a_shorter_step(part: float, path: Path, free: Plan) -> None:
    """With room for all but a layer, and with room only if all weights are in slices, or also a layer is recomputed.
    Before a step is simulated, gathers count in full, though it overlaps most of them.
    """
    limit = int(part * free.cost.memory.total)
    found = compile_model(Request(path, devices=2, memory=limit)).plan
    assert not found.warnings and found.cost.memory.total <= limit
    fitting = []
    for asked in OTHERS:
        other = compile_model(Request(path, devices=2, memory=limit, **asked)).plan  # type: ignore[arg-type]
        fitting += [] if other.warnings else [other.seconds]
    assert fitting and found.seconds <= min(fitting) * (1 + 1e-9)


def test_what_the_limit_takes_is_told_as_without_it(path: Path, free: Plan) -> None:
    """Bytes and seconds of the plan without a limit, and the ratio of both simulated steps."""
    limit = int(0.75 * free.cost.memory.total)
    found = compile_model(Request(path, devices=2, memory=limit)).plan
    told = [match for note in found.notes if (match := _TOLD.fullmatch(note))]
    assert len(told) == 1 and not any("memory is the limit" in note for note in free.notes)
    held, allowed, taken, longer = map(float, told[0].groups())
    assert held == pytest.approx(free.cost.memory.total / 1e3, rel=0.005)
    assert allowed == pytest.approx(limit / 1e3, rel=0.005)
    assert taken == pytest.approx(free.seconds * 1e6, rel=0.005)
    assert longer == pytest.approx(100 * (found.seconds / free.seconds - 1), rel=0.05)


_TOLD = re.compile(
    r"memory is the limit: the cheapest plan of all, on the mesh 2, would hold (\S+) kB of (\S+) kB and take (\S+) µs "
    r"a step, and this one takes (\d+) % longer"
)

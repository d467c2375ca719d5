"""Notes on steps in which devices wait for the host, against the time of the kernels alone."""

from __future__ import annotations

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.simulation.task import COMPUTE
from unity_dsl.written_figures import duration

MLP = folder("examples") / "mlp.udl"


@pytest.mark.parametrize("devices", [1, 2])
def test_a_small_model_waits_for_its_launches(devices: int) -> None:
    """Without launches a step on one device is its kernels, one after the other."""
    compiled = compile_model(Request(MLP, preset="small", machine="dgx-h100", devices=devices))
    (note,) = (note for note in compiled.plan.notes if "launch kernels" in note)
    timeline = simulate_step(compiled.plan, load_machine("dgx-h100"), compiled.library)
    assert f"in place of {duration(timeline.seconds)}; `train.py --compile` launches fewer" in note
    assert ("--cuda-graphs" in note) == (devices == 1)
    if devices == 1:
        assert f"the step would take {duration(timeline.busy[0, COMPUTE])} " in note


@pytest.mark.parametrize(("machine", "settings"), [("local", {}), ("dgx-h100", {"b": 16384})])
def test_a_cpu_and_large_kernels_do_not(machine: str, settings: dict[str, int]) -> None:
    plan = compile_model(Request(MLP, settings, machine=machine)).plan
    assert not any("launch kernels" in note for note in plan.notes)

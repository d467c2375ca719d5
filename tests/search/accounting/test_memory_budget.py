"""Peak memory of a plan: that of all tasks of its step, divided into parts, and equal wherever it is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from unity_dsl.cli import run
from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Memory
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder
from unity_dsl.search.accounting.memory_budget import Budget, memory_warnings
from unity_dsl.search.accounting.memory_prediction import predict_memory
from unity_dsl.simulation import step_memory
from unity_dsl.simulation.step_memory import most_held
from unity_dsl.simulation.step_tasks import step_tasks

EXAMPLES = folder("examples")
DEEP = {"layers": 15}


@pytest.mark.parametrize(
    ("example", "settings", "recompute", "micro_batches"),
    [
        ("gpt2", DEEP, "none", None),
        ("gpt2", DEEP, "layer:7", None),
        ("llama3_8b", {**DEEP, "b": 16}, "all", 4),
        ("mixtral_8x7b", DEEP, "none", None),
        ("mlp", {"layers": 20, "b": 64}, "hidden:11", None),
        ("lstm_lm", {}, "none", None),
        ("skipnet", {}, "none", None),
    ],
)
def test_iterations_that_stand_for_others_hold_what_all_do(
    example: str, settings: dict[str, int], recompute: str, micro_batches: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the peak of all tasks, listed one by one. Without bucketing, since in models this small all gradients
    would wait in a bucket.
    """
    monkeypatch.setattr(step_memory, "FULL", 0)
    machine = load_machine("dgx-h100")
    for strategy in ("data_parallel", "random:1"):
        request = Request(EXAMPLES / f"{example}.udl", settings, "small", devices=2, strategy=strategy)
        compiled = compile_model(replace(request, recompute=recompute, micro_batches=micro_batches))
        plan, library = compiled.plan.with_passes(bucket_mib=0), compiled.library
        every = step_tasks(plan, machine, library).peak()
        brief, _ = most_held(plan, machine, library)
        assert brief.bytes == pytest.approx(every.bytes, rel=1e-3), strategy


def test_parts_of_what_is_held() -> None:
    """For random plans: the parts add up to the peak of their tasks. There are no gradients when the loss is computed,
    and all of them while the weights are updated. No plan that fits is reported as beyond the memory.
    """
    machine, seen = load_machine("local"), set()
    for seed in range(12):
        example, size = Random(seed).choice([("mlp", 8), ("mlp", 512), ("gpt2", 4), ("dlrm", 8)])
        path = EXAMPLES / f"{example}.udl"
        compiled = compile_model(Request(path, {"b": size}, "small", devices=2, strategy=f"random:{seed}"))
        plan, library = compiled.plan, compiled.library
        memory = Budget(machine, library).held(plan)
        assert memory == plan.cost.memory
        assert memory.total == pytest.approx(step_tasks(plan, machine, library).peak().bytes), seed
        kept = predict_memory(plan.model, plan.graph, plan.mesh, library)
        assert (memory.parameters, memory.optimizer) == (kept.parameters, kept.optimizer)
        if memory.at == "optimizer":
            assert memory.gradients >= kept.gradients, seed
        elif memory.at.endswith(" of loss"):
            assert memory.gradients == 0, seed
        seen.add(memory.at == "optimizer")
        assert not Budget(machine.holding(int(memory.total) + 1), library).is_beyond(plan), seed
        assert Budget(machine.holding(int(memory.total / 4)), library).is_beyond(plan), seed
    assert seen == {False, True}


def test_a_plan_that_does_not_fit_is_refused_and_every_command_tells_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan.json`, the summary, `explain` and `compare` report one number, which decides whether the plan fits."""
    model, out = str(EXAMPLES / "gpt2.udl"), str(tmp_path / "out")
    asked = [model, "--preset", "small", "--devices", "2", "--machine", "dgx-h100", "--json"]
    assert run([*asked, "-o", out]) == 0
    capsys.readouterr()
    memory = json.loads((tmp_path / "out" / "plan.json").read_text())["cost"]["memory"]
    parts = ("parameters", "buffers", "gradients", "optimizer", "activations")
    assert memory["total"] == pytest.approx(sum(memory[part] for part in parts)) and memory["at"]
    assert run(["explain", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["peak_memory_bytes"] == told["memory_bytes"] == memory["total"]
    for most, fits in ((memory["total"], True), (memory["total"] - 1, False)):
        limit = ["--memory", f"{int(most)}B", "-s", "data_parallel"]
        assert run(["compare", *asked, *limit]) == 0
        (row,) = json.loads(capsys.readouterr().out)["strategies"]
        if row["peak_memory_bytes"] == memory["total"]:
            assert row["fits"] == fits
        assert row["fits"] == (row["peak_memory_bytes"] <= int(most))


@pytest.mark.parametrize(("gradients", "told"), [(0.0, False), (1e9, True)])
def test_micro_batches_are_advised_where_gradients_accumulate(gradients: float, told: bool) -> None:
    machine = load_machine("local")
    memory = Memory(activations=2.0 * machine.memory_bytes, gradients=gradients)
    (warning,) = memory_warnings(memory, machine)
    assert ("--micro-batches" in str(warning.help)) is told and "of the batch" in str(warning.help)

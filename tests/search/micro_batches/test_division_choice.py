"""The number of micro-batches of a step: that of the cheapest plan that fits, among numbers fixed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tests.sampling import EVERYTHING, of_the_day
from unity_dsl.cli import run
from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import BatchDivision, Cost, Memory, Plan
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder
from unity_dsl.search.memory_limit.stored_bytes import StoredBytes
from unity_dsl.search.micro_batches.division_choice import cheapest_division
from unity_dsl.syntax.diagnostic import fail

EXAMPLES = folder("examples")


def request(example: str, memory: int, count: int | None = None, devices: int = 2) -> Request:
    settings = {"b": 256 if example == "mlp" else 32}  # with less, an mlp's peak is in the weight update
    path = EXAMPLES / f"{example}.udl"
    return Request(path, settings, "small", devices=devices, memory=memory, micro_batches=count)


def planned(example: str, memory: int, count: int | None = None, devices: int = 2) -> Plan:
    return compile_model(request(example, memory, count, devices)).plan


LIMITED = of_the_day([("mlp", 1, 0.6), ("mlp", 1, 0.25), ("mlp", 2, 0.6), ("mlp", 2, 0.2)], 2)
"""Examples, devices, and the fraction of the activations that fits."""
if EVERYTHING:
    LIMITED.append(("gpt2", 2, 0.12))


@pytest.mark.parametrize(("example", "devices", "part"), LIMITED)
def test_the_cheapest_number_that_fits_is_taken(example: str, devices: int, part: float) -> None:
    """By simulated steps, against every power of two, each compiled separately. Limits allow a fraction of the
    activations of the whole batch.
    """
    whole = planned(example, 10**12, devices=devices)
    assert whole.micro_batches == 1 and whole.unlimited_seconds is None
    held, stored = whole.cost.memory, 5 * whole.cost.memory.parameters  # with gradients, moments, the update's
    shares = 1 if example == "mlp" else devices
    memory = int((stored + part * held.activations) / shares)
    fixed = [planned(example, memory, count, devices) for count in (1, 2, 4, 8, 16, 32)]
    fitting = [plan for plan in fixed if not plan.warnings]
    found = planned(example, memory, devices=devices)
    assert not found.warnings and found.cost.memory.total <= memory
    best = min(plan.seconds for plan in fitting)
    assert found.seconds <= best * 1.01, (found.micro_batches, [plan.seconds for plan in fixed])
    assert found.micro_batches > 1 or part > 0.5
    if found.micro_batches > 1:
        assert any("memory asks for micro-batches" in note for note in found.notes)


def test_no_more_are_tried_where_the_cheapest_plan_of_all_takes_longer() -> None:
    """With plans of given seconds: that of four micro-batches does not fit. It is not searched within the memory, and
    larger numbers are not tried.
    """
    some = planned("mlp", 10**12)
    warning = planned("mlp", 1).warnings
    asked: list[tuple[int, float]] = []

    def plan_of(count: int, below: float) -> Plan:
        asked.append((count, below))
        seconds, unlimited = {1: (1.0, 1.0), 2: (1.5, 1.2), 4: (1.6, 1.6)}[count]
        division = None if count == 1 else BatchDivision("b", {}, count, (), 1)
        plan = replace(some, cost=Cost(compute=seconds), unlimited_seconds=unlimited, division=division)
        return replace(plan, warnings=() if count == 2 else warning)

    best = cheapest_division(plan_of, load_machine("local"), StoredBytes({}))
    assert asked == [(1, inf), (2, inf), (4, 1.5)] and best.micro_batches == 2
    told = "of those tried 1 does not fit, 2 takes 1.5 s, 4 would take 1.6 s without a limit"
    assert any(told in note for note in best.notes)


def test_what_runs_iterations_again_is_compared_with_what_does_not_by_their_steps() -> None:
    """After a plan that recomputes iterations, the search asks for the number of micro-batches that needs no
    recomputation, or the next lower one that divides the batch. The plan with the shorter step is taken. A plan that
    costs far more is not simulated.
    """
    some, warning = planned("mlp", 10**12), planned("mlp", 1).warnings
    for steps, chosen in (({2: 1.6, 16: 1.5}, 16), ({2: 1.4, 16: 1.5}, 2), ({2: 1.1}, 2)):
        asked: list[tuple[int, float]] = []

        def plan_of(count: int, below: float, asked: list[tuple[int, float]] = asked) -> Plan:
            asked.append((count, below))
            if count > 16:
                raise fail("E317", f"not {count}")
            division = None if count == 1 else BatchDivision("b", {}, count, (), 1)
            memory = Memory(activations=100.0 if count == 1 else 3.0)
            cost = Cost(compute={1: 1.0, 2: 1.2, 16: 1.55}[count], memory=memory)
            again = frozenset({"layer"} if count == 2 else ())
            plan = replace(some.with_passes(recomputed=again), cost=cost, unlimited_seconds=1.0, division=division)
            return replace(plan, warnings=warning if count == 1 else (), least_bytes=6.0 if count == 1 else None)

        def kept_bytes(plan: Plan) -> float:
            return 64.0

        machine = load_machine("local").holding(4)
        best = cheapest_division(
            plan_of, machine, StoredBytes({}), lambda plan, steps=steps: steps[plan.micro_batches], kept_bytes
        )
        assert asked[:4] == [(1, inf), (2, inf), (32, steps[2]), (16, steps[2])] and best.micro_batches == chosen


def test_numbers_of_nearly_equal_cost_are_compared_by_their_steps() -> None:
    """A cost counts what a step overlaps. The plan of two micro-batches costs more than the step of the whole batch
    takes, but hardly more than the whole batch costs, so it is simulated.
    """
    some = planned("mlp", 10**12)
    steps = {1: 0.8, 2: 0.7}

    def plan_of(count: int, below: float) -> Plan:
        division = None if count == 1 else BatchDivision("b", {}, count, (), 1)
        cost, unlimited = {1: (1.0, 0.6), 2: (1.02, None)}[count]
        return replace(some, cost=Cost(compute=cost), unlimited_seconds=unlimited, division=division)

    machine = load_machine("local")
    best = cheapest_division(plan_of, machine, StoredBytes({}), lambda plan: steps[plan.micro_batches])
    assert best.micro_batches == 2


def test_a_batch_that_fits_is_run_whole() -> None:
    assert planned("mlp", 10**9).micro_batches == 1


def test_weights_that_do_not_fit_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No number of micro-batches is tried if none can help. An operator that mixes examples is named."""
    arguments = [str(EXAMPLES / "mlp.udl"), "--preset", "small", "-o", str(tmp_path / "out"), "--memory"]
    assert run([*arguments, "10kB"]) == 2
    assert "micro-batches would not help: weights and the optimizer take" in capsys.readouterr().err
    arguments[0] = str(EXAMPLES / "resnext50.udl")
    assert run([*arguments, "600kB"]) == 2
    told = capsys.readouterr().err
    assert "E313" in told and "micro-batches were not tried: 2 cannot be: `batch_norm`" in told


def test_the_number_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = planned("mlp", 10**12).cost.memory
    memory = int(5 * whole.parameters + 0.2 * whole.activations)
    arguments = [str(EXAMPLES / "mlp.udl"), "--preset", "small", "--set", "b=256", "--devices", "2"]
    arguments += ["--memory", f"{memory}B", "-o", str(tmp_path / "out")]
    assert run([*arguments, "--json"]) == 0
    count = json.loads(capsys.readouterr().out)["micro_batches"]
    document = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert document["micro_batches"]["count"] == count > 1 and document["request"]["micro_batches"] is None
    assert document["parameters"]["b"] == 256 == count * document["micro_batches"]["size"]
    out, trace = str(tmp_path / "out"), str(tmp_path / "trace.json")
    for command in (["explain", out], ["trace", out, "-o", trace]):
        assert run(command) == 0
        assert f"{count} micro-batches of b = {256 // count} a step of b = 256" in capsys.readouterr().out

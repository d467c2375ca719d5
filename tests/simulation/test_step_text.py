"""The text of a step: every task once, identical iterations as one block, labels for dependencies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.compilation import compile_model
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.simulation.step_text import step_lines
from unity_dsl.simulation.task import COMPUTE, Purpose
from unity_dsl.simulation.timeline import Timeline

from .test_step_tasks import request

GOLDEN = Path(__file__).parent / "golden"
STEPS = [("mlp", "zero"), ("gpt2", "data_parallel"), ("llama3_8b", "expert")]


def simulated(example: str, strategy: str) -> Timeline:
    compiled = compile_model(request(example, strategy))
    return simulate_step(compiled.plan, load_machine("local"), compiled.library)


@pytest.mark.parametrize(("example", "strategy"), STEPS)
def test_a_step_reads_as_it_did(example: str, strategy: str, golden: Callable[[Path, str], None]) -> None:
    text = "\n".join(step_lines(simulated(example, strategy))) + "\n"
    golden(GOLDEN / f"{example}-{strategy}.txt", text)


def test_every_task_of_a_step_without_loops_has_a_line() -> None:
    """A line has the task's name and stream; views have no line. The tasks it waits for stand before it."""
    timeline = simulated("dlrm", "zero")
    lines = [line for line in step_lines(timeline) if re.match(r" *\d", line)]
    tasks = [task for task in timeline.graph.tasks if task.launches or task.seconds]
    assert [int(line.split()[0]) for line in lines] == [*range(1, len(tasks) + 1)]
    for line, task in zip(lines, tasks, strict=True):
        assert f" {task.name} " in line and f" {task.channel} " in line
        assert all(int(one) < int(line.split()[0]) for one in re.findall(r"(?<=, )\d+$|(?<=s  )\d+", line))


def test_gradients_of_a_loop_are_summed_up() -> None:
    """The text shows as many sums of buckets as the step sends."""
    timeline = simulated("gpt2", "data_parallel")
    sent = Counter(t.name for t in timeline.graph.tasks if t.purpose is Purpose.GRADIENTS and t.channel != COMPUTE)
    text = "\n".join(step_lines(timeline))
    counted = Counter[str]()
    for name, times in re.findall(r"(all_reduce) of gradients, (\d+) in all", text):
        counted[name] += int(times)
    alone = len(re.findall(r"^ *\d+   all_reduce (?!loss)", text, re.MULTILINE))
    assert counted["all_reduce"] + alone == sent["all_reduce"]


def test_micro_batches_that_are_alike_are_written_once() -> None:
    wanted = replace(request("gpt2", "data_parallel", micro_batches=4), settings={"b": 8})
    compiled = compile_model(wanted)
    timeline = simulate_step(compiled.plan, load_machine("local"), compiled.library)
    heads = [line for line in step_lines(timeline) if line.endswith(":")]
    phases = ["forward of micro-batch {}", "backward of micro-batch {}"]
    expected = [phase.format(number) for number in ("1 of 4", "2 of 4, the same until 3", "4 of 4") for phase in phases]
    assert heads == [f"{head}:" for head in (*expected, "update")]

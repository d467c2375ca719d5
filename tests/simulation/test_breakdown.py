"""The breakdown of a step's time, against integrals over the simulated intervals."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from unity_dsl.simulation.breakdown import break_down, without_iterations
from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import COMPUTE, Phase, Task, TaskGraph, Traffic

from .task_graphs import hardware, task_graphs


@given(task_graphs(), hardware)
def test_seconds_and_exposure_are_those_of_the_intervals(graph: TaskGraph, hardware: Hardware) -> None:
    timeline = simulate(graph, hardware)
    found = break_down(timeline)
    here = [(i, task) for i, task in enumerate(graph.tasks) if task.device == 0]
    assert sum(spent.tasks for spent in found) == len(here)
    moments = sorted({0.0, *timeline.start.tolist(), *timeline.end.tolist()})
    spans = list(pairwise(moments))

    def runs(number: int, begin: float, end: float) -> bool:
        return bool(timeline.start[number] <= begin and end <= timeline.end[number])

    for spent in found:
        mine = [
            i
            for i, task in here
            if (task.name, without_iterations(task.place)) == (spent.name, spent.place)
            and (task.channel != COMPUTE) == spent.collective
        ]
        seconds = sum(end - begin for begin, end in spans for i in mine if runs(i, begin, end))
        assert spent.seconds == pytest.approx(seconds, abs=1e-9)
        alone = sum(
            end - begin
            for begin, end in spans
            for i in mine
            if runs(i, begin, end) and not any(runs(k, begin, end) for k, task in here if task.channel == COMPUTE)
        )
        assert spent.exposed == pytest.approx(alone if spent.collective else 0.0, abs=1e-9)


def test_iterations_and_phases_are_told_together() -> None:
    """Two layers' products, forward and backward, and an all-reduce that ends one second after the last kernel."""
    tasks = [
        Task("linear", "layer.0.y", Phase.FORWARD, 1.0),
        Task("linear", "layer.1.y", Phase.FORWARD, 1.0),
        Task("linear backward", "layer.1.y", Phase.BACKWARD, 2.0),
        Task("all_reduce", "layer.1.w and 3 more", Phase.BACKWARD, 3.0, (2,), "a", 0, 1, (Traffic(0, 3.0),), 8.0),
        Task("linear backward", "layer.0.y", Phase.BACKWARD, 2.0),
    ]
    product, reduce = break_down(simulate(TaskGraph(tasks), Hardware(0.0)))
    assert (product.name, product.place, product.tasks) == ("linear", "layer.*.y", 4)
    assert (product.forward, product.backward, product.exposed) == (2.0, 4.0, 0.0)
    assert (reduce.name, reduce.place, reduce.backward, reduce.exposed) == ("all_reduce", "layer.*.w", 3.0, 1.0)
    assert reduce.sent == 8.0


def test_places_without_their_iterations() -> None:
    assert without_iterations("layer.12.attn.qkv") == "layer.*.attn.qkv"
    assert without_iterations("stage_4.0.f") == "stage_4.*.f"
    assert without_iterations("w1") == "w1"
    assert without_iterations("") == ""

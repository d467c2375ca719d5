"""Random task graphs and hardware with small whole numbers, so that many events coincide."""

from __future__ import annotations

from hypothesis import strategies as st

from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import COMPUTE, Phase, Task, TaskGraph, Traffic


@st.composite
def task_graphs(draw: st.DrawFn, devices: int = 2, most_levels: int = 2, most_tasks: int = 12) -> TaskGraph:
    tasks: list[Task] = []
    for i in range(draw(st.integers(0, most_tasks))):
        channel = draw(st.sampled_from((COMPUTE, COMPUTE, "a", "b", "c")))
        levels = st.builds(Traffic, st.integers(0, 1), st.integers(0, 4).map(float))
        traffic = (
            draw(st.lists(levels, max_size=most_levels, unique_by=lambda part: part.level))
            if channel != COMPUTE
            else []
        )
        tasks.append(
            Task(
                name=channel,
                place=f"layer.{i}",
                phase=draw(st.sampled_from(Phase)),
                seconds=float(draw(st.integers(0, 6))),
                after=tuple(draw(st.lists(st.integers(0, i - 1), max_size=3))) if i else (),
                channel=channel,
                device=draw(st.integers(0, devices - 1)),
                launches=draw(st.integers(0, 2)),
                traffic=tuple(traffic),
                sent=float(draw(st.integers(0, 3))) if traffic else 0.0,
                allocated=float(draw(st.integers(0, 9))),
                freed=float(draw(st.integers(0, 9))),
            )
        )
    return TaskGraph(tuple(tasks), float(draw(st.integers(0, 9))))


hardware = st.builds(
    Hardware,
    launch_seconds=st.sampled_from((0.0, 0.5, 1.0)),
    host_computes=st.booleans(),
    slowdown=st.sampled_from((0.0, 0.25, 0.5, 1.0)),
)

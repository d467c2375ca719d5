"""Traces against the rules of the trace-event format and of Perfetto, and against the timelines that they show.

The rules are those of "Trace Event Format" (Chrome) and perfetto.dev/docs/faq. A trace is an object with
`traceEvents`, and each event has `ph`, `name` and `pid`. X events have `tid`, `ts` and `dur` in microseconds, C events
numbers in `args`, M events no time. Slices of a thread nest or follow each other. Perfetto takes process and thread 0
for the idle ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given, settings

from tests.simulation.task_graphs import hardware, task_graphs
from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import COMPUTE, Phase, Task, TaskGraph, Traffic
from unity_dsl.simulation.timeline import Timeline
from unity_dsl.simulation.trace import render_trace

Event = dict[str, Any]


def events_of(timeline: Timeline) -> dict[str, list[Event]]:
    """Events by `ph`, each checked for what the format requires."""
    document = json.loads(render_trace(timeline))
    assert document.keys() == {"displayTimeUnit", "traceEvents"}
    found: dict[str, list[Event]] = {"M": [], "X": [], "C": []}
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and event["pid"] > 0
        assert isinstance(event["args"], dict)
        found[event["ph"]].append(event)
    for event in found["X"]:
        assert isinstance(event["tid"], int) and event["tid"] > 0
        assert event["ts"] >= 0 and event["dur"] >= 0
    for event in found["C"]:
        assert event["ts"] >= 0
        assert all(isinstance(value, int | float) for value in event["args"].values())
    assert all("ts" not in event for event in found["M"])
    return found


def nanoseconds(microseconds: float) -> int:
    """A time as Perfetto reads it."""
    return round(microseconds * 1000)


@settings(max_examples=200, print_blob=True)
@given(task_graphs(), hardware)
def test_slices_of_a_thread_never_overlap(graph: TaskGraph, on: Hardware) -> None:
    """Also at times that are not whole nanoseconds."""
    timeline = simulate(graph, Hardware(on.launch_seconds / 3e6, on.host_computes, on.slowdown))
    threads = defaultdict(list)
    for event in events_of(timeline)["X"]:
        begin = nanoseconds(event["ts"])
        threads[event["pid"], event["tid"]].append((begin, begin + nanoseconds(event["dur"])))
    for spans in threads.values():
        assert all(first[1] <= second[0] for first, second in pairwise(sorted(spans)))


@settings(max_examples=200, print_blob=True)
@given(task_graphs(), hardware)
def test_a_trace_shows_every_task_in_its_place(graph: TaskGraph, on: Hardware) -> None:
    timeline = simulate(graph, on)
    found = events_of(timeline)
    processes = {event["pid"]: event["args"]["name"] for event in found["M"] if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in found["M"] if event["name"] == "thread_name"
    }
    assert len(processes) + len(threads) == len(found["M"])
    shown = [event for event in found["X"] if not event["name"].startswith("launch ")]
    assert [event["args"]["place"] for event in shown] == [task.place for task in graph.tasks]
    for i, (event, task) in enumerate(zip(shown, graph.tasks, strict=True)):
        assert processes[event["pid"]] == f"device {task.device}"
        assert threads[event["pid"], event["tid"]] == task.channel
        assert (event["name"], event["cat"]) == (task.name, task.phase.value)
        assert abs(event["ts"] - timeline.start[i] * 1e6) <= 1e-3
        assert abs(event["ts"] + event["dur"] - timeline.end[i] * 1e6) <= 1e-3
        assert event["args"].get("allocated", 0) == task.allocated
        assert event["args"].get("critical", False) == (i in timeline.critical_path)
    launches = [threads[e["pid"], e["tid"]] for e in found["X"] if e["name"].startswith("launch ")]
    assert set(launches) <= {COMPUTE if on.host_computes else "host"}
    issued = [t for t in graph.tasks if t.launches and not (on.host_computes and t.channel == COMPUTE)]
    if on.launch_seconds:
        assert len(launches) == len(issued)


@settings(max_examples=200, print_blob=True)
@given(task_graphs(), hardware)
def test_the_counter_shows_what_is_held(graph: TaskGraph, on: Hardware) -> None:
    timeline = simulate(graph, on)
    counts = defaultdict(dict)
    for event in events_of(timeline)["C"]:
        assert event["ts"] not in counts[event["pid"]]
        counts[event["pid"]][event["ts"]] = event["args"]["bytes"]
    for process, values in counts.items():
        use = timeline.memory(process - 1)
        nanoseconds = [round(time * 1e9) for time in use.times.tolist()]  # the resolution of a trace
        last = dict(zip(nanoseconds, use.held.tolist(), strict=True))
        assert list(values.values()) == list(last.values())
        assert list(values) == sorted(values)


def test_a_trace_as_it_stands() -> None:
    gather = Task(
        "all_gather",
        "layer.w",
        Phase.FORWARD,
        2e-6,
        (),
        "data",
        traffic=(Traffic(0, 1e-6),),
        sent=64.0,
        allocated=128.0,
    )
    linear = Task("linear", "layer.0", Phase.FORWARD, 1.5e-6, (0,), freed=128.0, launches=2)
    found = events_of(simulate(TaskGraph([gather, linear], 1000.0), Hardware(1e-6)))
    assert found["X"] == [
        {
            "ph": "X",
            "name": "all_gather",
            "cat": "forward",
            "pid": 1,
            "tid": 3,
            "ts": 1.0,
            "dur": 2.0,
            "args": {"place": "layer.w", "sent": 64.0, "allocated": 128.0, "launches": 1, "critical": True},
        },
        {
            "ph": "X",
            "name": "launch all_gather",
            "cat": "forward",
            "pid": 1,
            "tid": 1,
            "ts": 0.0,
            "dur": 1.0,
            "args": {"place": "layer.w"},
        },
        {
            "ph": "X",
            "name": "linear",
            "cat": "forward",
            "pid": 1,
            "tid": 2,
            "ts": 3.0,
            "dur": 1.5,
            "args": {"place": "layer.0", "freed": 128.0, "launches": 2, "critical": True},
        },
        {
            "ph": "X",
            "name": "launch linear",
            "cat": "forward",
            "pid": 1,
            "tid": 1,
            "ts": 1.0,
            "dur": 2.0,
            "args": {"place": "layer.0"},
        },
    ]
    held = [(event["ts"], event["args"]["bytes"]) for event in found["C"]]
    assert held == [(0.0, 1000.0), (1.0, 1128.0), (3.0, 1128.0), (4.5, 1000.0)]

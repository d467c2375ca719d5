"""A timeline in the trace-event format of Chrome, which https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from .task import COMPUTE, Task
from .timeline import HOST, Timeline

MEMORY = "memory"
"""The counter of a device's memory in bytes."""

Event = dict[str, Any]


def render_trace(timeline: Timeline) -> str:
    """A JSON document with a process for each device. A process has a thread for its host and for each channel, a slice
    for each task and launch, and a counter of memory.

    Times are microseconds, rounded to whole nanoseconds as Perfetto keeps them. Perfetto drops slices of a thread that
    overlap (perfetto.dev/docs/faq); slices whose ends are rounded like the next starts do not. Ids count from 1, as 0
    is the idle thread. The format: "Trace Event Format", object form; events M (names), X (slices) and C (counters).
    """
    lines = ",\n".join(map(json.dumps, _events(timeline)))
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _events(timeline: Timeline) -> Iterator[Event]:
    threads = _threads(timeline)
    for device in sorted({device for device, _ in threads}):
        yield {"ph": "M", "name": "process_name", "pid": device + 1, "args": {"name": f"device {device}"}}
    for (device, channel), thread in threads.items():
        yield {"ph": "M", "name": "thread_name", "pid": device + 1, "tid": thread, "args": {"name": channel}}
    yield from _slices(timeline, threads)
    for device in sorted({device for device, _ in threads}):
        yield from _memory(timeline, device)


def _threads(timeline: Timeline) -> dict[tuple[int, str], int]:
    """Thread ids by device and channel: host, kernels, each group's collectives. On a CPU the host runs the kernels."""
    channels: dict[int, dict[str, None]] = {}
    for task in timeline.graph.tasks:
        first = (COMPUTE,) if timeline.hardware.host_computes else (HOST, COMPUTE)
        channels.setdefault(task.device, dict.fromkeys(first))[task.channel] = None
    return {
        (device, channel): number
        for device, names in sorted(channels.items())
        for number, channel in enumerate(names, start=1)
    }


def _slices(timeline: Timeline, threads: dict[tuple[int, str], int]) -> Iterator[Event]:
    begins, ends, launches, issues = (
        np.rint(times * 1e9).astype(np.int64).tolist()
        for times in (timeline.start, timeline.end, timeline.launch, timeline.issued)
    )
    critical = set(timeline.critical_path)
    host = COMPUTE if timeline.hardware.host_computes else HOST
    for i, task in enumerate(timeline.graph.tasks):
        thread = threads[task.device, task.channel]
        yield _slice(task, task.name, thread, begins[i], ends[i], _arguments(task, i in critical))
        if issues[i] > launches[i]:
            thread = threads[task.device, host]
            yield _slice(task, f"launch {task.name}", thread, launches[i], issues[i], {"place": task.place})


def _slice(task: Task, name: str, thread: int, begin: int, end: int, arguments: Event) -> Event:
    """A slice from one nanosecond to another."""
    times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
    return {
        "ph": "X",
        "name": name,
        "cat": task.phase.value,
        "pid": task.device + 1,
        "tid": thread,
        **times,
        "args": arguments,
    }


def _arguments(task: Task, critical: bool) -> Event:
    """The details of a task that a viewer shows: its place, and its bytes and launches where these are not zero."""
    counts = {"sent": task.sent, "allocated": task.allocated, "freed": task.freed, "launches": task.launches}
    known = {name: count for name, count in counts.items() if count}
    return {"place": task.place, **known, **({"critical": True} if critical else {})}


def _memory(timeline: Timeline, device: int) -> Iterator[Event]:
    """The memory held from each time on, one event per time."""
    use = timeline.memory(device)
    times = np.rint(use.times * 1e9).astype(np.int64)
    last = np.append(times[1:] != times[:-1], True)
    for time, held in zip(times[last].tolist(), use.held[last].tolist(), strict=True):
        yield {"ph": "C", "name": MEMORY, "pid": device + 1, "ts": time / 1000, "args": {"bytes": held}}

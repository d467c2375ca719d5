"""Seconds of calls: the median of repetitions that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

Call = Callable[[], object]
Clock = Callable[[Call, int], float]
"""Seconds that a call takes so many times."""

LEAST = 1e-3
"""Seconds that a repetition takes at least, by more calls: what a clock tells for sure."""

MOST_ROUNDS = 25


def processor_time(call: Call, times: int) -> float:
    """Of this thread, which has a processor's kernels to itself: what other processes take is not counted."""
    start = time.thread_time()
    for _ in range(times):
        call()
    return time.thread_time() - start


def elapsed_time(call: Call, times: int) -> float:
    """By the clock, for what waits for other ranks."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def device_time(call: Call, times: int) -> float:
    """By the clock until the GPU has done everything that the calls launch."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def recorded(call: Call) -> Call:
    """A call of a GPU as a CUDA graph, whose time is that of its kernels alone; as it is where it cannot be recorded,
    as it waits for the GPU.
    """
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return call

    def replay(kept: Call = call) -> None:  # the graph reads tensors of the call, which nothing else may keep
        graph.replay()

    return replay


def median_seconds(calls: Sequence[Call], clock: Clock, allowance: float) -> list[float]:
    """Seconds of each call: the median of rounds in which they take turns, after one that warms up.

    As many rounds as `allowance` seconds leave time for, at least one.
    """
    times = [_repetitions(call, clock) for call in calls]
    rounds: list[list[float]] = []
    end = time.perf_counter() + allowance
    while not rounds or (time.perf_counter() < end and len(rounds) < MOST_ROUNDS):
        rounds.append([clock(call, count) / count for call, count in zip(calls, times, strict=True)])
    return [median(found) for found in zip(*rounds, strict=True)]


def _repetitions(call: Call, clock: Clock) -> int:
    """How often it takes to call for `LEAST` seconds.."""
    call()
    count = 1
    while clock(call, count) < LEAST and count < 4**6:
        count *= 4
    return count

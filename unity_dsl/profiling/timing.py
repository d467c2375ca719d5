"""Seconds of calls: the median of interleaved repetitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

Call = Callable[[], object]
Clock = Callable[[Call, int], float]
"""Measures the seconds of making a call a given number of times."""

LEAST = 1e-3
"""Least seconds of a repetition, which makes enough calls: what a clock measures reliably."""

MOST_ROUNDS = 25


def processor_time(call: Call, times: int) -> float:
    """Processor seconds of this thread, which runs all kernels itself; other processes do not count."""
    start = time.thread_time()
    for _ in range(times):
        call()
    return time.thread_time() - start


def elapsed_time(call: Call, times: int) -> float:
    """Wall-clock seconds, for calls that wait for other ranks."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def device_time(call: Call, times: int) -> float:
    """Wall-clock seconds until the GPU has finished all work that the calls launch."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def recorded(call: Call) -> Call:
    """A GPU call recorded as a CUDA graph, so that its time is that of its kernels alone. A call that cannot be
    recorded, because it waits for the GPU, is returned unchanged.
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

    def replay(kept: Call = call) -> None:  # keeps the call's tensors alive, which the graph reads
        graph.replay()

    return replay


def median_seconds(calls: Sequence[Call], clock: Clock, allowance: float) -> list[float]:
    """Seconds of each call: the median over interleaved rounds, after a warm-up.

    There are as many rounds as `allowance` seconds permit, at least one and at most MOST_ROUNDS.
    """
    times = [_repetitions(call, clock) for call in calls]
    rounds: list[list[float]] = []
    end = time.perf_counter() + allowance
    while not rounds or (time.perf_counter() < end and len(rounds) < MOST_ROUNDS):
        rounds.append([clock(call, count) / count for call, count in zip(calls, times, strict=True)])
    return [median(found) for found in zip(*rounds, strict=True)]


def _repetitions(call: Call, clock: Clock) -> int:
    """The number of calls that take at least `LEAST` seconds."""
    call()
    count = 1
    while clock(call, count) < LEAST and count < 4**6:
        count *= 4
    return count

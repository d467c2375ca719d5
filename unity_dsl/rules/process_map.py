"""Maps a function over a sequence by forked processes, which live no longer than the iteration and its process."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_map(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Generator[Result, None, None]:
    """`function` of every item, in order, each result as soon as it and all before it are known.

    Forked processes inherit the function and the items, which need no pickling; positions and results are sent. With
    one process or one item the function is called here. The processes end when the generator ends or is closed, without
    waiting for what they compute, and when this process ends, however it does. They never see an interruption.

    Raises what the function raises, and BrokenProcessPool where a process dies.
    """
    if processes < 2 or len(items) < 2:
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(min(processes, len(items)), get_context("fork"), _begin, (function, items))
    try:
        results = _submitted(pool, len(items))
        while results:
            yield results.popleft().result()
    finally:
        # ProcessPoolExecutor.kill_workers is new in Python 3.14.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, count: int) -> deque[Future[Any]]:
    """The calls of all positions. The first one forks all processes: they inherit that interruptions are blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return deque(pool.submit(_call, position) for position in range(count))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ------------------------------------------------------------------------------------------ in a forked process


_calls: list[Callable[[int], Any]] = []
"""Last, what a forked process computes for a position; before it, what the processes do that it is forked from."""


def _begin(function: Callable[[Item], Result], items: Sequence[Item]) -> None:
    _calls.append(lambda position: function(items[position]))
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent has ended, by whatever signal, and whatever the main thread is computing."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _call(position: int) -> Any:
    return _calls[-1](position)

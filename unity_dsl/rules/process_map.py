"""Maps a function over a sequence by forked processes, which live no longer than the iteration and its process."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from threading import Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Poll = Callable[[], None]
POLLED = 0.05
"""Seconds between two calls of `poll`."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_map(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int, poll: Poll = lambda: None
) -> Generator[Result, None, None]:
    """`function` of every item, in order, each result as soon as it and all before it are known.

    Forked processes inherit the function and the items, which need no pickling; positions and results are sent. With
    one process or one item the function is called here. The processes end when the generator ends or is closed, without
    waiting for what they compute, and when this process ends, however it does. They never see an interruption. While
    this process waits it calls `poll` again and again, whose exceptions end them too.

    Raises what the function and `poll` raise, and BrokenProcessPool where a process dies.
    """
    if processes < 2 or len(items) < 2:
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(min(processes, len(items)), get_context("fork"), _begin, (function, items))
    try:
        results = _submitted(pool, len(items))
        while results:
            while not results[0].done():
                wait_for([results[0]], POLLED)
                poll()
            yield results.popleft().result()
    finally:
        # ProcessPoolExecutor.kill_workers is new in Python 3.14.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def lasting_processes(
    function: Callable[[Item], Result], processes: int, poll: Poll = lambda: None
) -> Iterator[Callable[[Sequence[tuple[Hashable, Item]]], list[Result]]]:
    """A map of `function` that can be called several times, by forked processes that live as long as the context.

    Items come with a key: those of one key are computed by the process that had it before, which has what the function
    keeps of it, unless that one has more to do than others. Items and results are sent. With one process the function
    is called here. While this process waits it calls `poll` again and again.

    Raises what the function and `poll` raise, and BrokenProcessPool where a process dies.
    """
    if processes < 2:
        yield lambda asked: [function(item) for _, item in asked]
        return
    begun = [_forked(function) for _ in range(processes)]
    try:
        owners: dict[Hashable, int] = {}
        yield lambda asked: _answers([end for _, end in begun], owners, asked, poll)
    finally:
        for process, end in begun:
            process.kill()
            process.join()
            end.close()


def _forked(function: Callable[[Any], Any]) -> tuple[ForkProcess, Connection[Any, Any]]:
    """A process that answers what it is sent, and this end of the pipe. It inherits that interruptions are blocked."""
    own, other = Pipe()
    process = get_context("fork").Process(target=_serve, args=(function, other))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.close()
    return process, own


def _answers(
    ends: Sequence[Connection[Any, Any]],
    owners: dict[Hashable, int],
    asked: Sequence[tuple[Hashable, Any]],
    poll: Poll,
) -> list[Any]:
    results: list[Any] = [None] * len(asked)
    waiting, busy, free = list(range(len(asked))), dict[int, int](), set(range(len(ends)))
    while waiting or busy:
        for number in sorted(free) if waiting else ():
            if waiting:
                place = _next(number, waiting, owners, asked)
                waiting.remove(place)
                free.remove(number)
                busy[number] = place
                owners[asked[place][0]] = number
                ends[number].send(asked[place][1])
        poll()
        for ready in wait([ends[number] for number in busy], POLLED):
            number = next(number for number in busy if ends[number] is ready)
            try:
                answered, result = ends[number].recv()
            except EOFError:
                raise BrokenProcessPool("a process ended before it had answered") from None
            if not answered:
                raise result
            results[busy.pop(number)] = result
            free.add(number)
    return results


def _next(
    number: int, waiting: Sequence[int], owners: Mapping[Hashable, int], asked: Sequence[tuple[Hashable, Any]]
) -> int:
    """What a process computes next: what it had before, or nobody had, or the last of what others had."""
    own = (place for place in waiting if owners.get(asked[place][0]) == number)
    nobodys = (place for place in waiting if asked[place][0] not in owners)
    return next(own, next(nobodys, waiting[-1]))


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


def _serve(function: Callable[[Any], Any], end: Connection[Any, Any]) -> None:
    """Answers what is sent: whether the function returned, and its result or what it raised."""
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        item = end.recv()
        try:
            answer = True, function(item)
        except Exception as reason:
            answer = False, reason
        end.send(answer)

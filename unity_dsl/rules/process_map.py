"""Maps a function over a sequence by forked processes, which live no longer than the iteration and its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from math import ceil
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from multiprocessing.reduction import ForkingPickler
from threading import Thread
from typing import Any, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Poll = Callable[[], None]
POLLED = 0.05
"""Seconds between two calls of `poll`."""


def processors() -> int:
    """How many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


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
    places = range(len(items))
    with _forked(lambda place: function(items[place]), min(processes, len(items))) as ends:
        known: dict[int, _Answer] = {}
        answers = _answers(ends, places, poll)
        for place in places:
            while place not in known:
                known.update([next(answers)])
            yield _result(known.pop(place))


def shared_map(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int, poll: Poll = lambda: None
) -> list[Result]:
    """`function` of every item, in order, by forked processes and by this one, of `processes` in all: whoever is free
    takes the first item that nobody has taken. So what the function keeps in this process is there of some of them.

    The forked ones send their results when no item is left; while this process waits for them it calls `poll` again and
    again. They end, and are interrupted, as those of `process_map`; without any, all is computed here.

    Raises what the function and `poll` raise, and BrokenProcessPool where a process dies.
    """
    forked = min(processes, len(items)) - 1
    if forked < 1:
        return list(map(function, items))
    with _ticket_pipe() as tickets:
        tickets.put(range(len(items)), processes=forked + 1)

        def computed(_: None = None) -> dict[int, Result]:
            return {place: function(items[place]) for place in tickets.taken()}

        with _forked(computed, forked) as ends:
            for end in ends:
                _exchange(end.send, None)
            known = computed()
            for end in ends:
                known |= _awaited(end, poll)
            return [known[place] for place in range(len(items))]


@contextmanager
def lasting_processes(
    function: Callable[[Item], Result], processes: int, poll: Poll = lambda: None
) -> Iterator[Callable[[Sequence[tuple[Hashable, Item]]], list[Result]]]:
    """A map of `function` that can be called several times, by this process and by forked ones that live as long as the
    context, `processes` in all.

    Items come with a key: those of one key are computed by the process that had it before, which has what the function
    keeps of it, unless that one has more to do than others. This one has the first of the others, which may be what is
    needed most later, and whoever is free takes the next. Items and results are sent. With one process the function is
    called here. While this process waits it calls `poll` again and again.

    Raises what the function and `poll` raise, and BrokenProcessPool where a process dies.
    """
    if processes < 2:
        yield lambda asked: [function(item) for _, item in asked]
        return
    owners: dict[Hashable, int] = {}
    with _ticket_pipe() as tickets:

        def computed(sent: tuple[Sequence[Item], Sequence[int]]) -> dict[int, Result]:
            items, own = sent
            return {place: function(items[place]) for place in chain(own, tickets.taken())}

        with _forked(computed, processes - 1) as ends:

            def results(asked: Sequence[tuple[Hashable, Item]]) -> list[Result]:
                items = [item for _, item in asked]
                (here, *there), others = _shares([key for key, _ in asked], owners, processes)
                tickets.put(others, processes)
                for end, own in zip(ends, there, strict=True):
                    _exchange(end.send, (items, own))
                found = [computed((items, here)), *(_awaited(end, poll) for end in ends)]
                owners.update((asked[place][0], number) for number, known in enumerate(found) for place in known)
                every = {place: result for known in found for place, result in known.items()}
                return [every[place] for place in range(len(asked))]

            yield results


def _shares(
    keys: Sequence[Hashable], owners: Mapping[Hashable, int], processes: int
) -> tuple[list[list[int]], list[int]]:
    """By process the places that it computes in any case: of the keys that it had before no more than its part of all,
    and of those that nobody had the first, for process 0. Then the other places.
    """
    own: list[list[int]] = [[] for _ in range(processes)]
    others, most = list[int](), ceil(len(keys) / processes)
    for place, key in enumerate(keys):
        share = own[owners[key]] if key in owners else None if others or own[0] else own[0]
        (others if share is None or len(share) == most else share).append(place)
    return own, others


# ------------------------------------------------------------------------------------------ processes and their pipes

_End: TypeAlias = "Connection[Any, Any]"
_Answer = tuple[bool, Any]
"""Whether the function returned, and its result or what it raised."""


@contextmanager
def _forked(function: Callable[[Any], Any], count: int) -> Iterator[list[_End]]:
    """The pipes of processes that answer with `function` of what they are sent. They are killed when the context ends.

    There are no queues and no threads here: a process that is killed in the middle of an answer leaves nobody waiting
    for the rest of it.
    """
    begun: list[tuple[ForkProcess, _End]] = []
    try:
        for _ in range(count):
            begun.append(_fork(function))
        yield [end for _, end in begun]
    finally:
        for process, _ in begun:
            process.kill()
        for process, end in begun:
            process.join()
            end.close()


def _fork(function: Callable[[Any], Any]) -> tuple[ForkProcess, _End]:
    """A process that answers, and this end of its pipe. It inherits that interruptions are blocked."""
    own, other = Pipe()
    process = get_context("fork").Process(target=_serve, args=(function, other))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.close()
    return process, own


def _answers(ends: Sequence[_End], items: Sequence[Any], poll: Poll) -> Iterator[tuple[int, _Answer]]:
    """Places of items and the answers to them, as they come. Every process has one item at a time, the next one before
    its answer to the last one is given on.
    """
    waiting, busy, free = list(range(len(items))), dict[int, int](), set(range(len(ends)))
    arrived: list[tuple[int, _Answer]] = []
    while waiting or busy or arrived:
        for number in sorted(free)[: len(waiting)]:
            busy[number] = waiting.pop(0)
            free.remove(number)
            _exchange(ends[number].send, items[busy[number]])
        yield from arrived
        arrived = []
        poll()
        for ready in wait([ends[number] for number in busy], POLLED) if busy else ():
            number = next(number for number in busy if ends[number] is ready)
            arrived.append((busy.pop(number), _exchange(ends[number].recv)))
            free.add(number)


def _exchange(call: Callable[..., Any], *sent: Any) -> Any:
    try:
        return call(*sent)
    except (EOFError, ConnectionError):
        raise BrokenProcessPool("a process ended before it had answered") from None


def _result(answer: _Answer) -> Any:
    returned, result = answer
    if not returned:
        raise result
    return result


def _awaited(end: _End, poll: Poll) -> Any:
    """What a process answers, which it was asked before."""
    while not end.poll(POLLED):
        poll()
    return _result(_exchange(end.recv))


_TICKET = 4
"""Bytes. A pipe holds at least a page of them before a write to it waits."""
_LAST = (1 << 8 * _TICKET) - 1


class _Tickets:
    """A pipe from which processes take numbers, each of which one of them gets: Linux reads so few bytes of a pipe at
    once. `own` and `other` are its ends.
    """

    def __init__(self, own: int, other: int) -> None:
        self.own, self.other = own, other

    def put(self, numbers: Iterable[int], processes: int) -> None:
        """The next numbers to be taken by so many processes."""
        every = [*numbers, *[_LAST] * processes]
        os.write(self.other, b"".join(number.to_bytes(_TICKET, "little") for number in every))

    def taken(self) -> Iterator[int]:
        """Those that this process takes, one after the other, till none is left."""
        while (number := int.from_bytes(os.read(self.own, _TICKET), "little")) != _LAST:
            yield number


@contextmanager
def _ticket_pipe() -> Iterator[_Tickets]:
    ends = os.pipe()
    try:
        yield _Tickets(*ends)
    finally:
        for end in ends:
            os.close(end)


# ------------------------------------------------------------------------------------------ in a forked process


def _serve(function: Callable[[Any], Any], end: _End) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        item = end.recv()
        try:
            answer = ForkingPickler.dumps((True, function(item)))
        except Exception as reason:
            answer = ForkingPickler.dumps((False, reason))
        end.send_bytes(answer)


def _end_with_parent() -> None:
    """End this process when its parent has ended, by whatever signal, and whatever the main thread is computing."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)

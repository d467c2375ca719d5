"""Maps a function over a sequence with forked processes, which end with the iteration or with the calling process."""

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
    """`function` of every item, in order. Each result is yielded as soon as it and all earlier results are known.

    Forked processes inherit the function and the items, which need no pickling; only positions and results are sent.
    With one process or one item, the function is called in this process. The forked processes end when the generator
    ends or is closed, without finishing their work, and when this process ends for any reason. They ignore keyboard
    interrupts. While this process waits, it calls `poll` repeatedly; an exception of `poll` ends the forked processes
    too.

    Raises the exceptions of the function and of `poll`, and BrokenProcessPool if a process dies.
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
    """`function` of every item, in order, computed by this process and forked ones, `processes` in all. A free process
    takes the first item that is not yet taken. Whatever the function caches in this process therefore covers only some
    items.

    The forked processes send their results when no item is left. While this process waits for them, it calls `poll`
    repeatedly. They end, and ignore interrupts, as in `process_map`. Without forked processes, all items are computed
    here.

    Raises the exceptions of the function and of `poll`, and BrokenProcessPool if a process dies.
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
    """A map of `function` that can be called several times. This process and forked ones compute it, `processes` in
    all; the forked processes live as long as the context.

    Each item has a key. A process that computed a key before gets the key's items again, because it has what the
    function cached, unless its share is full. If this process has none yet, it gets the first of the remaining items,
    whose cached data may be needed most later. Any free process takes the next one. Items and results are sent. With
    one process, the function is called here. While this process waits, it calls `poll` repeatedly.

    Raises the exceptions of the function and of `poll`, and BrokenProcessPool if a process dies.
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
    """The places reserved for each process, and the other places. A process gets places of keys that it had before, up
    to an equal share of all places. Process 0 also gets the first place whose key is new, if it has none by then.
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
"""Whether the function returned, and its result or the exception that it raised."""


@contextmanager
def _forked(function: Callable[[Any], Any], count: int) -> Iterator[list[_End]]:
    """The pipes of processes that answer with `function` of what they are sent. They are killed when the context ends.

    No queues or threads are used in this process, so nothing waits for the rest of an answer if a process is killed
    while it sends.
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
    """A process that answers, and this process's end of its pipe. The process inherits a mask that blocks SIGINT."""
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
    """Pairs of an item's place and its answer, as they arrive. Every process has one item at a time; it gets the next
    item before its last answer is yielded.
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
    """The answer of a process to a request that was sent before."""
    while not end.poll(POLLED):
        poll()
    return _result(_exchange(end.recv))


_TICKET = 4
"""Bytes per ticket. A pipe holds at least a page of tickets before a write blocks."""
_LAST = (1 << 8 * _TICKET) - 1


class _Tickets:
    """A pipe from which processes take numbers; each number goes to one process, because Linux reads this few bytes of
    a pipe atomically. `own` is the read end, `other` the write end.
    """

    def __init__(self, own: int, other: int) -> None:
        self.own, self.other = own, other

    def put(self, numbers: Iterable[int], processes: int) -> None:
        """Adds the next numbers, to be taken by `processes` processes."""
        every = [*numbers, *[_LAST] * processes]
        os.write(self.other, b"".join(number.to_bytes(_TICKET, "little") for number in every))

    def taken(self) -> Iterator[int]:
        """The numbers that this process takes, one after the other, until none is left."""
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
    """Ends this process when its parent has ended, by any signal, whatever the main thread is computing."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)

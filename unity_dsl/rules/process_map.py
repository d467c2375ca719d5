"""Maps a function over a sequence by forked processes, which live no longer than the iteration and its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
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

Choose = Callable[[int, Sequence[int]], int]
"""Which of the places that are waiting the process of this number computes next."""


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
    places = range(len(items))
    with _forked(lambda place: function(items[place]), min(processes, len(items))) as ends:
        known: dict[int, _Answer] = {}
        answers = _answers(ends, places, lambda _, waiting: waiting[0], poll)
        for place in places:
            while place not in known:
                known.update([next(answers)])
            yield _result(known.pop(place))


def shared_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    poll: Poll = lambda: None,
    beside: Callable[[], None] | None = None,
) -> list[Result]:
    """`function` of every item, in order, by forked processes and by this one, of `processes` in all: whoever is free
    takes the first item that nobody has taken. So what the function keeps in this process is there of some of them.
    What is to be done `beside` is done here before, when the others have begun; not where there are none. Otherwise as
    `begun_map`.
    """
    forked = min(processes - 1, len(items) - (beside is None))
    if forked < 1:
        return list(map(function, items))
    with begun_map(function, items, forked, poll) as results:
        if beside is not None:
            beside()
        return results()


@contextmanager
def begun_map(
    function: Callable[[Item], Result], items: Sequence[Item], forked: int, poll: Poll = lambda: None
) -> Iterator[Callable[[], list[Result]]]:
    """`function` of every item, in order, once this process asks for it: so many `forked` ones begin at once, each with
    the first item that nobody has taken, and from then on this one does the same.

    The forked ones send their results when no item is left; while this process waits for them it calls `poll` again and
    again. They end, and are interrupted, as those of `process_map`; without any, all is computed here.

    Raises what the function and `poll` raise, and BrokenProcessPool where a process dies.
    """
    tickets = _tickets(len(items))

    def computed() -> dict[int, Result]:
        return {place: function(items[place]) for place in iter(partial(_ticket, tickets), None)}

    def results() -> list[Result]:
        known = computed()
        for end in ends:
            while not end.poll(POLLED):
                poll()
            known |= _result(_exchange(end.recv))
        return [known[place] for place in range(len(items))]

    try:
        with _forked(lambda _: computed(), forked) as ends:
            for end in ends:
                _exchange(end.send, None)
            yield results
    finally:
        os.close(tickets)


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
    owners: dict[Hashable, int] = {}

    def results(asked: Sequence[tuple[Hashable, Item]]) -> list[Result]:
        def choose(number: int, waiting: Sequence[int]) -> int:
            place = _own_or_nobodys(number, waiting, owners, asked)
            owners[asked[place][0]] = number
            return place

        found = {place: _result(one) for place, one in _answers(ends, [item for _, item in asked], choose, poll)}
        return [found[place] for place in range(len(asked))]

    with _forked(function, processes) as ends:
        yield results


def _own_or_nobodys(
    number: int, waiting: Sequence[int], owners: Mapping[Hashable, int], asked: Sequence[tuple[Hashable, Any]]
) -> int:
    """What a process computes next: what it had before, or nobody had, or the last of what others had."""
    own = (place for place in waiting if owners.get(asked[place][0]) == number)
    nobodys = (place for place in waiting if asked[place][0] not in owners)
    return next(own, next(nobodys, waiting[-1]))


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


def _answers(ends: Sequence[_End], items: Sequence[Any], choose: Choose, poll: Poll) -> Iterator[tuple[int, _Answer]]:
    """Places of items and the answers to them, as they come. Every process has one item at a time, the next one before
    its answer to the last one is given on.
    """
    waiting, busy, free = list(range(len(items))), dict[int, int](), set(range(len(ends)))
    arrived: list[tuple[int, _Answer]] = []
    while waiting or busy or arrived:
        for number in sorted(free)[: len(waiting)]:
            busy[number] = choose(number, waiting)
            waiting.remove(busy[number])
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


_TICKET = 4
"""Bytes. A pipe holds at least a page of them before a write to it waits."""


def _tickets(count: int) -> int:
    """The end of a pipe from which processes take the numbers up to `count`, each of which one of them gets: Linux
    reads so few bytes of a pipe at once.
    """
    own, other = os.pipe()
    try:
        os.write(other, b"".join(place.to_bytes(_TICKET, "little") for place in range(count)))
    finally:
        os.close(other)
    return own


def _ticket(tickets: int) -> int | None:
    """The next number; None where none is left."""
    taken = os.read(tickets, _TICKET)
    return int.from_bytes(taken, "little") if taken else None


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

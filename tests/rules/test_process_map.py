"""Mapping a function over a sequence with several processes: results come in order, and no process is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import active_children
from pickle import PicklingError

import pytest

from unity_dsl.rules.process_map import (
    lasting_processes,
    process_map,
    shared_map,
)

PROGRAM = """
import os, signal, sys, time
from unity_dsl.rules.process_map import process_map

def compute(seconds):
    os.write(1, f"computing {seconds}\\n".encode())  # a line in one write
    time.sleep(seconds)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
try:
    list(process_map(compute, [0, 600, 601, 602], 2))
except KeyboardInterrupt:
    sys.exit("interrupted")
"""
"""A program whose processes share its output: a reader reaches end of file once all processes have ended."""


@pytest.fixture
def begun() -> Iterator[subprocess.Popen[str]]:
    """The running program, once both of its processes compute items that take ten minutes."""
    begun = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert begun.stdout is not None
        told = {begun.stdout.readline() for _ in range(3)}
        assert told == {"computing 0\n", "computing 600\n", "computing 601\n"}
        yield begun
    finally:
        begun.kill()


def test_results_come_in_order_from_other_processes() -> None:
    def compute(item: int) -> tuple[int, int]:
        time.sleep(0.3 if item == 0 else 0.0)
        return item * item, os.getpid()

    found = list(process_map(compute, range(6), 3))
    assert [square for square, _ in found] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize(("items", "processes"), [(range(3), 1), (range(1), 2), (range(0), 2)])
def test_one_process_or_one_item_forks_none(items: range, processes: int) -> None:
    assert list(process_map(lambda item: (item, os.getpid()), items, processes)) == [
        (item, os.getpid()) for item in items
    ]


def forked() -> set[int | None]:
    """Child processes of this process. Other tests may keep ranks waiting for work, so tests compare sets."""
    return {child.pid for child in active_children()}


def test_what_the_function_raises_comes_in_its_place() -> None:
    before = forked()

    def compute(item: int) -> float:
        return 1 / (item - 2)

    found = process_map(compute, range(4), 2)
    assert [next(found), next(found)] == [-0.5, -1.0]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert forked() == before


def test_a_process_that_dies_is_told() -> None:
    before = forked()

    def compute(item: int) -> None:
        if item == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(BrokenProcessPool):
        list(process_map(compute, range(3), 2))
    assert forked() == before


def test_a_map_inside_a_forked_process() -> None:
    def compute(item: int) -> list[int]:
        return list(process_map(lambda other: 10 * item + other, range(2), 2))

    assert list(process_map(compute, range(2), 2)) == [[0, 1], [10, 11]]


def test_closing_ends_what_is_being_computed() -> None:
    before = forked()
    with closing(process_map(time.sleep, [0, 600, 600], 2)) as found:
        next(found)
        assert len(forked() - before) == 2
    assert forked() == before


def test_processes_end_with_a_killed_parent(begun: subprocess.Popen[str]) -> None:
    begun.kill()
    _, told = begun.communicate(timeout=60)
    assert begun.returncode == -signal.SIGKILL and not told


def test_an_interruption_ends_all_and_shows_no_traceback(begun: subprocess.Popen[str]) -> None:
    os.killpg(begun.pid, signal.SIGINT)
    _, told = begun.communicate(timeout=60)
    assert begun.returncode == 1 and told == "interrupted\n"


def test_this_process_computes_what_it_has_taken_of_a_shared_map() -> None:
    before, own = forked(), list[int]()

    def compute(item: int) -> tuple[int, int]:
        own.append(item)
        time.sleep(0.1)
        return item * item, os.getpid()

    found = shared_map(compute, range(9), 3)
    assert [square for square, _ in found] == [item * item for item in range(9)]
    assert own == [item for item, (_, process) in enumerate(found) if process == os.getpid()]
    assert len({process for _, process in found}) == 3
    assert forked() == before
    for items, processes in ((range(3), 1), (range(1), 2), (range(0), 2)):
        assert {process for _, process in shared_map(compute, items, processes)} <= {os.getpid()}


def test_what_ends_a_shared_map() -> None:
    """A shared map ends if the function raises here or elsewhere, if the poll raises, or if a process dies."""
    before, here = forked(), os.getpid()

    def compute(raises: bool) -> None:
        if raises == (os.getpid() == here):
            raise ZeroDivisionError
        time.sleep(0.3)

    for raises in (True, False):
        with pytest.raises(ZeroDivisionError):
            shared_map(compute, [raises] * 2, 2)
    begun = time.monotonic()
    with pytest.raises(Enough):
        shared_map(lambda _: time.sleep(600 if os.getpid() != here else 0.1), range(2), 2, lambda: polled_until(begun))

    def die(item: int) -> None:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)

    with pytest.raises(BrokenProcessPool):
        shared_map(die, range(2), 2)
    assert forked() == before


def test_lasting_processes_answer_in_order_and_keep_what_they_had() -> None:
    """This process computes the first item. Like the forked one, it gets its earlier items again."""
    before, known = forked(), dict[str, int]()

    def compute(item: str) -> tuple[str, int, int]:
        time.sleep(0.2 if item == "a" else 0.0)
        known[item] = known.get(item, 0) + 1
        return item, known[item], os.getpid()

    with lasting_processes(compute, 2) as computed:
        asked = [(name, name) for name in "abcd"]
        first, second = computed(asked), computed(asked[:2])
        assert [item for item, _, _ in first] == list("abcd") and len(forked() - before) == 1
        assert [(item, count) for item, count, _ in second] == [("a", 2), ("b", 2)]
        assert {process for _, _, process in first} == {os.getpid(), *(forked() - before)}
        assert [process for _, _, process in first[:2]] == [process for _, _, process in second]
        assert first[0][2] == os.getpid() and set(known) == {item for item, _, own in first if own == os.getpid()}
    assert forked() == before


def test_work_of_a_process_that_has_more_is_given_to_another() -> None:
    def compute(item: int) -> int:
        time.sleep(0.1)
        return os.getpid()

    with lasting_processes(compute, 2) as computed:
        owner = computed([("a", 0), ("b", 0)])[0]
        assert computed([("a", 0), ("c", 0)])[0] == owner
        assert len(set(computed([("a", 0), ("a", 0)]))) == 2


def test_one_lasting_process_is_this_one() -> None:
    with lasting_processes(lambda item: (item, os.getpid()), 1) as computed:
        assert computed([("a", 1), ("b", 2)]) == [(1, os.getpid()), (2, os.getpid())]


def test_what_lasting_processes_raise_and_their_deaths_are_told() -> None:
    before, here = forked(), os.getpid()

    def compute(item: int) -> float:
        if os.getpid() == here:
            time.sleep(0.5)
        elif item < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1 / item

    for items in ((1, 0), (0, 1)):  # this process computes the first one
        with pytest.raises(ZeroDivisionError), lasting_processes(compute, 2) as computed:
            computed(list(enumerate(items)))
    with pytest.raises(BrokenProcessPool), lasting_processes(compute, 2) as computed:
        computed([("a", 1), ("b", -1)])
    assert forked() == before


class Enough(BaseException):
    """Raised by the polled function."""


def polled_until(end: float) -> None:
    if time.monotonic() > end:
        raise Enough


def test_what_is_polled_ends_the_processes() -> None:
    """Both maps end while they wait for items that take ten minutes."""
    begun = time.monotonic()
    before = set(active_children())
    with pytest.raises(Enough):
        list(process_map(time.sleep, [0, 600, 600], 2, lambda: polled_until(begun + 0.3)))
    assert set(active_children()) <= before
    begun, here = time.monotonic(), os.getpid()
    with (
        pytest.raises(Enough),
        lasting_processes(
            lambda item: time.sleep(0.3 if os.getpid() == here else item), 2, lambda: polled_until(begun + 0.3)
        ) as mapped,
    ):
        mapped([(1, 600), (2, 600)])
    assert set(active_children()) <= before


def test_closing_in_the_middle_of_large_answers() -> None:
    """Nothing waits for the partial answer of a killed process. Answers exceed a pipe's capacity; 20 repetitions."""
    before = forked()
    for _ in range(20):
        with closing(process_map(lambda item: bytes(item * 2**22), [0, 1, 1, 1, 1], 3)) as found:
            assert next(found) == b""
    assert forked() == before


def test_what_cannot_be_sent_is_told() -> None:
    before = forked()
    with pytest.raises((AttributeError, TypeError, PicklingError)):
        list(process_map(lambda item: lambda: item, range(3), 2))
    assert forked() == before

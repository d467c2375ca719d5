"""Processes as ranks: cases run in groups of their own, and the pool reports and survives a failure."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator

import pytest

from unity_dsl.emit.rank_pool import RankError, RankPool


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool(3) as ranks:
        yield ranks


def add_up(rank: int, ranks: int, number: float) -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor(number + rank)
    if ranks > 1:
        dist.all_reduce(total)
    return float(total)


def make_meshes(rank: int, ranks: int) -> int:
    """The number of meshes left by earlier cases. Makes another mesh, in a reference cycle."""
    from torch.distributed.device_mesh import init_device_mesh

    left = sum(type(thing).__name__ == "DeviceMesh" for thing in gc.get_objects())
    cycle: list[object] = [init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("a", "b"))]
    cycle.append(cycle)
    return left


def scheduling(rank: int, ranks: int) -> set[int]:
    """The scheduling policies of all threads of a rank, gloo's included."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(1))
    return {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}


def send_nothing(rank: int, ranks: int) -> int:
    return rank


def fail_on(rank: int, ranks: int, culprit: int, how: str) -> int:
    import torch
    import torch.distributed as dist

    if rank == culprit:
        match how:
            case "raises":
                raise ValueError("seven is not prime")
            case "exits":
                os._exit(7)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leaves":
                raise SystemExit(3)
            case "hangs":
                time.sleep(60)
    dist.all_reduce(torch.ones(1))
    return rank


def test_cases_run_on_any_number_of_ranks(pool: RankPool) -> None:
    for ranks in (2, 1, 3, 2, 1):
        expected = sum(0.5 + rank for rank in range(ranks))
        assert pool.run(add_up, 0.5, ranks=ranks) == [expected] * ranks


def test_ranks_that_send_nothing_leave_when_all_are_connected() -> None:
    """With eight ranks on two processors, some were not yet connected in one case of twenty."""
    with RankPool(8) as pool:
        assert all(pool.run(send_nothing, ranks=8) == list(range(8)) for _ in range(20))


def test_groups_of_a_case_end_with_it(pool: RankPool) -> None:
    assert [pool.run(make_meshes, ranks=2) for _ in range(3)] == [[0, 0]] * 3


def test_more_ranks_than_there_are(pool: RankPool) -> None:
    with pytest.raises(ValueError, match="no 4 ranks"):
        pool.run(add_up, 0.5, ranks=4)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "ValueError: seven is not prime"),
        ("exits", "exit code 7"),
        ("is killed", "signal 9"),
        ("leaves", "SystemExit: 3"),
        ("hangs", "no end within"),
    ],
)
def test_a_failure_names_the_rank_and_the_pool_recovers(pool: RankPool, how: str, message: str) -> None:
    with pytest.raises(RankError) as caught:
        pool.run(fail_on, 1, how, ranks=2, seconds=4.0 if how == "hangs" else 60.0)
    assert message in str(caught.value)
    if how != "hangs":
        assert caught.value.rank == 1
    if how == "raises":
        assert "fail_on" in caught.value.trace
    assert pool.run(add_up, 1.0, ranks=2) == [3.0, 3.0]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="a policy of Linux")
def test_threads_of_ranks_wait_for_each_other_unless_they_are_measured(pool: RankPool) -> None:
    assert pool.run(scheduling, ranks=2) == 2 * [{os.SCHED_BATCH}]
    with RankPool(2, measured=True) as measured:
        assert measured.run(scheduling, ranks=2) == 2 * [{os.SCHED_OTHER}]

"""A pool of processes that serve as ranks, started once and reused.

A case is a function that the first n processes run together, in a process group of their own. The processes are kept
because importing torch takes seconds and a case a fraction of one. If the system can fork, they are forked from one
process that has imported torch and done nothing else: torch is then imported once for all.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


GRACE = 5.0
"""Seconds that the other ranks get to end after one has failed. They normally see its connections close."""


PRELOADED = ["torch", "torch.distributed.device_mesh"]
"""Modules that are imported by the process from which ranks are forked."""


class RankError(Exception):
    """A case failed on a rank: it raised (`trace` is its traceback), died, or did not end in time."""

    def __init__(self, rank: int, reason: str, trace: str = "") -> None:
        super().__init__(f"rank {rank}: {reason}" + (f"\n{trace}" if trace else ""))
        self.rank = rank
        self.reason = reason
        self.trace = trace


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    connection: Connection


@dataclass(frozen=True)
class _Case:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rank: int
    ranks: int
    store: str
    seconds: float
    backend: str


class RankPool:
    """Up to `size` ranks on this machine, each one process with one thread. Used as a context manager.

    `backend` is that of the ranks' process groups. A rank is started when a case first needs it. After a failure the
    ranks that took part are replaced, so that the next case finds a sound pool. If cases are `measured`, threads are
    scheduled as in a program that a user starts; otherwise so that cases take the least time.
    """

    def __init__(self, size: int = 4, backend: str = "gloo", *, measured: bool = False) -> None:
        self.size = size
        self.backend = backend
        self.measured = measured
        self._workers: list[_Worker] = []
        self._folder = Path(tempfile.mkdtemp(prefix="unity-ranks-"))
        self._cases = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        self._discard(len(self._workers))
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, function: Callable[..., Any], *arguments: Any, ranks: int, seconds: float = 300.0) -> list[Any]:
        """Run `function(rank, ranks, *arguments)` on ranks of one process group. Returns the results in the order of
        ranks.

        The function must be importable by name; arguments and results are pickled. Raises RankError, and ValueError for
        more ranks than the pool has.
        """
        if not 1 <= ranks <= self.size:
            raise ValueError(f"a pool of {self.size} has no {ranks} ranks")
        while len(self._workers) < ranks:
            self._workers.append(_start(len(self._workers), self.measured))
        self._cases += 1
        store = str(self._folder / f"store-{self._cases}")
        for rank, worker in enumerate(self._workers[:ranks]):
            worker.connection.send(_Case(function, arguments, rank, ranks, store, seconds, self.backend))
        try:
            return self._collect(ranks, seconds)
        except BaseException:
            self._discard(ranks)
            raise

    def _collect(self, ranks: int, seconds: float) -> list[Any]:
        results: dict[int, Any] = {}
        failures: list[RankError] = []
        deadline = time.monotonic() + seconds
        while len(results) + len(failures) < ranks:
            waiting = [r for r in range(ranks) if r not in results and all(f.rank != r for f in failures)]
            handles = {self._workers[rank].connection: rank for rank in waiting}
            ready = wait(list(handles), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                if failures:
                    break
                late = ", ".join(map(str, waiting))
                raise RankError(waiting[0], f"no end within {seconds:.0f} s (ranks still at work: {late})")
            for handle in ready:
                rank = handles[handle]  # type: ignore[index]
                try:
                    done, value = self._workers[rank].connection.recv()
                except (EOFError, ConnectionResetError):
                    failures.append(RankError(rank, self._epitaph(rank)))
                else:
                    if done:
                        results[rank] = value
                    else:
                        failures.append(RankError(rank, *value))
            if failures:
                deadline = min(deadline, time.monotonic() + GRACE)
        if failures:
            raise _cause(failures)
        return [results[rank] for rank in range(ranks)]

    def _epitaph(self, rank: int) -> str:
        process = self._workers[rank].process
        process.join(GRACE)
        code = process.exitcode
        return f"the process died, {f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'}"

    def _discard(self, count: int) -> None:
        """End the first `count` processes. Later ones move up, as any process can serve as any rank."""
        gone, self._workers = self._workers[:count], self._workers[count:]
        for worker in gone:
            worker.connection.close()
            worker.process.kill()
        for worker in gone:
            worker.process.join()


def _cause(failures: list[RankError]) -> RankError:
    """The failure that is not itself a consequence of another rank's end (a lost connection)."""
    lost = ("Connection closed by peer", "Connection reset", "connectFullMesh", "recv_socket", "Broken pipe")
    causes = [failure for failure in failures if not any(text in str(failure) for text in lost)]
    return (causes or failures)[0]


def start_context() -> ForkServerContext | SpawnContext:
    """The multiprocessing context that starts ranks. Forking this process itself would inherit its threads and what
    they hold.
    """
    from multiprocessing import get_all_start_methods, get_context

    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def let_threads_finish() -> None:
    """On Linux, schedule this process's threads so that a thread that wakes up does not preempt another (SCHED_BATCH).
    Gloo's thread that waits for sockets polls while another thread holds the lock of a connection. If it preempts that
    thread, it polls for a whole time slice. With more ranks than processors, that is most of a small collective.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _start(number: int, measured: bool) -> _Worker:
    context = start_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, measured), daemon=True, name=f"rank-{number}")
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        _start_server()
        process.start()
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    theirs.close()
    return _Worker(process, ours)


def _start_server() -> None:
    """Start the process that ranks are forked from, if the system has one and it does not run yet. Interrupts are
    blocked in it from the start: it ends with this process, and an interrupt during its import of torch would print a
    message.
    """
    from multiprocessing import forkserver, get_all_start_methods, resource_tracker

    if "forkserver" in get_all_start_methods():
        resource_tracker.ensure_running()  # otherwise the server would start it, which unblocks interrupts again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, measured: bool) -> None:
    """Main loop of one rank: run cases until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import gc
    import sys

    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    gc.freeze()
    if not measured:
        let_threads_finish()
    while True:
        try:
            case = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            answer = (True, _run(case))
        except BaseException as error:
            answer = (False, (f"{type(error).__name__}: {error}", traceback.format_exc()))
        connection.send(answer)


def _run(case: _Case) -> Any:
    import gc
    from datetime import timedelta

    import torch.distributed as dist

    if case.ranks == 1:
        return case.function(case.rank, case.ranks, *case.arguments)
    limit = timedelta(seconds=case.seconds)
    dist.init_process_group(case.backend, f"file://{case.store}", limit, case.ranks, case.rank)
    try:
        # `init_process_group` returns when this rank is connected. Without a barrier, a rank whose case has no
        # collectives would leave before the others are connected, and they would fail.
        dist.barrier()
        return case.function(case.rank, case.ranks, *case.arguments)
    finally:
        # Meshes and groups are in reference cycles. Without this collection, each keeps its threads and sockets until
        # it is taken down in the middle of a later case.
        gc.collect()
        dist.destroy_process_group()

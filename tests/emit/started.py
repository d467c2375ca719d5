"""Runs scripts, above all train.py, in processes forked from one that has imported torch.

The import takes longer than the training.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp

from unity_dsl.emit.rank_pool import PRELOADED, let_threads_finish, start_context

# Optimizers and checkpoints import these modules. The ranks of pools fork from the same process.
PRELOADED += ["torch._dynamo", "torch.distributed.checkpoint"]


class Started:
    """A running program, with an interface like `subprocess.Popen`."""

    def __init__(self, process: BaseProcess, folder: Path) -> None:
        self.process, self.folder = process, folder

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its standard output and standard error, after it has ended. Raises TimeoutError."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            raise TimeoutError(f"no end within {timeout} s: {(self.folder / 'err').read_text()}")
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()


def start(out: Path, ranks: int, *arguments: object) -> list[Started]:
    """Starts train.py on `ranks` ranks, from the folder that contains `out`, with the environment variables of
    torchrun.
    """
    return start_ranks([str(out / "train.py"), "--device", "cpu", *map(str, arguments)], ranks, out.parent, out.parent)


def start_ranks(script: Sequence[str], ranks: int, cwd: Path, told: Path) -> list[Started]:
    """Starts a script with its arguments on `ranks` ranks, with the environment variables of torchrun. Their output
    goes to new folders in `told`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [
        start_script(script, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd, told)
        for rank in range(ranks)
    ]


def start_script(script: Sequence[str], environment: Mapping[str, str], cwd: Path, told: Path) -> Started:
    """Starts a script with its arguments in a new process, which adds `environment` to this process's variables."""
    folder = Path(mkdtemp(dir=told))
    for name in ("out", "err"):  # for a process that is ended before it prints
        (folder / name).touch()
    process = start_context().Process(target=run_script, args=(script, environment, cwd, folder), daemon=True)
    process.start()
    return Started(process, folder)


def run_script(script: Sequence[str], environment: Mapping[str, str], cwd: Path, folder: Path) -> None:
    """Runs a script as a fresh interpreter does: its folder is first on the path, and nothing of this project is on it.

    Modules of this project are unloaded first.
    """
    let_threads_finish()
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1) for n in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent process blocks SIGINT
    for name in [name for name in sys.modules if name.partition(".")[0] in ("unity_dsl", "tests")]:
        del sys.modules[name]
    os.environ.update(environment)
    os.chdir(cwd)
    import torch

    torch.set_num_threads(1)
    sys.argv = list(script)
    site = [path for path in sys.path if "site-packages" in path or "lib/python" in path or path.endswith(".zip")]
    sys.path[:] = [str(Path(script[0]).absolute().parent), *site]
    runpy.run_path(script[0], run_name="__main__")

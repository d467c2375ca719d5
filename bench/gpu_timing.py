"""Shared by the phases of bench/gpu.py, and needs only torch: timing, batches, result files, turns of processes."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
Action = Callable[[], Any]

GRAPH_BELOW = 60e-6
"""Seconds. A shorter call is timed in a CUDA graph, which measures its kernels and not its launches."""

WAIT_CYCLES = 2_000_000
"""Cycles of the device's clock, about a millisecond, which is longer than the host takes to launch a measured call."""

LEAST_ELAPSED = 3e-3
"""Least seconds of kernel time in one measurement."""


def device_of(cpu: bool) -> torch.device:
    """The GPU; the CPU in a rehearsal. Without a GPU the program ends with exit code 2."""
    if cpu:
        torch.set_num_threads(1)
        return torch.device("cpu")
    if not torch.cuda.is_available():
        print("there is no GPU: nothing is measured (--cpu rehearses every phase at tiny sizes)", file=sys.stderr)
        raise SystemExit(2)
    torch.cuda.init()
    return torch.device("cuda")


def tf32(on: bool) -> None:
    """Turns TF32 on or off for matrix products and convolutions. For convolutions torch's default is on."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def batch_of(module: Any, device: torch.device, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Random inputs of an emitted program, the same in every process. Floating-point targets lie in (0, 1)."""
    source, batch = torch.Generator().manual_seed(0), {}
    for name, spec in module.INPUTS.items():
        if spec.integer_range is None:
            drawn = torch.randn(spec.shape, generator=source, dtype=dtype)
            batch[name] = drawn if name != "target" else drawn.sigmoid()
        else:
            batch[name] = torch.randint(spec.integer_range, spec.shape, generator=source)
    return {name: tensor.to(device) for name, tensor in batch.items()}


def synchronise() -> None:
    """Wait until the device has finished all work that was issued to it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_in_turns(actions: Mapping[str, Action], repetitions: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each action. The actions take turns, and the cache of a GPU is overwritten before each.

    The GPU also sleeps before each action, while the host launches the kernels, so that they do not wait for the host.
    """
    cuda = torch.cuda.is_available()
    flushed = torch.empty(2**27, dtype=torch.uint8, device="cuda") if cuda else None
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(warmup + repetitions):
        for name, action in actions.items():
            if flushed is not None:
                flushed.zero_()
                torch.cuda._sleep(WAIT_CYCLES)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                action()
                end.record()
                end.synchronize()
                seconds = begin.elapsed_time(end) / 1e3
            else:
                start = time.perf_counter()
                action()
                seconds = time.perf_counter() - start
            if number >= warmup:
                times[name].append(seconds)
    return {name: median(own) for name, own in times.items()}


def kernel_seconds(call: Action, graph: bool = True) -> float:
    """Seconds of a call's kernels without launches; short kernels are timed in a CUDA graph. On a CPU, seconds of the
    call.

    A backward pass by autograd is timed without a `graph`, so the time of a short one includes its launches.
    """
    if not torch.cuda.is_available():
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    for _ in range(2):
        call()
    once = _elapsed(call, 3)
    if once >= GRAPH_BELOW or not graph:
        return _elapsed(call, max(2, min(50, round(LEAST_ELAPSED / once))))
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(20):
            call()
    recorded.replay()
    return median(_elapsed(recorded.replay, 1) / 20 for _ in range(5))


def _elapsed(call: Action, times: int) -> float:
    """Mean seconds of one of `times` consecutive calls, between two device events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / times


def host_seconds(call: Action, times: int = 300) -> float:
    """Seconds that the host takes to issue a call, the device's work excluded: the median of three rounds."""
    for _ in range(10):
        call()
    found = []
    for _ in range(3):
        synchronise()
        start = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - start) / times)
    synchronise()
    return median(found)


def ceilings(device: torch.device, tiny: bool) -> dict[str, float]:
    """Bytes a second of a copy, reads and writes counted, and FLOPs a second of a matrix product in bf16."""
    count, size = (2**12, 64) if tiny else (2**31, 8192)
    x = torch.empty(count, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    a = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    b = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    copy, product = kernel_seconds(lambda: y.copy_(x)), kernel_seconds(lambda: a @ b)
    return {"bytes_per_second": 2 * count / copy, "flops_per_second": 2 * size**3 / product}


def hardware() -> dict[str, Any]:
    """The device and the versions that were measured; nothing that identifies the machine itself."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    found: dict[str, Any] = {"cpu": (models or [""])[0], "cores": len(os.sched_getaffinity(0))}
    found |= {"python": sys.version.split()[0], "torch": torch.__version__}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "memory": properties.total_memory, "cuda": str(torch.version.cuda)}
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        pass
    return found


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write a file of results atomically."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(part, path)


def reason_of(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def watch_failures(kernels: Any) -> dict[str, str]:
    """A dictionary that will hold, by name, the tracebacks of kernels that fall back to torch's operators. `kernels` is
    the module of a kernels.py.
    """
    failures: dict[str, str] = {}
    told = kernels.failed

    def failed(function: Any, error: Exception) -> None:
        failures.setdefault(function.__name__, traceback.format_exc()[-3000:])
        told(function, error)

    kernels.failed = failed
    return failures


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a lock, so that only one process at a time runs a part that needs most of the device's memory."""
    with (folder / "alone.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def wait_for_turn() -> None:
    """Tell the parent process that everything is compiled, and wait until it answers that nothing else runs."""
    print("ready", flush=True)
    sys.stdin.readline()

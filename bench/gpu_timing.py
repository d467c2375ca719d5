"""What the benchmarks on a GPU share, with torch alone: times in turns, ceilings of the device, files of results."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
Action = Callable[[], Any]


def device_or_exit(cpu: bool) -> torch.device:
    """The GPU. Without one the program ends with exit code 2, unless it is a trial on the CPU."""
    if cpu:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        print("there is no GPU: nothing is measured (--cpu tries everything at tiny sizes)", file=sys.stderr)
        raise SystemExit(2)
    return torch.device("cuda")


def seconds_in_turns(actions: Mapping[str, Action], repetitions: int, warmup: int = 3) -> dict[str, float]:
    """Median seconds of each, all of them run in turns; of a GPU by events, its cache emptied before each."""
    cuda = torch.cuda.is_available()
    flushed = torch.empty(2**28, dtype=torch.uint8, device="cuda") if cuda else None
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(warmup + repetitions):
        for name, action in actions.items():
            if flushed is not None:
                flushed.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                action()
                end.record()
                end.synchronize()
                seconds = begin.elapsed_time(end) / 1e3
            else:
                start = time.process_time()
                action()
                seconds = time.process_time() - start
            if number >= warmup:
                times[name].append(seconds)
    return {name: median(own) for name, own in times.items()}


def ceilings(device: torch.device, repetitions: int, tiny: bool) -> dict[str, float]:
    """Bytes a second of a copy, both directions counted, and operations a second of a product of matrices in bf16."""
    count, size = (2**12, 64) if tiny else (2**30, 8192)
    x = torch.empty(count, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    a = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    actions: dict[str, Action] = {"copy": lambda: y.copy_(x), "matmul": lambda: a @ a}
    found = seconds_in_turns(actions, repetitions)
    return {"bytes_per_second": 2 * count / found["copy"], "flops_per_second": 2 * size**3 / found["matmul"]}


def hardware() -> dict[str, str]:
    """The device and the versions that were measured."""
    found = {"torch": torch.__version__}
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda or torch.version.hip)}
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        pass
    return found


def write_results(name: str, command: str, results: Mapping[str, Any]) -> Path:
    """`results/NAME.json` beside this file, whole or not at all."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"command": command, "hardware": hardware(), **results}, indent=1) + "\n")
    os.replace(part, path)
    return path

"""Programs of two ranks on one device, through gloo: `python gpu_ranks.py --programs DIR --out FILE`.

NCCL allows one rank per GPU; gloo allows two. With gloo, one GPU exercises a program's streams, buckets, prefetched
gathers and asynchronous reductions. Losses and gradients in float64 are compared with the program for one device. A
phase of bench/gpu.py.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from gpu_timing import batch_of, device_of, reason_of, write
from torch import Tensor

RANKS = 2
BOUND = 1e-10


def step(module: Any, mesh: Any, device: torch.device) -> tuple[float, dict[str, Tensor]]:
    """Loss and unsharded gradients of a step in float64."""
    model = module.Model(mesh, device=device, dtype=torch.float64)
    model.initialise(0)
    model.train()
    loss = model(**batch_of(module, device, torch.float64))[0]
    loss.backward()
    model.synchronise()
    found = {name: model.full(name, p.grad).cpu() for name, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), found


def rank_step(rank: int, made: str, name: str, store: str, kind: str, results: Any) -> None:
    """Runs the step of one rank in its own process; stores loss and gradients, or the error, in `results`."""
    faulthandler.enable()
    try:
        device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(0)
        backend = "cpu:gloo,cuda:gloo" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
        sys.path.insert(0, made)
        module = importlib.import_module(f"{name}.model")
        loss, found = step(module, module.build_mesh(kind), device)
        results[rank] = (loss, {key: value.numpy() for key, value in found.items()})
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        results[rank] = (reason_of(error), traceback.format_exc()[-3000:])


def compared(made: Path, name: str, alone: str, device: torch.device) -> dict[str, Any]:
    """The largest relative error of loss and gradients of a program on two ranks, or why a rank failed."""
    sys.path.insert(0, str(made))
    loss, wanted = step(importlib.import_module(f"{alone}.model"), None, device)
    with tempfile.TemporaryDirectory() as folder, mp.get_context("spawn").Manager() as manager:
        results = manager.dict()
        context = mp.get_context("spawn")
        given = (str(made), name, f"{folder}/store", device.type, results)
        processes = [context.Process(target=rank_step, args=(rank, *given)) for rank in range(RANKS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            process.kill()  # if it still runs, its exit code becomes -9
            process.join()
        found = dict(results)
        codes = [process.exitcode for process in processes]
    failed = [found.get(rank, (f"it ended with code {code} and no result", "")) for rank, code in enumerate(codes)]
    for reason in failed:
        if isinstance(reason[0], str):
            return {"correct": False, "reason": reason[0], "trace": reason[1]}
    errors = [abs(found[rank][0] - loss) / abs(loss) for rank in range(RANKS)]
    squares = torch.stack([value.square().mean() for value in wanted.values()])
    floor = 1e-3 * float(squares.mean().sqrt())  # some gradients are zero up to rounding
    for rank in range(RANKS):
        for key, value in found[rank][1].items():
            scale = max(float(wanted[key].abs().max()), floor)
            errors.append(float((torch.from_numpy(value) - wanted[key]).abs().max()) / scale)
    return {"error": max(errors), "correct": max(errors) <= BOUND}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    device = device_of(options.cpu)
    results: dict[str, Any] = {}
    for name, alone in json.loads((options.programs / "manifest.json").read_text())["ranks"].items():
        try:
            results[name] = compared(options.programs, name, alone, device)
        except Exception as error:
            results[name] = {"correct": False, "reason": reason_of(error), "trace": traceback.format_exc()[-3000:]}
        write(options.out, results)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

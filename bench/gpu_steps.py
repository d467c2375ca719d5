"""A training step of one model on a device, in several ways: `python gpu_steps.py NAME --programs DIR --out FILE`.

The ways are the emitted program with torch's operators and with kernels, both also as a CUDA graph, and a hand-written
module with the best native calls. With `--compiled` they are the program with torch's operators and the hand-written
module, under torch.compile. Losses and gradients are compared with float64. Measured are the seconds of a step, the
host's seconds to issue it, peak memory, and the seconds of each kernel. A phase of bench/gpu.py.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from by_hand import BY_HAND
from gpu_timing import alone, batch_of, device_of, reason_of, synchronise, tf32, wait_for_turn, watch_failures, write
from torch import Tensor, nn

NARROW = {"bf16": torch.bfloat16, "f16": torch.float16}
BOUND = {"bf16": 2**-6, "f16": 2**-9, "f32": 1e-4}
"""Largest norm of the error of all gradients, relative to the norm of the float64 gradients. An error up to `TIMES`
times that of torch's operators passes too.
"""
TIMES = 4.0
SECONDS = 1.0
"""Approximate total duration of the timed steps of one way."""
MOST_KERNELS = 40
KEPT_BYTES = 2 * 2**30
"""Compiled ways of a model with fewer bytes of weights are kept until they are timed. Larger models compile again, from
a cache.
"""


@dataclass
class Way:
    """One way to run a step: the model, the function that computes the batch's loss, and whether TF32 is on."""

    model: nn.Module
    loss: Callable[[], Tensor]
    tf32: bool = False
    optimizer: Any = torch.optim.AdamW
    recorded: Callable[[], Tensor] | None = None
    """Forward and backward pass as the CUDA graph of train.py; returns the loss."""


class Steps:
    """The ways of one model, which share the weights of seed 0."""

    def __init__(self, name: str, made: Path, record: Mapping[str, Any], device: torch.device) -> None:
        self.name, self.record, self.device = name, record, device
        self.narrow = NARROW.get(record["precision"])
        sys.path.insert(0, str(made))
        self.modules = {kind: importlib.import_module(f"{name}_{kind}.model") for kind in record["kernels"]}
        self.weights = initial_weights(self.modules["torch"], device)
        self.batch = batch_of(self.modules["torch"], device)
        self.optimizer = importlib.import_module(f"{name}_triton.optimizer").AdamW
        kernels = sys.modules.get(f"{name}_triton.kernels")
        self.failures = {"kernels.py": "the program has no kernels"} if kernels is None else watch_failures(kernels)

    def model(self, kind: str, dtype: torch.dtype | None = None) -> nn.Module:
        """The emitted program with these weights."""
        model: nn.Module = self.modules[kind].Model(None, device=self.device, dtype=dtype)
        held = model.stored()  # type: ignore[operator]
        with torch.no_grad():
            for tensor_name, tensor in held.items():
                tensor.copy_(self.weights[tensor_name])
        return model

    def by_hand(self) -> nn.Module:
        """The hand-written module with these weights."""
        with torch.device(self.device):
            return BY_HAND[self.name](self.weights, self.record["sizes"])

    def precision(self) -> AbstractContextManager[Any]:
        """The autocast context in which the hand-written module runs."""
        return nullcontext() if self.narrow is None else torch.autocast(self.device.type, self.narrow)

    def ways(self, compiled: bool) -> dict[str, Callable[[], Way]]:
        """Factories of the ways by name. Make one at a time: each has its own weights, gradients and optimizer."""
        if compiled:
            found = {"torch_compiled": lambda: self.emitted("torch", compiled=True)}
            if self.name in BY_HAND:
                found["by_hand_compiled"] = lambda: self.hand(True)
            return found
        found = {kind: lambda kind=kind: self.emitted(kind) for kind in self.modules}  # type: ignore[misc]
        if self.device.type == "cuda":
            found |= {f"{kind}_recorded": lambda kind=kind: self.recorded(kind) for kind in self.modules}  # type: ignore[misc]
        if self.name in BY_HAND:
            found["by_hand"] = lambda: self.hand(False)
        if self.record["precision"] == "f32":
            found |= {f"{way}_tf32": lambda make=make: replace(make(), tf32=True) for way, make in found.items()}  # type: ignore[misc]
        return found

    def emitted(self, kind: str, compiled: bool = False) -> Way:
        model, batch = self.model(kind), self.batch

        def loss(**batch: Tensor) -> Tensor:
            found: Tensor = model(**batch)[0]
            return found

        call = torch.compile(loss, fullgraph=True, backend=self.backend) if compiled else loss
        optimizer = self.optimizer if kind == "triton" else torch.optim.AdamW
        return Way(model, lambda: call(**batch), optimizer=optimizer)

    def recorded(self, kind: str) -> Way:
        """The emitted program with its forward and backward pass recorded as a CUDA graph by a class of train.py."""
        way, train = self.emitted(kind), importlib.import_module(f"{self.name}_{kind}.train")
        one_pass = train.Recorded(
            way.model, partial(train.train_pass, way.model, lambda **batch: way.model(**batch)[0], 1)
        )
        return replace(way, recorded=lambda: one_pass(self.batch, 0))

    def hand(self, compiled: bool) -> Way:
        module = self.by_hand()
        call = torch.compile(module, backend=self.backend) if compiled else module

        def loss() -> Tensor:
            with self.precision():
                found: Tensor = call(**self.batch)
                return found

        return Way(module, loss)

    @property
    def backend(self) -> str:
        return "inductor" if self.device.type == "cuda" else "aot_eager"


def initial_weights(module: Any, device: torch.device) -> dict[str, Tensor]:
    """Every parameter and buffer by the program's own initialisers, drawn on the device, which is fast for billions."""
    found = {}
    with torch.device(device):
        for number, (name, spec) in enumerate({**module.PARAMETERS, **module.BUFFERS}.items()):
            found[name] = module.initial(spec, torch.Generator(device).manual_seed(number))
    return found


def one_pass(way: Way) -> Tensor:
    """Runs forward and backward pass of a batch; returns the loss."""
    if way.recorded is not None:
        return way.recorded()
    loss = way.loss()
    loss.backward()
    return loss.detach()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients of the model's parameters by name. Resets the `grad` of each parameter to None."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return found


def errors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Any]:
    """The norm of all errors relative to the norm of all values, and the three largest relative errors of a tensor."""
    squares, norms = torch.zeros(2, dtype=torch.float64), dict[str, Tensor]()
    for name, value in wanted.items():
        own = found[name].double() if name in found else torch.zeros_like(value)
        pair = torch.stack([(own - value).square().sum(), value.square().sum()]).cpu().double()
        squares += pair
        norms[name] = pair
    least = max(float(pair[1]) for pair in norms.values()) * 1e-12  # a tensor may be zero up to rounding
    each = {name: float((pair[0] / pair[1].clamp(min=least)).sqrt()) for name, pair in norms.items()}
    worst = sorted(each, key=lambda name: -each[name] if each[name] == each[name] else float("-inf"))[:3]
    whole = float((squares[0] / squares[1]).sqrt())
    return {"gradients": whole, "worst": {name: each[name] for name in worst}}


# ---------------------------------------------------------------------------------------------- correct?


def checked(steps: Steps, kinds: Iterable[str]) -> dict[str, Any]:
    """Losses and gradients of the emitted programs against float64; dropout draws the same numbers in all of them."""
    tf32(False)
    exact = steps.model("torch", torch.float64)
    wide = {name: x.double() if x.is_floating_point() else x for name, x in steps.batch.items()}
    with torch.no_grad():
        evaluated = float(exact.eval()(**wide)[0])
    loss = exact.train()(**wide)[0]
    loss.backward()
    told, wanted = float(loss.detach()), gradients(exact)
    del exact, loss
    found: dict[str, Any] = {"float64": {"loss": told, "evaluated": evaluated}}
    for kind in kinds:
        way = steps.ways(False)[kind]()
        for _ in range(4 if way.recorded is not None else 1):  # the last two replay the CUDA graph
            way.model.zero_grad(set_to_none=True)
            reached = float(one_pass(way))
        row: dict[str, Any] = {"loss": reached, "loss_error": abs(reached - told) / abs(told)}
        row |= errors(gradients(way.model), wanted)
        synchronise()
        found[kind] = row | {"fell_back": dict(steps.failures) if kind.startswith("triton") else {}}
        del way
        release(steps)
    del wanted
    release(steps)
    bound = max(BOUND[steps.record["precision"]], TIMES * found["torch"]["gradients"])
    for kind in kinds:
        row = found[kind]
        row["correct"] = row["gradients"] <= bound and row["loss_error"] <= bound and not row["fell_back"]
    return found


def hand_checked(steps: Steps, evaluated: float) -> dict[str, Any]:
    """Checks that the hand-written module's float64 loss without dropout equals the program's `evaluated`; also returns
    the error of its gradients against its own in float64.
    """
    exact = steps.by_hand().double().eval()
    wide = {name: x.double() if x.is_floating_point() else x for name, x in steps.batch.items()}
    with torch.no_grad():
        found = float(exact(**wide))
    exact.train(not steps.record["dropout"])  # dropout draws differ
    exact(**wide).backward()
    wanted = gradients(exact)
    del exact
    way = steps.hand(False)
    way.model.train(not steps.record["dropout"])
    one_pass(way)
    row = {"float64_loss": found, "same_model": abs(found - evaluated) / abs(evaluated)}
    row |= errors(gradients(way.model), wanted)
    release(steps)
    return row | {"correct": row["same_model"] <= 1e-6}


# ---------------------------------------------------------------------------------------------- fast?


def training_step(way: Way) -> Callable[[], None]:
    """A function that runs forward pass, backward pass and optimizer update."""
    native = way.optimizer is torch.optim.AdamW and next(way.model.parameters()).is_cuda
    optimizer = way.optimizer(way.model.parameters(), lr=1e-5, **({"fused": True} if native else {}))

    def run() -> None:
        one_pass(way)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if getattr(optimizer, "failed", False):
            raise RuntimeError("the optimizer's kernel failed")

    return run


def measured(way: Way) -> dict[str, Any]:
    """Seconds of a step and of the host to issue it, peak bytes, and the step's kernels. On a CPU only the seconds."""
    tf32(way.tf32)
    step = training_step(way)
    cuda = torch.cuda.is_available()
    for _ in range(3 if cuda else 1):
        step()
    synchronise()
    start = perf_counter()
    step()
    synchronise()
    once = perf_counter() - start
    if not cuda:  # a rehearsal
        return {"seconds": once}
    torch.cuda.reset_peak_memory_stats()
    count = max(3, min(50, int(SECONDS / max(once, 1e-6))))
    start = perf_counter()
    for _ in range(count):
        step()
    issued = (perf_counter() - start) / count
    synchronise()
    found: dict[str, Any] = {"seconds": (perf_counter() - start) / count, "issued": issued, "steps": count}
    start = perf_counter()
    step()
    found["issued_once"] = perf_counter() - start  # the queue was empty: host time alone
    synchronise()
    return found | {"peak_bytes": torch.cuda.max_memory_allocated()} | kernels_of(step)


def kernels_of(step: Callable[[], None]) -> dict[str, Any]:
    """Seconds and launches of all kernels of a step together, and by name of the `MOST_KERNELS` longest."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        synchronise()
    rows: dict[str, list[float]] = {}
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            row = rows.setdefault(event.name[:120], [0, 0.0])
            row[0] += 1
            row[1] += event.self_device_time_total / 1e6
    longest = sorted(rows, key=lambda name: -rows[name][1])[:MOST_KERNELS]
    return {
        "kernel_seconds": sum(row[1] for row in rows.values()),
        "kernel_launches": sum(row[0] for row in rows.values()),
        "kernels": {name: rows[name] for name in longest},
    }


def release(steps: Steps) -> None:
    gc.collect()
    if steps.device.type == "cuda":
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compiled", action="store_true", help="the ways that torch compiles, and those alone")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    device = device_of(options.cpu)
    record = json.loads((options.programs / "manifest.json").read_text())["models"][options.name]
    results: dict[str, Any] = {"predicted": record["predicted"], "precision": record["precision"], "ways": {}}
    warnings.simplefilter("ignore", FutureWarning)

    def attempt(where: dict[str, Any], key: str, action: Callable[[], dict[str, Any]]) -> None:
        start = perf_counter()
        try:
            where[key] = {**where.get(key, {}), **action()}
        except Exception as error:  # a failure is recorded as a result, and the other ways still run
            where[key] = {**where.get(key, {}), "failed": reason_of(error), "trace": traceback.format_exc()[-3000:]}
        where[key]["took"] = where[key].get("took", 0.0) + perf_counter() - start
        write(options.out, results)

    steps = Steps(options.name, options.programs, record, device)

    ways = steps.ways(options.compiled)
    kept: dict[str, Way] = {}
    small = sum(tensor.nbytes for tensor in steps.weights.values()) < KEPT_BYTES
    for name, make in ways.items():
        if not options.compiled and name != "triton":
            continue

        def warm(name: str = name, make: Callable[[], Way] = make) -> dict[str, Any]:
            """Run one forward and backward pass, so that the way compiles."""
            way = make()
            tf32(False)
            way.loss().backward()
            synchronise()
            way.model.zero_grad(set_to_none=True)
            if small and options.compiled:
                kept[name] = way
            return {}

        attempt(results["ways"], name, warm)
        release(steps)
    if not options.compiled:
        with alone(options.out.parent):
            emitted = [name for name in ways if name in steps.modules or name.endswith("_recorded")]
            attempt(results, "check", lambda: checked(steps, emitted))
            if options.name in BY_HAND:
                evaluated = results["check"].get("float64", {}).get("evaluated", float("nan"))
                attempt(results, "check_by_hand", lambda: hand_checked(steps, evaluated))
            release(steps)
    wait_for_turn()
    for name, make in ways.items():
        way = kept.pop(name, None)
        attempt(results["ways"], name, lambda way=way, make=make: measured(way or make()))  # type: ignore[misc]
        del way
        release(steps)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Processor seconds of a training step of emitted programs against modules written by hand: `python bench/program.py`.

Forward and backward pass on one device, on the same weights and data: emitted with and without the shipped fusions, and
by hand with the best native calls that PyTorch has. Seconds are of processor time, on one thread. Steps of the three
take turns in one process; a ratio is the median of the ratios of neighbouring steps. Without dropout all have the same
loss, which is checked; with it the draws differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from types import ModuleType

import torch
from by_hand import BY_HAND, Batch
from measure import write_results
from torch import Tensor, nn

from unity_dsl.compile import Request, compile_model
from unity_dsl.emit.output_folder import write_program

ROOT = Path(__file__).parent.parent
SIZES = {"b": 2, "s": 256, "d": 256, "heads": 4, "layers": 2, "vocabulary": 1024}
"""Of both models: small enough for one core, large enough that kernels and not Python take the time."""

EXAMPLES = ("gpt2", "bert_large")


# ---------------------------------------------------------------------------------------------- measured


def emitted(example: str, dropout: float, folder: Path, fused: bool) -> ModuleType:
    """The module `model.py` of an example at `SIZES`, compiled for one device."""
    settings = {**SIZES, "dropout": dropout}
    request = Request(ROOT / "examples" / f"{example}.udl", settings=settings, precision="f32", shipped_rules=fused)
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, folder)
    name = f"{folder.parent.name}_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def batch_of(module: ModuleType) -> Batch:
    """Integers for every input of a program."""
    source = torch.Generator().manual_seed(0)
    return {
        name: torch.randint(spec.integer_range, spec.shape, generator=source) for name, spec in module.INPUTS.items()
    }


def step(model: nn.Module, loss_of: Callable[[], Tensor]) -> tuple[float, float]:
    """Loss, and processor seconds of a forward and backward pass."""
    model.zero_grad()
    start = time.process_time()
    loss = loss_of()
    loss.backward()
    seconds = time.process_time() - start
    return float(loss.detach()), seconds


def compare(example: str, dropout: float, repetitions: int, folder: Path) -> dict[str, float | int]:
    """Median seconds of a step of each, and the medians of the ratios of neighbouring steps to the one by hand."""
    programs: dict[str, nn.Module] = {}
    for name, fused in (("without_rules", False), ("emitted", True)):
        module = emitted(example, dropout, folder / name, fused)
        programs[name] = module.Model()
        programs[name].initialise(0)
    batch = batch_of(module)
    losses = {name: partial(first_of, model, batch) for name, model in programs.items()}
    programs["by_hand"] = BY_HAND[example](programs["emitted"].global_tensors(), {**SIZES, "dropout": dropout})
    losses["by_hand"] = partial(programs["by_hand"], **batch)
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(2 + repetitions):
        done = {name: step(model, losses[name]) for name, model in programs.items()}
        loss, _ = done["by_hand"]
        for name, (own, seconds) in done.items():
            if not dropout and abs(own - loss) > 1e-4 * abs(loss):
                raise SystemExit(f"{example}, {name}: the loss is {own}, by hand {loss}")
            if number >= 2:  # the first two warm up
                times[name].append(seconds)
    ratios = {
        f"ratio_{name}": round(median(map(truediv, times[name], times["by_hand"])), 3)
        for name in ("without_rules", "emitted")
    }
    return {**{name: round(median(own), 4) for name, own in times.items()}, **ratios, "repetitions": repetitions}


def first_of(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of an emitted program."""
    loss: Tensor = model(**batch)[0]
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for example in EXAMPLES:
            for dropout in (0, 0.1):
                name = f"{example}, dropout {dropout}"
                path = Path(folder) / f"{example}_{len(results)}"
                path.mkdir()
                results[name] = compare(example, dropout, options.repetitions, path)
                print(f"{name:<24} {results[name]}", flush=True)
    write_results("program", "python bench/program.py", results)


if __name__ == "__main__":
    main()

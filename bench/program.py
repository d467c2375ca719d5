"""Seconds of a training step of emitted programs against modules written by hand: `python bench/program.py`.

On one device, forward and backward pass are timed on the same weights and data, in processor seconds on one thread. The
programs are emitted with and without the shipped fusions, and written by hand with PyTorch's best native calls
(`by_hand.py`). Both kinds are then timed under torch.compile. The emitted program is compiled as in its `train.py`, as
a function that returns only the loss, like the hand-written ones. On two ranks (`program_ranks.py`), a whole step is
timed by the wall clock: the plan of `auto`, and plans with the same sharding as hand-written DDP, FSDP2 and DTensor
tensor parallelism.

The steps of all programs alternate in one run, in a different order each time, because caches and free memory left by
one program can favour the next. A ratio is the median of the ratios of neighbouring steps. Without dropout, equal
losses and gradient norms are checked; with dropout the draws differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
from by_hand import BY_HAND, Batch
from measure import write_results
from program_ranks import RANKS, compare_ranks
from torch import Tensor, nn

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_pool import RankPool

ROOT = Path(__file__).parent.parent
TEXTS = {"b": 2, "s": 256, "d": 256, "heads": 4, "layers": 2, "vocabulary": 1024}
IMAGES = {"b": 4, "image": 64, "width": 32, "cardinality": 16, "classes": 100}
SIZES: Mapping[str, Mapping[str, float]] = {
    "gpt2": TEXTS,
    "bert_large": TEXTS,
    "llama3_8b": {**TEXTS, "kv_heads": 2, "hidden": 688},
    "resnext50": {**IMAGES, **{f"blocks_{stage}": 2 for stage in (1, 2, 3, 4)}},
    "dlrm": {"b": 256, **{f"rows{number}": 2000 for number in (1, 2, 3, 4, 5, 7, 10, 11, 12, 15, 20, 21, 22, 23, 24)}},
}
"""Sizes small enough for one core and large enough that kernels, not Python, dominate the time."""

DROPOUTS: Mapping[str, tuple[float, ...]] = {"gpt2": (0, 0.1), "bert_large": (0, 0.1)}
PARTS = ("one_device", "compiled", "two_ranks")
ON_RANKS = ("gpt2", "llama3_8b")
RESULTS = ROOT / "bench" / "results" / "program.json"
RATIOS = ("without_rules", "emitted")


# ---------------------------------------------------------------------------------------------- measured


def emitted(example: str, sizes: Mapping[str, float], folder: Path, fused: bool) -> ModuleType:
    """The module `model.py` of an example, compiled for one device."""
    request = Request(ROOT / "examples" / f"{example}.udl", settings=dict(sizes), precision="f32", shipped_rules=fused)
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, folder)
    return loaded(folder, f"{folder.parent.name}_{folder.name}")


def loaded(folder: Path, name: str) -> ModuleType:
    """The module `model.py` of a program, imported under a unique name."""
    spec = importlib.util.spec_from_file_location(name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def batch_of(module: ModuleType) -> Batch:
    """Random values for every input of a program. A float target is a probability."""
    source, batch = torch.Generator().manual_seed(0), {}
    for name, spec in module.INPUTS.items():
        if spec.integer_range is not None:
            batch[name] = torch.randint(spec.integer_range, spec.shape, generator=source)
        else:
            drawn = torch.rand if name == "target" else torch.randn
            batch[name] = drawn(spec.shape, generator=source)
    return batch


def step(model: nn.Module, loss_of: Callable[[], Tensor]) -> tuple[float, float]:
    """Loss, and processor seconds of a forward and backward pass."""
    model.zero_grad()
    start = time.process_time()
    loss = loss_of()
    loss.backward()
    seconds = time.process_time() - start
    return float(loss.detach()), seconds


def norm_of(model: nn.Module) -> float:
    """The norm of all gradients together."""
    found = [p.grad.double().norm() for p in model.parameters() if p.grad is not None]
    return float(torch.stack(found).norm())


def compare(
    example: str, sizes: Mapping[str, float], repetitions: int, folder: Path, compiled: bool
) -> dict[str, float | int]:
    """Median seconds of a step of each program, and median ratios of neighbouring steps to the hand-written ones."""
    programs: dict[str, nn.Module] = {}
    for name in RATIOS[1:] if compiled else RATIOS:
        module = emitted(example, sizes, folder / name, name == "emitted")
        programs[name] = module.Model()
        programs[name].initialise(0)
    batch = batch_of(module)
    defaults: Any = {**module_sizes(example), **sizes}
    programs["by_hand"] = BY_HAND[example](programs["emitted"].global_tensors(), defaults)
    calls: dict[str, Callable[..., Tensor]] = {
        name: model if name == "by_hand" else loss_of(model) for name, model in programs.items()
    }
    if compiled:
        calls = {name: torch.compile(call, fullgraph=True) for name, call in calls.items()}
    losses = {name: partial(call, **batch) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in programs}
    turns = random.Random(0)
    for number in range(2 + repetitions):
        order = turns.sample(list(programs), len(programs))
        done = {name: step(programs[name], losses[name]) for name in order}
        if number == 0 and not sizes.get("dropout"):
            agree(example, {name: (loss, norm_of(programs[name])) for name, (loss, _) in done.items()})
        if number >= 2:  # the first two are warm-up
            for name, (_, seconds) in done.items():
                times[name].append(seconds)
    ratios = {
        f"ratio_{name}": round(median(map(truediv, times[name], times["by_hand"])), 3)
        for name in times
        if name != "by_hand"
    }
    return {**{name: round(median(own), 4) for name, own in times.items()}, **ratios, "repetitions": repetitions}


def agree(example: str, found: Mapping[str, tuple[float, float]]) -> None:
    """Raises SystemExit if a loss or gradient norm differs from the hand-written module's."""
    for name, numbers in found.items():
        for what, own, wanted in zip(("loss", "gradients' norm"), numbers, found["by_hand"], strict=True):
            if abs(own - wanted) > 1e-4 * abs(wanted):
                raise SystemExit(f"{example}, {name}: the {what} is {own}, by hand {wanted}")


def module_sizes(example: str) -> dict[str, float]:
    """The parameters of an example's small preset."""
    plan = compile_model(Request(ROOT / "examples" / f"{example}.udl", preset="small")).plan
    return dict(plan.parameters)


def loss_of(model: nn.Module) -> Callable[..., Tensor]:
    """The loss of an emitted program, as its `train.py` calls and compiles it."""

    def loss(**batch: Tensor) -> Tensor:
        found: Tensor = model(**batch)[0]
        return found

    return loss


def cases(examples: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """Yields a name, the example and its sizes, for every example with each of its dropout probabilities."""
    for example in examples:
        for dropout in DROPOUTS.get(example, (None,)):
            sizes = SIZES[example] if dropout is None else {**SIZES[example], "dropout": dropout}
            yield example if dropout is None else f"{example}, dropout {dropout}", example, sizes


def on_one_device(examples: Sequence[str], repetitions: int, compiled: bool) -> dict[str, dict[str, float | int]]:
    """Results on one device by example, and by dropout probability if the example has dropout."""
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, example, sizes) in enumerate(cases(examples)):
            path = Path(folder) / f"{example}_{number}{'_compiled' if compiled else ''}"
            path.mkdir()
            results[name] = compare(example, sizes, repetitions, path, compiled)
            print(f"{name:<24} {results[name]}", flush=True)
    return results


def on_two_ranks(examples: Sequence[str], repetitions: int, machine: str) -> dict[str, dict[str, float | int]]:
    """Results on two ranks by example, and by dropout probability if it has dropout. Plans are made for `machine`."""
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder, RankPool(RANKS, measured=True) as pool:
        for number, (name, example, sizes) in enumerate(cases(examples)):
            path = Path(folder) / f"{example}_{number}"
            path.mkdir()
            results[name] = compare_ranks(example, sizes, machine, repetitions, path, pool)
            print(f"{name:<24} {results[name]}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the results of others are kept")
    parser.add_argument("--examples", nargs="+", choices=tuple(SIZES), help="these alone; no results are written")
    parser.add_argument("--machine", default="local", metavar="FILE", help="of `unityc profile`: what plans are for")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kept = json.loads(RESULTS.read_text())["seconds"] if RESULTS.exists() else {}
    results: dict[str, Any] = {part: kept[part] for part in PARTS if part in kept}
    for part in options.only:
        examples = options.examples or (ON_RANKS if part == "two_ranks" else tuple(SIZES))
        print(part)
        if part == "two_ranks":
            results[part] = on_two_ranks(examples, options.repetitions, options.machine)
        elif part == "compiled" and shutil.which("g++") is None and shutil.which("clang++") is None:
            results[part] = {}
            print("torch.compile needs a C++ compiler on the CPU, and there is none: nothing is measured")
        else:
            results[part] = on_one_device(examples, options.repetitions, part == "compiled")
        if options.examples is None:
            write_results("program", "python bench/program.py", results)


if __name__ == "__main__":
    main()

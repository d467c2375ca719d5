"""A training step of whole models on one GPU: `python bench/gpu_models.py`.

Forward, backward and AdamW of the emitted program with operations of torch and with `--kernels triton`, against a
module written by hand (`bench/by_hand.py`; with mixed precision by autocast); the program and the module by hand also
by `torch.compile`. Steps of all take turns. The measured time is compared with that which the plan predicts, by the
machine file `h200`.

A GPU machine needs torch and triton alone: `--prepare DIR` writes the programs and this one into a folder, where the
packages of the compiler are installed, and `python DIR/gpu_models.py` there measures them. Where they are installed on
the GPU machine it is one command.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from by_hand import BY_HAND
from gpu_timing import HERE, Action, device_or_exit, hardware, seconds_in_turns, write_results
from torch import Tensor, nn

MODELS: Mapping[str, Mapping[str, int]] = {
    "bert_large": {"b": 16},
    "gpt2": {"b": 16},
    "llama3_8b": {"b": 1, "s": 4096, "layers": 2},
    "dlrm": dict.fromkeys((f"rows{number}" for number in (1, 10, 11, 20, 21, 22)), 1_000_000),
    "resnext50": {"b": 128},
    "mixtral_8x7b": {"b": 1, "s": 2048, "layers": 1},
}
"""What is smaller than in the examples, to fit one GPU."""

KERNELS = ("torch", "triton")
MANIFEST = "models.json"
CARRIED = ("gpu_models.py", "gpu_timing.py", "by_hand.py")
TOLERANCE = 2e-2
"""Of the losses of two ways, without dropout."""


def prepare(made: Path, tiny: bool, names: tuple[str, ...]) -> None:
    """Write the programs of the models, and what measures them."""
    from unity_dsl.compile import Request, compile_model
    from unity_dsl.emit.output_folder import write_program
    from unity_dsl.resources import folder

    made.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in names:
        for kernels in KERNELS:
            request = Request(
                folder("examples") / f"{name}.udl",
                settings={} if tiny else MODELS[name],
                preset="small" if tiny else None,
                machine="h200",
                kernels=kernels,
            )
            compiled = compile_model(request)
            out = made / f"{name}_{kernels}"
            write_program(compiled.plan, compiled.library, compiled.sources, request, out, force=True)
        plan = compiled.plan
        found[name] = {"sizes": dict(plan.parameters), "predicted": plan.seconds, "precision": plan.model.precision}
        print(f"prepared {name}", flush=True)
    (made / MANIFEST).write_text(json.dumps({"tiny": tiny, "models": found}, indent=1) + "\n")
    if made.resolve() != HERE:
        for file in CARRIED:
            shutil.copy(HERE / file, made / file)


def emitted(made: Path, name: str, device: torch.device) -> tuple[nn.Module, Any]:
    """The model of a program with the weights of seed 0, and its module."""
    sys.path.insert(0, str(made))
    module = importlib.import_module(f"{name}.model")
    sys.path.remove(str(made))
    model = module.Model(None, device=device)
    model.initialise(0)
    return model, module


def batch_of(module: Any, device: torch.device) -> dict[str, Tensor]:
    """The same for every program of a model."""
    source, batch = torch.Generator().manual_seed(0), {}
    for name, spec in module.INPUTS.items():
        if spec.integer_range is None:
            drawn = torch.randn(spec.shape, generator=source)
            batch[name] = drawn if name != "target" else drawn.sigmoid()
        else:
            batch[name] = torch.randint(spec.integer_range, spec.shape, generator=source)
    return {name: tensor.to(device) for name, tensor in batch.items()}


def training_step(model: nn.Module, loss_of: Callable[[], Tensor]) -> Action:
    """Forward, backward and update."""
    fused = next(model.parameters()).is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused, foreach=not fused)

    def run() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return run


def ways(
    made: Path, name: str, record: Mapping[str, Any], device: torch.device
) -> tuple[dict[str, Callable[[], Tensor]], dict[str, nn.Module]]:
    """By name, what computes the loss of a batch in each way, and the model that it trains."""
    losses: dict[str, Callable[[], Tensor]] = {}
    models: dict[str, nn.Module] = {}
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(record["precision"])

    def precision() -> AbstractContextManager[Any]:
        return nullcontext() if narrow is None else torch.autocast(device.type, narrow)

    for kernels in KERNELS:
        model, module = emitted(made, f"{name}_{kernels}", device)
        batch = batch_of(module, device)
        models[kernels] = model
        losses[kernels] = lambda model=model, batch=batch: model(**batch)[0]  # type: ignore[misc]
        if device.type == "cuda" and kernels == "torch":
            models["torch_compiled"] = model
            losses["torch_compiled"] = torch.compile(losses[kernels])  # of the loss alone, as train.py does
    if name in BY_HAND:
        hand = BY_HAND[name](models["torch"].global_tensors(), record["sizes"]).to(device)
        calls = {"by_hand": hand}
        if device.type == "cuda":
            calls["by_hand_compiled"] = torch.compile(hand)
        for way, call in calls.items():

            def loss(call: Callable[..., Tensor] = call, batch: Mapping[str, Tensor] = batch) -> Tensor:
                with precision():
                    return call(**batch)

            models[way], losses[way] = hand, loss
    return losses, models


def without_dropout(losses: Mapping[str, Callable[[], Tensor]], models: Mapping[str, nn.Module]) -> dict[str, float]:
    """The losses in evaluation mode, which are to agree."""
    found = {}
    for way, loss in losses.items():
        if not way.endswith("compiled"):
            models[way].eval()
            with torch.no_grad():
                found[way] = float(loss())
            models[way].train()
    return found


def measure(made: Path, name: str, record: Mapping[str, Any], device: torch.device, repetitions: int) -> dict[str, Any]:
    """Seconds of a step in each way, their ratios to the emitted program's, and how far the prediction is off."""
    losses, models = ways(made, name, record, device)
    told = without_dropout(losses, models)
    off = max(abs(loss - told["torch"]) for loss in told.values()) / abs(told["torch"])
    actions = {way: training_step(models[way], loss) for way, loss in losses.items()}
    seconds = seconds_in_turns(actions, repetitions)
    best = min(seconds[way] for way in seconds if not way.startswith("by_hand"))
    found = {"seconds": seconds, "losses": told, "correct": off <= TOLERANCE, "predicted": record["predicted"]}
    found |= {f"ratio_to_{way}": best / seconds[way] for way in seconds if way.startswith("by_hand")}
    return {**found, "measured_by_predicted": seconds["torch"] / record["predicted"]}


def run(made: Path, options: argparse.Namespace) -> int:
    """Measure every model and write the results. 1 where the losses of two ways differ, or one does not run."""
    device = device_or_exit(options.cpu)
    manifest = json.loads((made / MANIFEST).read_text())
    if options.cpu and not manifest["tiny"]:
        print("--cpu takes programs of tiny sizes: prepare them with --tiny", file=sys.stderr)
        return 2
    rows: dict[str, Any] = {}
    for name, record in manifest["models"].items():
        if name not in options.models:
            continue
        try:
            rows[name] = measure(made, name, record, device, options.repetitions)
            times = ", ".join(f"{way} {1e3 * taken:.2f} ms" for way, taken in rows[name]["seconds"].items())
            print(f"{name:<14} {times}; predicted {1e3 * record['predicted']:.2f} ms", flush=True)
        except (RuntimeError, AssertionError) as error:
            rows[name] = {"correct": False, "reason": str(error).strip().splitlines()[0]}
            print(f"{name}: {rows[name]['reason']}", flush=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    correct = all(row["correct"] for row in rows.values())
    print(json.dumps({"correct": correct, **hardware()}))
    if not options.cpu:
        print(f"wrote {write_results('gpu_models', 'python bench/gpu_models.py', {'models': rows})}")
    return 0 if correct else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--prepare", type=Path, metavar="DIR", help="write the programs and what measures them, and end"
    )
    parser.add_argument("--programs", type=Path, metavar="DIR", help="programs that were prepared; unless given, here")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS), metavar="NAME")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument(
        "--cpu", action="store_true", help="a trial at tiny sizes in Triton's interpreter: times mean nothing"
    )
    parser.add_argument("--tiny", action="store_true", help="prepare tiny sizes, for --cpu")
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare, options.tiny, tuple(options.models))
        return 0
    device_or_exit(options.cpu)
    if options.cpu:
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    made = options.programs or (HERE if (HERE / MANIFEST).exists() else None)
    if made is not None:
        return run(made, options)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), options.cpu, tuple(options.models))
        return run(Path(folder), options)


if __name__ == "__main__":
    sys.exit(main())

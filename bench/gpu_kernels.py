"""Kernels of `--kernels triton` on a GPU, each family checked and timed: `python bench/gpu_kernels.py`.

Forward and backward of each at the sizes of large models, in bf16. First they are compared with the operations of torch
that they stand for, in float64. Then they are timed against these operations run one by one, against `torch.compile`
of the best that PyTorch has, and against that itself (its own fused calls), all in turns; and as a part of what a copy,
or a product of matrices, reaches in the same run.

A GPU machine needs torch and triton alone: `--prepare DIR` writes the kernels and this program into a folder, where the
packages of the compiler are installed, and `python DIR/gpu_kernels.py` there measures them. Where they are installed on
the GPU machine it is one command.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path
from typing import Any

import torch
from gpu_timing import HERE, Action, ceilings, device_or_exit, seconds_in_turns, write_results
from kernel_families import FAMILIES, Family, model_text, moved_bytes
from torch import Tensor

TOLERANCE = 2e-2
"""Of the largest element, in bf16."""
MANIFEST = "kernels.json"
CARRIED = ("gpu_kernels.py", "gpu_timing.py", "kernel_families.py")
"""What a folder of prepared kernels holds beside them."""


class Caller:
    """What a function of kernels.py asks of the program that calls it."""

    training = True
    dtype = torch.float64  # of the operations of torch

    def __init__(self) -> None:
        self.counters = torch.tensor(1), torch.tensor(2)


# ---------------------------------------------------------------------------------------------- before, without a GPU


def prepare(made: Path, tiny: bool) -> None:
    """Write the kernels of every family, what they are given, and the programs that measure them."""
    from unity_dsl.compile import Request, compile_model
    from unity_dsl.emit.kernels.contraction_choice import ContractionChoice
    from unity_dsl.emit.kernels.kernel_file import kernel_file_text
    from unity_dsl.emit.plan_file import TRITON
    from unity_dsl.emit.program_text import write_down
    from unity_dsl.machine.machine import load_machine

    made.mkdir(parents=True, exist_ok=True)
    manifest = {}
    for name in FAMILIES:
        model = made / f"{name}.udl"
        model.write_text(model_text(name))
        preset = "tiny" if tiny else None
        request = Request(model, preset=preset, precision="bf16", machine="dgx-h100", strategy="single", kernels=TRITON)
        found = compile_model(request)
        choice = ContractionChoice(load_machine("dgx-h100")) if FAMILIES[name].contraction else None
        calls = write_down(found.plan, found.library, kernels=TRITON, contractions=choice).program.kernels
        assert calls is not None
        (operator,) = calls.known.values()  # the whole family is one
        shapes = operator.fused.shapes
        assert len(shapes) == len(FAMILIES[name].storage), f"{name}: {shapes}"
        (made / f"{name}.py").write_text(kernel_file_text(name, [operator]))
        ranges = [operand.integer_range for operand in operator.fused.instance.inputs]
        manifest[name] = {"function": operator.name, "shapes": shapes, "ranges": ranges, "draws": operator.draws}
    (made / MANIFEST).write_text(json.dumps({"tiny": tiny, "families": manifest}, indent=1) + "\n")
    for file in CARRIED:
        if made.resolve() != HERE:
            shutil.copy(HERE / file, made / file)


# ---------------------------------------------------------------------------------------------- on the GPU


def function_of(made: Path, name: str, record: Mapping[str, Any]) -> tuple[Callable[..., Tensor], Any]:
    """The function of a family, given its tensors alone, and the module that it is in."""
    spec = importlib.util.spec_from_file_location(f"kernels_{name}", made / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function, model = getattr(module, record["function"]), Caller()
    site = [0] if record["draws"] else []
    return lambda *tensors: function(model, *tensors, *site), module


def by_torch(function: Callable[..., Tensor], module: Any) -> Callable[..., Tensor]:
    """The same by its operations of torch."""
    classes = {
        made for made in vars(module).values() if isinstance(made, type) and issubclass(made, torch.autograd.Function)
    }

    def run(*tensors: Tensor) -> Tensor:
        module.FAILED |= classes
        try:
            return function(*tensors)
        finally:
            module.FAILED -= classes

    return run


def passes(function: Callable[..., Tensor], inputs: list[Tensor], cotangent: Tensor) -> tuple[Action, Action]:
    """A forward pass, and the backward pass of one."""
    result, floats = function(*inputs), of_floats(inputs)
    return lambda: function(*inputs), lambda: torch.autograd.grad(result, floats, cotangent, retain_graph=True)


def of_floats(tensors: list[Tensor]) -> list[Tensor]:
    """Those that have gradients."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def largest_error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest deviation, relative to the largest element of a tensor; infinite where one is not a number."""
    errors = [
        ((one.double() - two).abs().max() / two.abs().max().clamp(min=1e-30)).item()
        for one, two in zip(found, wanted, strict=True)
    ]
    return max(errors) if all(error == error for error in errors) else float("inf")


def measure(
    family: Family, name: str, made: Path, record: Mapping[str, Any], device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Error, seconds and ratios of a family. Raises RuntimeError where its kernels did not run."""
    function, module = function_of(made, name, record)
    torch.manual_seed(0)
    shapes = record["shapes"]
    inputs = [
        torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_()
        if below is None
        else torch.randint(below, shape, device=device)
        for shape, below in zip(shapes, record["ranges"], strict=True)
    ]
    exact = [one.detach().double().requires_grad_() if one.is_floating_point() else one for one in inputs]
    plain = by_torch(function, module)
    wanted = plain(*exact)
    cotangent = torch.randn(wanted.shape, device=device, dtype=torch.bfloat16)
    gradients = torch.autograd.grad(wanted, of_floats(exact), cotangent.double())
    result = function(*inputs)
    own = torch.autograd.grad(result, of_floats(inputs), cotangent)
    if module.FAILED:
        raise RuntimeError(f"{name}: its kernels failed, see the warning")
    error = largest_error([result.detach(), *own], [wanted.detach(), *gradients])
    count = moved_bytes(inputs, result, False), moved_bytes(inputs, result, True)
    del wanted, gradients, exact, own, result
    with torch.enable_grad():
        ways = {"triton": function, "torch": plain, "vendor": family.vendor}
        if device.type == "cuda":
            ways["compiled"] = torch.compile(family.vendor, dynamic=False)
        found: dict[str, Any] = {"error": error, "correct": error <= TOLERANCE}
        sizes = dict(family.tiny if options.cpu else family.sizes)
        for number, direction in enumerate(("forward", "backward")):
            actions = {way: passes(one, inputs, cotangent)[number] for way, one in ways.items()}
            seconds = seconds_in_turns(actions, options.repetitions)
            row: dict[str, Any] = {"seconds": seconds, "bytes": count[number]}
            row |= {f"times_{way}": seconds[way] / max(seconds["triton"], 1e-12) for way in ways if way != "triton"}
            if family.flops is not None:
                row["flops"] = family.flops(**sizes) * (1, 2.5)[number]
            found[direction] = row
    return found


def add_fractions(found: dict[str, Any], reached: Mapping[str, float]) -> None:
    """What part of the ceiling each way reaches."""
    for direction in ("forward", "backward"):
        row = found[direction]
        work, kind = (row["flops"], "flops") if "flops" in row else (row["bytes"], "bytes")
        least = work / reached[f"{kind}_per_second"]
        row[f"fraction_of_{kind}"] = {way: least / max(taken, 1e-12) for way, taken in row["seconds"].items()}


def run(made: Path, options: argparse.Namespace) -> int:
    """Measure every family and write the results. 1 where a kernel is wrong or did not run."""
    device = device_or_exit(options.cpu)
    manifest = json.loads((made / MANIFEST).read_text())
    if options.cpu and not manifest["tiny"]:
        print("--cpu takes kernels of tiny sizes: prepare them with --tiny", file=sys.stderr)
        return 2
    reached = ceilings(device, options.repetitions, options.cpu)
    rows: dict[str, Any] = {}
    for name, record in manifest["families"].items():
        if options.families and name not in options.families:
            continue
        try:
            rows[name] = measure(FAMILIES[name], name, made, record, device, options)
        except (RuntimeError, AssertionError) as error:
            rows[name] = {"correct": False, "reason": str(error).strip().splitlines()[0]}
            print(f"{name}: {rows[name]['reason']}", flush=True)
            continue
        add_fractions(rows[name], reached)
        for direction in ("forward", "backward"):
            row = rows[name][direction]
            kind = "flops" if "flops" in row else "bytes"
            ways = ", ".join(f"{key[6:]} {value:.2f}x" for key, value in row.items() if key.startswith("times_"))
            part = row[f"fraction_of_{kind}"]["triton"]
            print(
                f"{name:<32} {direction:<9} {part:6.1%} of {kind}; {ways}; error {rows[name]['error']:.1e}", flush=True
            )
    timed = [row for row in rows.values() if "forward" in row]
    summary: dict[str, Any] = {"ceilings": reached, "correct": all(row["correct"] for row in rows.values())}
    for way in ("torch", "vendor", "compiled"):
        ratios = [row[d][f"times_{way}"] for row in timed for d in ("forward", "backward") if f"times_{way}" in row[d]]
        if ratios:
            summary[f"geometric_mean_times_{way}"] = exp(sum(log(max(ratio, 1e-12)) for ratio in ratios) / len(ratios))
    print(json.dumps(summary))
    if not options.cpu:
        results = {"summary": summary, "families": rows}
        print(f"wrote {write_results('gpu_kernels', 'python bench/gpu_kernels.py', results)}")
    return 0 if summary["correct"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="write the kernels and what measures them, and end")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="kernels that were prepared; unless given, here")
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES), metavar="NAME")
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument(
        "--cpu", action="store_true", help="a trial at tiny sizes in Triton's interpreter: times mean nothing"
    )
    parser.add_argument("--tiny", action="store_true", help="prepare tiny sizes, for --cpu")
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare, options.tiny)
        return 0
    device_or_exit(options.cpu)
    if options.cpu:
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    made = options.programs or (HERE if (HERE / MANIFEST).exists() else None)
    if made is not None:
        return run(made, options)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), options.cpu)
        return run(Path(folder), options)


if __name__ == "__main__":
    sys.exit(main())

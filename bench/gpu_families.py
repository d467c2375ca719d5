"""Kernels of `--kernels triton`, each family checked and timed: `python gpu_families.py --programs DIR --out FILE`.

Each kernel runs forward and backward in bf16 at the sizes of large models. Its results are compared with the torch
operators that it replaces, in float64. Its time is compared with these operators run one by one, with PyTorch's own
fused calls, and with those under torch.compile. Its rate is given as a fraction of the rate that a copy or a matrix
product reaches in the same run. A phase of bench/gpu.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
from gpu_timing import Action, ceilings, device_of, reason_of, seconds_in_turns, wait_for_turn, watch_failures, write
from kernel_families import FAMILIES, Family, moved_bytes
from torch import Tensor

TOLERANCE = 2e-2
"""Largest error in bf16, relative to the largest element. Twice the error of torch's operators in bf16 passes too."""
REPETITIONS = 12


class Caller:
    """The attributes that a function of kernels.py reads from the program that calls it."""

    training = True
    dtype = compute_dtype = sum_dtype = torch.float64  # for torch's operators

    def __init__(self) -> None:
        self.counters = torch.tensor(1), torch.tensor(2)


def function_of(made: Path, name: str, record: Mapping[str, Any]) -> tuple[Callable[..., Tensor], Any, dict[str, str]]:
    """The function of a family, which takes only its tensors, its module, and the failures of its kernels."""
    spec = importlib.util.spec_from_file_location(f"kernels_{name}", made / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function, model = getattr(module, record["function"]), Caller()
    site = [0] if record["draws"] else []
    return lambda *tensors: function(model, *tensors, *site), module, watch_failures(module)


def by_torch(function: Callable[..., Tensor], module: Any) -> Callable[..., Tensor]:
    """The same function, computed by the torch operators that its kernels fall back to."""
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
    """Two actions: a forward pass, and the backward pass of one that has already run."""
    result, floats = function(*inputs), of_floats(inputs)
    return lambda: function(*inputs), lambda: torch.autograd.grad(result, floats, cotangent, retain_graph=True)


def of_floats(tensors: list[Tensor]) -> list[Tensor]:
    """The floating-point tensors, which have gradients."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def largest_error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest error, relative to the largest element of its tensor; infinite if an error is NaN."""
    errors = [
        ((one.double() - two).abs().max() / two.abs().max().clamp(min=1e-30)).item()
        for one, two in zip(found, wanted, strict=True)
    ]
    return max(errors) if all(error == error for error in errors) else float("inf")


def inputs_of(record: Mapping[str, Any], device: torch.device) -> list[Tensor]:
    torch.manual_seed(0)
    return [
        torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_()
        if below is None
        else torch.randint(below, shape, device=device)
        for shape, below in zip(record["shapes"], record["ranges"], strict=True)
    ]


def checked(function: Callable[..., Tensor], module: Any, inputs: list[Tensor]) -> tuple[float, float]:
    """The largest error of result and gradients against float64, for the kernels and for torch's operators in bf16."""
    exact = [one.detach().double().requires_grad_() if one.is_floating_point() else one for one in inputs]
    wanted = by_torch(function, module)(*exact)
    cotangent = torch.randn(wanted.shape, device=wanted.device, dtype=torch.bfloat16)
    gradients = torch.autograd.grad(wanted, of_floats(exact), cotangent.double())
    errors = []
    for way in (function, by_torch(function, module)):
        result = way(*inputs)
        own = torch.autograd.grad(result, of_floats(inputs), cotangent)
        errors.append(largest_error([result.detach(), *own], [wanted.detach(), *gradients]))
    return errors[0], errors[1]


def measure(
    family: Family, function: Callable[..., Tensor], module: Any, compiled: Callable[..., Tensor] | None,
    inputs: list[Tensor], sizes: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    """Seconds of each way to compute a family, and their ratios to the kernels, forward and backward."""
    result = function(*inputs)
    cotangent = torch.randn_like(result)
    count = moved_bytes(inputs, result, False), moved_bytes(inputs, result, True)
    del result
    ways = {"triton": function, "torch": by_torch(function, module), "vendor": family.vendor}
    if compiled is not None:
        ways["compiled"] = compiled
    actions = {way: passes(one, inputs, cotangent) for way, one in ways.items()}
    found: dict[str, Any] = {}
    for number, direction in enumerate(("forward", "backward")):
        repetitions = REPETITIONS if torch.cuda.is_available() else 1
        seconds = seconds_in_turns({way: both[number] for way, both in actions.items()}, repetitions, warmup=1)
        row: dict[str, Any] = {"seconds": seconds, "bytes": count[number]}
        row |= {f"times_{way}": seconds[way] / max(seconds["triton"], 1e-12) for way in ways if way != "triton"}
        if family.flops is not None:
            row["flops"] = family.flops(**sizes) * (1, 2.5 if "attention" in module.__name__ else 2)[number]
        found[direction] = row
    return found


def add_fractions(found: dict[str, Any], reached: Mapping[str, float]) -> None:
    """Add the fraction of the ceiling that each way reaches."""
    for direction in ("forward", "backward"):
        row = found[direction]
        work, kind = (row["flops"], "flops") if "flops" in row else (row["bytes"], "bytes")
        least = work / reached[f"{kind}_per_second"]
        row[f"fraction_of_{kind}"] = {way: least / max(taken, 1e-12) for way, taken in row["seconds"].items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    device = device_of(options.cpu)
    manifest = json.loads((options.programs / "manifest.json").read_text())
    results: dict[str, Any] = {"families": {}}
    rows = results["families"]
    compiled: dict[str, Callable[..., Tensor]] = {}
    torch._functorch.config.donated_buffer = False  # a backward pass is timed repeatedly
    for name, record in manifest["families"].items():
        if "reason" in record:
            rows[name] = {"correct": False, "reason": record["reason"]}
            continue
        if not options.cpu:
            try:
                compiled[name] = torch.compile(FAMILIES[name].vendor, dynamic=False)
                inputs = inputs_of(record, device)
                compiled[name](*inputs).sum().backward()
                del inputs
            except Exception as error:
                compiled.pop(name, None)
                rows[name] = {"compiled": reason_of(error)}
    wait_for_turn()
    results["ceilings"] = ceilings(device, options.cpu)
    for name, record in manifest["families"].items():
        if "reason" in record:
            continue
        family, row = FAMILIES[name], rows.setdefault(name, {})
        try:
            function, module, failures = function_of(options.programs, name, record)
            inputs = inputs_of(record, device)
            own, of_torch = checked(function, module, inputs)
            correct = own <= max(TOLERANCE, 2 * of_torch) and not failures
            row |= {"error": own, "error_of_torch": of_torch, "fell_back": failures, "correct": correct}
            sizes = dict(family.tiny if options.cpu else family.sizes)
            row |= measure(family, function, module, compiled.get(name), inputs, sizes)
            add_fractions(row, results["ceilings"])
        except Exception as error:
            row |= {"correct": False, "reason": reason_of(error), "trace": traceback.format_exc()[-3000:]}
        write(options.out, results)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kernels of single operators: emitted, imported, and run in Triton's interpreter."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import torch

from unity_dsl.emit.kernels.kernel_file import KernelOperator, kernel_file_text
from unity_dsl.emit.kernels.kernel_functions import FusedOperator, fused_operator
from unity_dsl.emit.kernels.positions import Local
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.kernels.backward import backward_instance
from unity_dsl.index.library import Library

from .guarded_memory import GuardedMemory

NEVER = ("raise AssertionError('the torch operations ran')",)
"""Replaces the torch operations, so that a silent fallback to them fails."""
SEED, STEP, SITE = 3, 5, 7
"""Counters of random numbers."""


class Model:
    """The parts of a model that an emitted function uses."""

    training = True
    counters = torch.tensor(SEED), torch.tensor(STEP)


def fused(instance: Instance, library: Library, name: str = "fused") -> FusedOperator | None:
    """The kernels of an operator on one device, with gradients for all float inputs."""
    needs = [operand.integer_range is None for operand in instance.inputs]
    return fused_operator(name, instance, Local(dict(instance.sizes)), library, needs)


def imported(text: str, folder: Path) -> ModuleType:
    """Imports the text as a module. Triton reads the source of a kernel from a file."""
    name = f"kernels_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def kernel_module(operator: FusedOperator, folder: Path, torch_lines: Sequence[str] = NEVER) -> ModuleType:
    return imported(kernel_file_text("test", [KernelOperator(operator, tuple(torch_lines))]), folder)


def run(
    module: ModuleType, operator: FusedOperator, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Results and gradients, with guards around all memory of the kernels."""
    memory = GuardedMemory()
    given = [memory.copy(tensor) for tensor in inputs]
    for number in operator.wrt:
        given[number].requires_grad_()

    def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return memory.empty(shape, dtype)

    with mock.patch("torch.empty", empty):
        function = getattr(module, operator.name)
        made = function(Model(), *given, *([SITE] if operator.random else []))
        results = list(made) if isinstance(made, tuple) else [made]
        wrt = [given[number] for number in operator.wrt]
        guarded = [memory.copy(cotangent) for cotangent in cotangents]
        gradients = list(torch.autograd.grad(results, wrt, guarded)) if wrt else []
    assert memory.intact(), "something was written outside of a tensor"
    return [result.detach() for result in results], gradients


def expected(
    operator: FusedOperator, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], library: Library
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results and gradients by the reference evaluation in float64."""
    from unity_dsl.index.evaluation.uniform import uniform

    def source(_: object, position: np.ndarray) -> np.ndarray:
        return uniform(position, SEED, STEP, SITE)

    instance = operator.instance
    exact = [as_exact(tensor) for tensor in inputs]
    results = evaluate(instance, exact, library, uniform=source)
    backward = backward_instance(instance, library, operator.wrt)
    return results, evaluate(backward, [*exact, *map(as_exact, cotangents)], library, uniform=source)


def as_exact(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def error(found: torch.Tensor, wanted: np.ndarray) -> float:
    """The largest difference relative to the largest element; infinite if NaNs or infinities differ."""
    got = found.double().numpy()
    if got.shape != wanted.shape or (np.isnan(got) != np.isnan(wanted)).any():
        return float("inf")
    finite = np.isfinite(wanted)
    if (got[~finite & ~np.isnan(wanted)] != wanted[~finite & ~np.isnan(wanted)]).any():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(wanted[finite]).max())
    return float(np.abs(got[finite] - wanted[finite]).max()) / max(scale, 1e-30)


def compare(
    operator: FusedOperator,
    dtype: torch.dtype,
    library: Library,
    folder: Path,
    random: np.random.Generator,
    integers: Callable[[np.random.Generator, tuple[int, ...], int], torch.Tensor],
    tolerance: float,
) -> None:
    """Asserts that kernels give the results and gradients of the statements in float64, on random numbers.

    `integers` draws integers from a shape and a range.
    """
    instance = operator.instance
    inputs = [
        torch.from_numpy(random.standard_normal(instance.shape(operand))).to(dtype)
        if operand.integer_range is None
        else integers(random, instance.shape(operand), operand.integer_range)
        for operand in instance.inputs
    ]
    shapes = [instance.shape(output) for output in instance.outputs]
    cotangents = [torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in shapes]
    results, gradients = run(kernel_module(operator, folder), operator, inputs, cotangents)
    wanted, wanted_gradients = expected(operator, inputs, cotangents, library)
    for found, exact in [*zip(results, wanted, strict=True), *zip(gradients, wanted_gradients, strict=True)]:
        assert found.dtype == dtype
        assert error(found, exact) <= tolerance

"""Matrix products with a prologue and an epilogue in Triton's interpreter, against the reference evaluation in
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from tests.index.kernels.test_product_kernels import call
from tests.sampling import SAMPLE
from unity_dsl.emit.kernels import contraction_kernel_text
from unity_dsl.emit.kernels.kernel_functions import FusedOperator, fused_operator
from unity_dsl.emit.kernels.positions import Local
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.kernels.fusion import Applied, fuse
from unity_dsl.index.kernels.step_schedule import Contraction
from unity_dsl.index.library import Library
from unity_dsl.machine.contraction_price import KernelStepPrices
from unity_dsl.machine.machine import load_machine

from .kernel_runs import error, expected, fused, kernel_module, run

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
SIZES = [(1, 1, 1), (5, 7, 9), (70, 40, 33), (64, 64, 128), (131, 17, 1), (1, 67, 139)]
"""Rows, summed dimension and columns: within a tile and beyond it, ragged and not, and primes."""
UNARY = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "square", "dropout", "neg")


def dense(library: Library, before: Sequence[str], after: Sequence[str], sizes: tuple[int, int, int]) -> Instance:
    """`linear_bias` with operators before and after: unary ones, and `add` and `mul` with another tensor."""
    m, k, n = sizes
    parts: list[Applied] = []
    given = chain(library, parts, "x", before, (2, m, k))
    parts.append(call(library, "linear_bias", (given, "w", "b"), "y", (2, m, k), (n, k), (n,)))
    return together(parts, chain(library, parts, "y", after, (2, m, n)))


def batched(library: Library, before: Sequence[str], after: Sequence[str], sizes: tuple[int, int, int]) -> Instance:
    """`matmul` with operators before its second operand and after the product."""
    m, k, n = sizes
    parts: list[Applied] = []
    given = chain(library, parts, "w", before, (2, 3, k, n))
    parts.append(call(library, "matmul", ("x", given), "y", (2, 3, m, k), (2, 3, k, n)))
    return together(parts, chain(library, parts, "y", after, (2, 3, m, n)))


def experts(library: Library, before: Sequence[str], after: Sequence[str], sizes: tuple[int, int, int]) -> Instance:
    """`expert_linear`: one product for each of three experts."""
    m, k, n = sizes
    parts: list[Applied] = []
    given = chain(library, parts, "x", before, (3, 2, m, k))
    parts.append(call(library, "expert_linear", (given, "w"), "y", (3, 2, m, k), (3, n, k)))
    return together(parts, chain(library, parts, "y", after, (3, 2, m, n)))


def chain(library: Library, parts: list[Applied], value: str, names: Sequence[str], shape: tuple[int, ...]) -> str:
    """Adds operators one after the other; returns the last value."""
    for number, name in enumerate(names):
        made, both = f"{value}_{number}", name in ("add", "mul")
        parts.append(call(library, name, (value, f"{made}_other") if both else (value,), made, *[shape] * (1 + both)))
        value = made
    return value


def together(parts: list[Applied], result: str) -> Instance:
    found = fuse(parts, {result})
    assert found is not None
    return found.instance


def compare(
    instance: Instance, operator: FusedOperator | None, dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    assert operator is not None
    (step,) = operator.forward.steps
    assert isinstance(step.kernel, Contraction) and not step.kernel.vendor
    inputs = [torch.from_numpy(random.standard_normal(instance.shape(o)) / 2).to(dtype) for o in instance.inputs]
    cotangents = [torch.from_numpy(random.standard_normal(instance.shape(o))).to(dtype) for o in instance.outputs]
    results, gradients = run(kernel_module(operator, tmp_path), operator, inputs, cotangents)
    wanted, wanted_gradients = expected(operator, inputs, cotangents, library)
    assert len(gradients) == len(instance.inputs)
    for found, exact in [*zip(results, wanted, strict=True), *zip(gradients, wanted_gradients, strict=True)]:
        assert found.dtype == dtype
        assert error(found, exact) <= TOLERANCE[dtype]


@pytest.mark.a_day(14)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    ("before", "after"),
    [((), ("gelu_tanh", "dropout", "add")), (("dropout",), ()), (("silu", "mul"), ("tanh",))],
    ids=["epilogue", "prologue", "both"],
)
def test_a_product_with_what_is_around_it(
    before: tuple[str, ...],
    after: tuple[str, ...],
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    library: Library,
    tmp_path: Path,
) -> None:
    instance = dense(library, before, after, sizes)
    compare(instance, fused(instance, library), dtype, library, tmp_path)


@pytest.mark.a_day(4)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", [(5, 7, 9), (33, 40, 70)], ids=str)
@pytest.mark.parametrize("make", [batched, experts])
def test_products_with_a_batch(
    make: type[batched], sizes: tuple[int, int, int], dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    instance = make(library, ["relu"], ["silu", "mul"], sizes)
    compare(instance, fused(instance, library), dtype, library, tmp_path)


@pytest.mark.a_day(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("before", ["silu", "add"])
@pytest.mark.parametrize("make", [dense, batched])
def test_a_gradient_by_the_products_of_the_vendor(
    make: type[dense], before: str, dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    """Where vendor products are cheaper, as with free launches, they read the result of a kernel before them."""
    instance = make(library, [before], ["gelu_tanh", "dropout", "add"], (50, 24, 40))
    needs = [True] * len(instance.inputs)
    prices = KernelStepPrices(replace(load_machine("dgx-h100"), launch_seconds=0.0), "bf16")
    operator = fused_operator("fused", instance, Local(dict(instance.sizes)), library, needs, prices)
    assert operator is not None and operator.backward is not None
    assert any("torch.einsum" in line for line in operator.backward.made)
    compare(instance, operator, dtype, library, tmp_path)


@pytest.mark.a_day(5)
@pytest.mark.parametrize("number", range(12))
def test_random_operators_around_a_product(
    number: int, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random sizes and tiles so small that there are several of each. The cases change every day."""
    monkeypatch.setattr(contraction_kernel_text, "BLOCK", 16)
    monkeypatch.setattr(contraction_kernel_text, "BLOCK_INNER", 16)
    monkeypatch.setattr(contraction_kernel_text, "GROUP", 2)
    random = Random(f"{SAMPLE} {number}")
    sizes = random.randint(1, 60), random.randint(1, 40), random.randint(1, 60)
    before = random.sample(UNARY, random.randint(0, 2))
    after = random.sample([name for name in UNARY if name != "dropout" or name not in before], random.randint(0, 2))
    after = [*after, *random.sample(["add", "mul"], random.randint(0, 1))]
    make = random.choice([dense, batched, experts])
    print(f"UNITY_SAMPLE={SAMPLE} {number}: {make.__name__} {before} {after} {sizes}")
    instance = make(library, before, after, sizes)
    dtype = random.choice([torch.float64, torch.float32])
    compare(instance, fused(instance, library), dtype, library, tmp_path)

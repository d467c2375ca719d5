"""Attention as kernels in Triton's interpreter, against the reference evaluation in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.index.kernels.test_product_kernels import attention
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library

from . import kernel_runs
from .kernel_runs import fused

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
SIZES = [(5, 7, 8, 3), (1, 1, 1, 1), (70, 90, 16, 5), (90, 70, 3, 17), (64, 64, 32, 32)]
"""Queries, keys, and the widths of both products: within a block and beyond it, ragged and not."""


def declared(library: Library, name: str, sizes: tuple[int, int, int, int], grouped: int = 2) -> Instance:
    s, t, k, v = sizes
    shapes = [Shape((2, 2 * grouped, s, k)), Shape((2, 2, t, k)), Shape((2, 2, t, v))]
    if name == "masked_attention":
        shapes.append(Shape((2, s, t), 2))
    if name == "padded_attention":
        shapes.append(Shape((2, t), 2))
    return instantiate(library.operators[name], shapes, {})


def compare(instance: Instance, dtype: torch.dtype, library: Library, tmp_path: Path) -> None:
    operator = fused(instance, library)
    assert operator is not None
    kernel_runs.compare(operator, dtype, library, tmp_path, np.random.default_rng(0), kept, TOLERANCE[dtype])


def kept(random: np.random.Generator, shape: tuple[int, ...], _: int) -> torch.Tensor:
    """A mask that keeps at least one element of every row."""
    mask = torch.from_numpy(random.integers(0, 2, shape))
    mask[..., -1] = 1
    return mask


@pytest.mark.a_day(15)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ["full_attention", "causal_attention", "masked_attention", "padded_attention"])
def test_declared_attention(
    name: str, sizes: tuple[int, int, int, int], dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    if name == "causal_attention" and sizes[0] > sizes[1]:
        sizes = (sizes[1], sizes[0], *sizes[2:])
    compare(declared(library, name, sizes), dtype, library, tmp_path)


@pytest.mark.a_day(7)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", [(6, 7, 8), (70, 70, 16), (40, 100, 5)], ids=str)
@pytest.mark.parametrize(
    "between", [("softmax",), ("causal_mask", "softmax", "dropout"), ("root_scale", "softmax", "dropout")], ids="-".join
)
def test_attention_of_several_operators(
    between: tuple[str, ...], sizes: tuple[int, int, int], dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    compare(attention(library, *between, sizes=sizes), dtype, library, tmp_path)

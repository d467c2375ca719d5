"""Sums into rows selected by data, in Triton's interpreter, against the reference evaluation in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.graph.overlapping import library_with
from tests.index.kernels.test_product_kernels import call
from tests.sampling import SAMPLE
from unity_dsl.emit.kernels import scatter_kernel_text
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels import scatters
from unity_dsl.index.kernels.fusion import Applied, fuse
from unity_dsl.index.library import Library

from . import kernel_runs
from .kernel_runs import fused, kernel_module, run

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
OPERATORS = """
fn bump(x) = x * exp(-(x * x))
  derivative x: (1 - 2 * x * x) * exp(-(x * x))

## What each user has, bumped and weighed, in all.
op by_user(x: [n, d], user: int<u>[n], weight: [n]) -> y: [u, d]
  y[u, d] = sum(n) [u == user[n]] * bump(x[n, d]) * weight[n]

## How much was voted for each choice in every group; a vote has a weight.
op votes(weight: [b, n], choice: int<c>[b, n]) -> y: [b, c]
  y[b, c] = sum(n) [c == choice[b, n]] * weight[b, n]

## How far points are from the centre that each one is given, relative to the mean of all.
op to_centre(x: [n.., d], own: int<k>[n..], centre: [k, d]) -> y: [n..]
  c[n.., d] = sum(k) [k == own[n..]] * centre[k, d]
  r[n..] = sum(d) (x[n.., d] - c[n.., d]) * (x[n.., d] - c[n.., d]) / |d|
  y[n..] = sqrt(r[n..] + 0.01)
"""
DECLARED = {
    "by_user": [Shape((37, 5)), Shape((37,), 7), Shape((37,))],
    "votes": [Shape((3, 23)), Shape((3, 23), 5)],
    "to_centre": [Shape((4, 9, 11)), Shape((4, 9), 3), Shape((3, 11))],
}
SIZES = [(1, 1, 1), (5, 1, 7), (37, 11, 19), (64, 2, 33), (131, 3, 1), (67, 139, 16)]
"""Entries, rows and columns: primes, one of each, and more rows than entries and fewer."""


@pytest.fixture(scope="module")
def declared() -> Library:
    return library_with(OPERATORS)


def compare(instance: Instance, dtype: torch.dtype, library: Library, tmp_path: Path, seed: int = 0) -> None:
    operator = fused(instance, library)
    assert operator is not None
    functions = {name for kernel in operator.kernels for name in kernel.functions}
    assert "by_row" in functions
    kernel_runs.compare(operator, dtype, library, tmp_path, np.random.default_rng(seed), keys, TOLERANCE[dtype])


def keys(random: np.random.Generator, shape: tuple[int, ...], rows: int) -> torch.Tensor:
    """Random keys. About half of them are one key."""
    found = random.integers(0, rows, shape)
    return torch.from_numpy(np.where(random.integers(0, 2, shape) == 1, rows // 2, found))


@pytest.mark.a_day(6)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_gradient_of_a_table(
    sizes: tuple[int, int, int], dtype: torch.dtype, library: Library, tmp_path: Path
) -> None:
    """About half of the entries belong to one row, which can therefore have two parts."""
    n, v, d = sizes
    compare(instantiate(library.operators["embedding"], [Shape((n,), v), Shape((v, d))], {}), dtype, library, tmp_path)


@pytest.mark.parametrize("name", ["embedding", "embedding_bag", "embedding_bag_mean"])
def test_rows_of_many_parts_in_several_blocks(
    name: str, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise only large tables need this."""
    monkeypatch.setattr(scatters, "PART", 6)
    monkeypatch.setattr(scatter_kernel_text, "ELEMENTS", 16)
    monkeypatch.setattr(scatter_kernel_text, "BLOCK_COLUMNS", 8)
    instance = instantiate(library.operators[name], [Shape((3, 29), 7), Shape((7, 19))], {})
    compare(instance, torch.float64, library, tmp_path)


@pytest.mark.parametrize("part", [4, 64])
@pytest.mark.parametrize("name", DECLARED)
def test_an_operator_of_a_user(
    name: str, part: int, declared: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatters, "PART", part)
    instance = instantiate(declared.operators[name], DECLARED[name], {})
    for dtype in (torch.float64, torch.float32):
        compare(instance, dtype, declared, tmp_path)


def looked_up(library: Library, after: Sequence[str], n: int, v: int, d: int) -> Instance:
    """`embedding` with operators after it: unary ones, `add` with another tensor, and `layer_norm`."""
    parts: list[Applied] = [
        Applied(
            instantiate(library.operators["embedding"], [Shape((2, n), v), Shape((v, d))], {}), ("ids", "w"), ("y",)
        )
    ]
    value = "y"
    for name in after:
        more = {"add": [(2, n, d)], "layer_norm": [(d,), (d,)]}.get(name, [])
        arguments = (value, *(f"{value}_{name}_{number}" for number in range(len(more))))
        parts.append(call(library, name, arguments, f"{value}_{name}", (2, n, d), *more))
        value = f"{value}_{name}"
    found = fuse(parts, {value})
    assert found is not None
    return found.instance


@pytest.mark.parametrize(
    "after", [("add", "dropout"), ("gelu", "layer_norm"), ("add", "layer_norm", "dropout")], ids="-".join
)
def test_what_follows_a_look_up_is_one_kernel_with_it(after: tuple[str, ...], library: Library, tmp_path: Path) -> None:
    instance = looked_up(library, after, 23, 5, 13)
    operator = fused(instance, library)
    assert operator is not None and len(operator.forward.kernels) == 1
    compare(instance, torch.float32, library, tmp_path)
    compare(instance, torch.bfloat16, library, tmp_path)


@pytest.mark.parametrize("number", range(6))
def test_random_look_ups(number: int, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng([SAMPLE, number])
    n, v, d, part = (int(size) for size in random.integers(1, (60, 40, 40, 20)))
    after = [str(name) for name in random.permutation(["add", "tanh", "layer_norm", "dropout"])[: random.integers(4)]]
    print(f"UNITY_SAMPLE={SAMPLE} {number}: {after} {n} {v} {d}, parts of {part}")
    monkeypatch.setattr(scatters, "PART", part)
    dtype = torch.float64 if number % 2 else torch.float32
    compare(looked_up(library, after, n, v, d), dtype, library, tmp_path, number)


def test_sums_are_the_same_in_each_run(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bitwise, and by the order of entries only: another order of rows does not change a row."""
    monkeypatch.setattr(scatters, "PART", 4)
    random = np.random.default_rng(0)
    instance = instantiate(library.operators["embedding"], [Shape((97,), 5), Shape((5, 8))], {})
    operator = fused(instance, library)
    assert operator is not None
    module = kernel_module(operator, tmp_path)
    ids = torch.from_numpy(random.integers(0, 5, 97))
    table = torch.from_numpy(random.standard_normal((5, 8))).float()
    cotangent = torch.from_numpy(random.standard_normal((97, 8))).float()
    found = [run(module, operator, [given, table], [cotangent])[1][0] for given in (ids, ids, 4 - ids)]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2].flip(0))

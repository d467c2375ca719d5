"""The reference evaluator: windows, fills, guards, random numbers, evaluation mode, parallel ops and inverse laws."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from itertools import pairwise
from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.evaluation.evaluate import evaluate, evaluate_all
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from unity_dsl.index.instantiation.operand_shape import Factors
from unity_dsl.index.library import Library

from ..declare import declare

LIBRARY = load_library()


def computed(source: str, *inputs: np.ndarray, **attributes: float) -> np.ndarray:
    library = declare(source)
    (operator,) = library.operators.values()
    instance = instantiate(operator, [Shape(value.shape) for value in inputs], attributes)
    (found,) = evaluate(instance, inputs, library)
    return found


# ---------------------------------------------------------------------------------------------- index forms


def test_a_window_with_stride_and_padding_is_a_convolution() -> None:
    random = np.random.default_rng(1)
    x, k = random.standard_normal((2, 3, 7, 6)), random.standard_normal((4, 3, 3, 2))
    source = """
op conv2d(x: [n, c, h, w], k: [o, c, r, s]; stride = 1, pad = 0) -> y: [n, o, p, q]
  where p == (h + 2 * pad - r) // stride + 1, q == (w + 2 * pad - s) // stride + 1
  y[n, o, p, q] = sum(c, r, s) x[n, c, p * stride + r - pad, q * stride + s - pad else 0] * k[o, c, r, s]
"""
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(k), stride=2, padding=1).numpy()
    np.testing.assert_allclose(computed(source, x, k, stride=2, pad=1), expected, rtol=1e-12, atol=1e-12)


def test_a_window_over_a_defined_axis_is_pooling() -> None:
    x = np.random.default_rng(2).standard_normal((2, 12))
    source = """
op pool(x: [b.., h]; window) -> y: [b.., p]
  where r == window, h == p * r
  y[b.., p] = max(r) x[b.., p * |r| + r]
"""
    np.testing.assert_array_equal(computed(source, x, window=3), x.reshape(2, 4, 3).max(-1))


def test_reversal_diagonal_and_minimum() -> None:
    x = np.random.default_rng(3).standard_normal((4, 4))
    reverse = "op f(x: [a, c]) -> y: [a, c]\n  y[a, c] = x[a, |c| - 1 - c]\n"
    np.testing.assert_array_equal(computed(reverse, x), x[:, ::-1])
    diagonal = "op f(x: [n, n]) -> y: [n]\n  y[i] = x[i, i]\n"
    np.testing.assert_array_equal(computed(diagonal, x), np.diag(x))
    both = "op f(x: [a, c]) -> y: [a]\n  y[a] = (min(c) x[a, c]) + (prod(c) x[a, c])\n"
    np.testing.assert_allclose(computed(both, x), x.min(1) + x.prod(1), rtol=1e-14)


def test_the_branch_not_taken_may_be_infinite() -> None:
    source = "op f(x: [n]) -> y: [n]\n  y[n] = select(x[n] > 0, log(x[n]), -inf)\n"
    np.testing.assert_array_equal(computed(source, np.array([-1.0, 0.0, 1.0])), [-np.inf, -np.inf, 0.0])


def test_guards_are_numbers() -> None:
    source = "op sign(x: [n]) -> y: [n]\n  y[n] = [x[n] > 0] - [x[n] < 0] + [n >= 2] + [n >= 2]\n"
    np.testing.assert_array_equal(computed(source, np.array([-3.0, 0.0, 5.0])), [-1.0, 0.0, 3.0])


def test_a_comparison_always_has_a_value() -> None:
    """A comparison is 0 if a side has no value, except `!=`, as for NaN. Infinities are ordered."""
    x, y = np.array([-1.0, 0.0, -1.0, 0.0]), np.array([1.0, 0.0, -1.0, np.e])
    for sign, expected in {
        "<": [0, 0, 0, 1], "<=": [0, 1, 0, 1], ">": [0, 0, 0, 0],
        ">=": [0, 1, 0, 0], "==": [0, 1, 0, 0], "!=": [1, 0, 1, 1],
    }.items():  # fmt: skip
        source = f"op compared(x: [n], y: [n]) -> z: [n]\n  z[n] = [log(x[n]) {sign} log(y[n])]\n"
        np.testing.assert_array_equal(computed(source, x, y), expected, err_msg=sign)


def test_intermediates_are_returned(library: Library) -> None:
    x = np.array([[1.0, 3.0]])
    values = evaluate_all(instantiate(library.operators["softmax"], [Shape((1, 2))], {}), [x], library)
    assert set(values) == {"x", "m", "e", "z", "y"}
    np.testing.assert_array_equal(values["m"], [3.0])


def test_wrong_inputs_are_refused(library: Library) -> None:
    embedding = instantiate(library.operators["embedding"], [Shape((2,), 4), Shape((4, 3))], {})
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        evaluate(embedding, [np.zeros(3), np.zeros((4, 3))], library)
    with pytest.raises(ValueError, match=r"outside \[0, 4\)"):
        evaluate(embedding, [np.array([0, 4]), np.zeros((4, 3))], library)


# ---------------------------------------------------------------------------------------------- patterns


def grouped(axes: list[str], sizes: Mapping[str, int], data: st.DataObject) -> tuple[Factors, ...]:
    """Groups the axes into dimensions at random, some of size 1."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(axes)), max_size=3)))
    bounds = [0, *cuts, len(axes)] if axes or cuts else [0]
    return tuple(tuple((axis, sizes[axis]) for axis in axes[start:stop]) for start, stop in pairwise(bounds))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_patterns_are_reshapes_transpositions_and_reductions(lengths: list[int], data: st.DataObject) -> None:
    names = [f"a{position}" for position in range(len(lengths))]
    sizes = dict(zip(names, lengths, strict=True))
    kept = data.draw(st.permutations(names))[: data.draw(st.integers(0, len(names)))]
    name = "rearrange" if len(kept) == len(names) else data.draw(st.sampled_from(["reduce_sum", "reduce_max"]))
    binding = Binding(grouped(names, sizes, data), grouped(kept, sizes, data))
    shape, result = (tuple(prod(size for _, size in dim) for dim in part) for part in (binding.source, binding.target))
    x = np.random.default_rng(0).standard_normal(shape)
    instance = instantiate(LIBRARY.operators[name], [Shape(shape)], {}, binding=binding)
    (found,) = evaluate(instance, [x], LIBRARY)
    left_out = [axis for axis in names if axis not in kept]
    whole = x.reshape(lengths).transpose([names.index(axis) for axis in (*kept, *left_out)])
    last = tuple(range(len(kept), len(names)))
    expected = {"rearrange": whole, "reduce_sum": whole.sum(last), "reduce_max": whole.max(last)}[name]
    np.testing.assert_allclose(found, expected.reshape(result), atol=1e-14)


# ---------------------------------------------------------------------------------------------- random numbers


def mixed_in_torch(position: torch.Tensor, seed: int, step: int, site: int) -> torch.Tensor:
    """The documented arithmetic, implemented again in torch's signed 64-bit integers."""

    def mix(x: torch.Tensor) -> torch.Tensor:
        x = x ^ (x >> 16)
        x = (x * 0x21F0AAAD) & 0xFFFFFFFF
        x = x ^ (x >> 15)
        x = (x * 0x735A2D97) & 0xFFFFFFFF
        return x ^ (x >> 15)

    start = torch.zeros((), dtype=torch.int64)
    words = [torch.tensor(word & 0xFFFFFFFF) for word in (seed, step, site)]
    for word in (*words, position >> 32):
        start = mix((start + word + 0x9E3779B9) & 0xFFFFFFFF)
    turn = mix((start + 0x9E3779B9) & 0xFFFFFFFF)
    low = position & 0xFFFFFFFF
    state = (low * 0x79B1 + ((low * 0x9E37 & 0xFFFF) << 16) + start) & 0xFFFFFFFF
    state = ((state ^ (state >> 17)) * 0x21F0AAAD + turn) & 0xFFFFFFFF
    state = ((state ^ (state >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return ((state + 2**31) % 2**32 // 256).to(torch.float64) * 2.0**-24


@given(
    st.lists(st.integers(0, 2**48), min_size=1, max_size=20),
    st.integers(-(2**40), 2**40),
    st.integers(0, 2**33),
    st.integers(0, 2**33),
)
def test_the_random_numbers_are_the_same_in_torch(positions: list[int], seed: int, step: int, site: int) -> None:
    found = uniform(np.array(positions, dtype=np.int64), seed, step, site)
    again = mixed_in_torch(torch.tensor(positions, dtype=torch.int64), seed, step, site)
    np.testing.assert_array_equal(found, again.numpy())
    assert np.all((found >= 0) & (found < 1))
    assert np.array_equal(found.astype(np.float32), found)


def test_the_random_numbers_never_change() -> None:
    """Emitted programs and checkpoints rely on these numbers."""
    found = uniform(np.array([0, 1, 2**32]), seed=1, step=2, site=3) * 2**24
    assert found.tolist() == [12714407, 16628303, 161337]


def test_the_random_numbers_look_uniform_and_independent() -> None:
    count = 1 << 16
    position = np.arange(count, dtype=np.int64)
    base = uniform(position, 0, 0, 0)
    others = [uniform(position, *key) for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 5, 9))]
    others += [uniform(position + (1 << 32)), uniform(position + 1)]
    for numbers in (base, *others):
        histogram, _ = np.histogram(numbers, 64, (0, 1))
        chi = float(((histogram - count / 64) ** 2 / (count / 64)).sum())
        assert chi < 120  # 63 degrees of freedom: five standard deviations
    for numbers in others:
        assert abs(np.corrcoef(base, numbers)[0, 1]) < 5 / np.sqrt(count)


def test_dropout_keeps_the_mean_and_is_the_identity_outside_training(library: Library) -> None:
    x = np.ones((200, 100))
    dropout = instantiate(library.operators["dropout"], [Shape(x.shape)], {"p": 0.25})
    (y,) = evaluate(dropout, [x], library)
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    assert abs(y.mean() - 1) < 0.02
    (same,) = evaluate(dropout, [x], library, training=False)
    np.testing.assert_array_equal(same, x)
    (other,) = evaluate(dropout, [x], library, uniform=lambda equation, position: uniform(position, 0, 1, 0))
    assert not np.array_equal(y, other)


def test_a_random_number_belongs_to_a_global_position(library: Library) -> None:
    """The positions handed to the source are row-major over the whole tensor."""
    seen: list[np.ndarray] = []

    def source(_: object, position: np.ndarray) -> np.ndarray:
        seen.append(position)
        return np.zeros(position.shape)

    dropout = instantiate(library.operators["dropout"], [Shape((2, 3))], {"p": 0.5})
    evaluate(dropout, [np.ones((2, 3))], library, uniform=source)
    assert seen[0].tolist() == [[0, 1, 2], [3, 4, 5]]


# ---------------------------------------------------------------------------------------------- parallel ops


def moved(name: str, x: np.ndarray, degree: int, attributes: Mapping[str, int]) -> np.ndarray:
    parallel = LIBRARY.parallels[name]
    instance = instantiate_parallel(parallel, [Shape(x.shape)], {"p": degree}, attributes)
    (found,) = evaluate(instance, [x], LIBRARY)
    assert found.shape == instance.shape(instance.outputs[0])
    return found


shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(shapes, st.integers(1, 4), st.data())
def test_partition_cuts_and_combine_joins(shape: list[int], degree: int, data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] *= degree
    x = np.random.default_rng(0).standard_normal(shape)
    slices = moved("partition", x, degree, {"dim": dim})
    np.testing.assert_array_equal(slices, np.stack(np.split(x, degree, axis=dim)))
    np.testing.assert_array_equal(moved("combine", slices, degree, {"dim": dim}), x)
    again = moved("partition", moved("combine", slices, degree, {"dim": dim}), degree, {"dim": dim})
    np.testing.assert_array_equal(again, slices)


@given(shapes, st.integers(1, 4))
def test_replicate_reduce_and_unreplicate(shape: list[int], degree: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    copies = moved("replicate", x, degree, {})
    np.testing.assert_array_equal(copies, np.stack([x] * degree))
    np.testing.assert_array_equal(moved("unreplicate", copies, degree, {}), x)
    terms = np.random.default_rng(1).standard_normal((degree, *shape))
    np.testing.assert_allclose(moved("reduce", terms, degree, {}), terms.sum(0), atol=1e-14)


@pytest.mark.parametrize(("rank", "degree"), list(itertools.product((2, 3, 4), (1, 2, 3))))
def test_all_to_all_is_combine_then_partition(rank: int, degree: int) -> None:
    random = np.random.default_rng(rank)
    for early, late in itertools.combinations(range(rank), 2):
        shape = [int(size) for size in random.integers(1, 4, rank)]
        shape[early] *= degree
        shape[late] *= degree
        x = random.standard_normal(shape)
        by_early = moved("partition", x, degree, {"dim": early})
        by_late = moved("partition", x, degree, {"dim": late})
        np.testing.assert_array_equal(moved("all_to_all", by_early, degree, {"from": early, "to": late}), by_late)
        np.testing.assert_array_equal(moved("all_to_all_back", by_late, degree, {"from": late, "to": early}), by_early)

"""Gradients: every shipped operator against torch autograd, unusual index maps against finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.equations.term_text import equation_text
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library

from ..declare import declare
from ..operand_cases import Case, Random, any_shape, normal
from ..simple_cases import KINKED
from ..test_ops import CASES, SEEDS, listed


def dropout(random: Random) -> Case:
    """A case of dropout; the reference keeps the elements that the counter-based numbers keep."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        position = np.arange(x.numel()).reshape(tuple(x.shape))
        return x * torch.from_numpy(np.asarray(uniform(position) >= 0.25)) / 0.75

    return Case([normal(random, *any_shape(random), 8)], reference, {"p": 0.25})


def row_dropout(random: Random) -> Case:
    def reference(x: torch.Tensor) -> torch.Tensor:
        kept = torch.from_numpy(np.asarray(uniform(np.arange(len(x))) >= 0.25))
        return x * kept.reshape(-1, *[1] * (x.dim() - 1)) / 0.75

    return Case([normal(random, 8, *any_shape(random))], reference, {"p": 0.25})


ALL = {**CASES, "dropout": dropout, "row_dropout": row_dropout}
WITHOUT_GRADIENT = ("top_k", "sort", "one_hot", "expert_places", "tail")
"""Operators without a gradient: they return integers, or have only integer operands, or none."""


def torch_gradients(case: Case, cotangents: list[np.ndarray]) -> list[np.ndarray | None]:
    """The gradient of each operand by torch, None for integers."""
    tensors = [t.clone().requires_grad_() if t.is_floating_point() else t for t in case.inputs]
    floats = [t for t in tensors if t.requires_grad]
    given = [torch.tensor(cotangent) for cotangent in cotangents]
    found = iter(torch.autograd.grad(listed(case.reference(*tensors)), floats, given))
    return [next(found).numpy() if t.requires_grad else None for t in tensors]


def check(name: str, case: Case, library: Library, rtol: float = 1e-9) -> None:
    instance = case.instance(library.operators[name])
    inputs = [t.numpy() for t in case.inputs]
    random = np.random.default_rng(1)
    outputs = evaluate(instance, inputs, library)
    cotangents = [np.asarray(random.normal(size=output.shape)) for output in outputs]
    for wrt, expected in enumerate(torch_gradients(case, cotangents)):
        if expected is not None:
            made = adjoint(instance, library, wrt)
            (found,) = evaluate(made, [*inputs, *cotangents], library)
            assert found.shape == made.shape(made.outputs[0]) == expected.shape
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_GRADIENT])
def test_gradient_equals_autograd(name: str, seed: int, library: Library) -> None:
    check(name, ALL[name](np.random.default_rng(seed)), library)


def test_every_shipped_operator_has_a_case(library: Library) -> None:
    assert set(ALL) == set(library.operators)


def test_integers_have_no_cotangent(library: Library) -> None:
    instance = ALL["embedding"](np.random.default_rng(0)).instance(library.operators["embedding"])
    with pytest.raises(ValueError, match="no cotangent"):
        adjoint(instance, library, 0)
    instance = ALL["top_k"](np.random.default_rng(0)).instance(library.operators["top_k"])
    with pytest.raises(ValueError, match="no cotangent"):
        adjoint(instance, library, 0)


@pytest.mark.parametrize("name", ["relu", "softmax", "reduce_max", "max_pool2d", *KINKED])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_at_kinks_and_ties_is_that_of_torch(name: str, seed: int, library: Library) -> None:
    """relu'(0) = 0. Equal maxima share the gradient, as in amax, or the first takes it, as in pooling."""
    case = ALL[name](np.random.default_rng(seed))
    for rounded in (torch.zeros_like, torch.round):
        check(name, replace(case, inputs=[rounded(t) for t in case.inputs]), library)


# ------------------------------------------------------------------------------------------ how it reads


def lines(instance: Instance, library: Library, wrt: int) -> list[str]:
    found = adjoint(instance, library, wrt)
    return [equation_text(equation) for equation in found.equations if equation not in instance.equations]


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "wrt", "expected"),
    [
        ("linear", [(2, 3), (4, 3)], {}, 0, "d_x[b0, i] = sum(o) d_y[b0, o] * w[o, i]"),
        ("linear", [(2, 5, 3), (4, 3)], {}, 1, "d_w[o, i] = sum(b0, b1) d_y[b0, b1, o] * x[b0, b1, i]"),
        ("concat", [(2, 3), (2, 4)], {"dim": 1}, 1, "d_y[f0, e] = d_z[f0, e + |d|]"),
        ("slice", [(7, 2)], {"dim": 0, "start": 2, "stop": 5}, 0, "d_x[d, g0] = d_y[d - 2, g0 else 0]"),
        ("causal_mask", [(3, 3)], {}, 0, "d_x[s, t] = select(t <= s, d_y[s, t], 0)"),
        ("add", [(2, 3), (1, 3)], {}, 1, "d_y[0, b1] = sum(b0) d_z[b0, b1]"),
        ("mul", [(3,), (2, 3)], {}, 0, "d_x[b1] = sum(b0) d_z[b0, b1] * y[b0, b1]"),
        ("reciprocal", [(3,)], {}, 0, "d_x[b0] = -(d_y[b0] / (x[b0] * x[b0]))"),
    ],
)
def test_gradients_read_as_one_would_write_them(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, int], wrt: int, expected: str, library: Library
) -> None:
    instance = instantiate(library.operators[name], [Shape(shape) for shape in shapes], attributes)
    assert lines(instance, library, wrt) == [expected]


def test_cancelled_maximum_is_not_differentiated(library: Library) -> None:
    instance = instantiate(library.operators["softmax"], [Shape((2, 3))], {})
    assert [line.split("[")[0] for line in lines(instance, library, 0)] == ["d_z", "d_e", "d_x"]


# ------------------------------------------------------------------------------------------ unusual operators

UNUSUAL = {
    "window": ("op f(x: [h], k: [r]) -> y: [p]\n  where p == h - r + 1\n  y[p] = sum(r) x[p + r] * k[r]", [(7,), (3,)]),
    "padded_window": (
        "op f(x: [c, h], k: [o, c, r]) -> y: [o, p]\n  where p == h\n"
        "  y[o, p] = sum(c, r) x[c, p + r - 1 else 0] * k[o, c, r]",
        [(2, 5), (3, 2, 3)],
    ),
    "strided_window": (
        "op f(x: [h], k: [r]) -> y: [p]\n  where p == (h - r) // 2 + 1\n  y[p] = sum(r) x[2 * p + r] * k[r]",
        [(9,), (4,)],
    ),
    "strided": ("op f(x: [h]) -> y: [p]\n  where p == h // 3\n  y[p] = exp(x[3 * p])", [(10,)]),
    "reversed": ("op f(x: [h]) -> y: [h]\n  y[i] = x[|h| - 1 - i] * x[i]", [(5,)]),
    "diagonal": ("op f(x: [n, m]) -> y: [n]\n  where n == m\n  y[n] = x[n, n] * x[n, 0]", [(4, 4)]),
    "rows_of_ids": (
        "op f(ids: int<v>[n], w: [v, d]) -> y: [n, d]\n  y[n, d] = sum(v) [v == ids[n]] * w[v, d] * w[v, 0]",
        [(3,), (4, 2)],
    ),
    "flattened": (
        "op f(x: [a, b]) -> y: [c]\n  where c == a * b\n  y[c] = x[c // |b|, c % |b|] * x[0, c % |b|]",
        [(3, 4)],
    ),
    "folded": (
        "op f(x: [c], w: [b]) -> y: [a, b]\n  where c == a * b\n  y[a, b] = x[a * |b| + b] * w[b]",
        [(12,), (4,)],
    ),
    "product": ("op f(x: [b, c]) -> y: [b]\n  y[b] = prod(c) (x[b, c] + 1)", [(2, 4)]),
    "product_of_two_axes": ("op f(x: [b, c], w: [c]) -> y: []\n  y[] = prod(b, c) x[b, c] * w[c]", [(2, 3), (3,)]),
    "minimum": ("op f(x: [b, c], w: [c]) -> y: [b]\n  y[b] = min(c) exp(x[b, c]) * w[c]", [(2, 4), (4,)]),
    "constant_along_a_sum": ("op f(x: [b], w: [c]) -> y: [b]\n  y[b] = sum(c) x[b] / |c|", [(2,), (3,)]),
    "moving_dropout": (
        "op f(x: [b]) -> y: [b]\n  y[b] = [uniform[b] >= 0.5] * x[b - 1 else 0] * uniform[b]",
        [(6,)],
    ),
    "running_sum": ("op f(x: [b]) -> y: [c]\n  where c == b\n  y[c] = sum(b) [b <= c] * x[b]", [(5,)]),
    "division_at_the_border": ("op f(x: [h]) -> y: [h]\n  y[h] = x[h - 1 else 0] / x[h]", [(5,)]),
    "two_outputs": (
        "op f(x: [b, c]) -> y: [b, c], s: [b]\n  s[b] = sum(c) exp(x[b, c])\n  y[b, c] = exp(x[b, c]) / s[b]",
        [(2, 3)],
    ),
    "used_twice": ("op f(x: [a, a2]) -> y: [a, a2]\n  where a == a2\n  y[i, j] = x[i, j] * x[j, i]", [(3, 3)]),
}


def numeric_gradient(instance: Instance, library: Library, inputs: list[np.ndarray], wrt: int) -> list[np.ndarray]:
    """Central differences, one array of output derivatives per element of input `wrt`."""
    step, found = 1e-5, []
    for position in np.ndindex(inputs[wrt].shape):
        sides = []
        for sign in (1, -1):
            moved = [value.copy() for value in inputs]
            moved[wrt][position] += sign * step
            sides.append(evaluate(instance, moved, library))
        found.append([(high - low) / (2 * step) for high, low in zip(*sides, strict=True)])
    return found


@pytest.mark.parametrize("name", UNUSUAL)
def test_gradient_of_unusual_index_maps(name: str) -> None:
    text, shapes = UNUSUAL[name]
    library = declare(text)
    operator = library.operators["f"]
    ranges = [4 if tensor.integer_range else None for tensor in operator.inputs]
    instance = instantiate(operator, [Shape(s, r) for s, r in zip(shapes, ranges, strict=True)], {})
    random = np.random.default_rng(1)
    inputs: list[np.ndarray] = []
    for operand in instance.inputs:
        shape, bound = instance.shape(operand), operand.integer_range
        inputs.append(random.uniform(0.5, 2, shape) if bound is None else random.integers(0, bound, shape))
    generator = np.random.default_rng(2)
    cotangents = [generator.normal(size=output.shape) for output in evaluate(instance, inputs, library)]
    for wrt, operand in enumerate(instance.inputs):
        if operand.integer_range is not None:
            continue
        (found,) = evaluate(adjoint(instance, library, wrt), [*inputs, *cotangents], library)
        expected = [
            sum(float((part * d).sum()) for part, d in zip(parts, cotangents, strict=True))
            for parts in numeric_gradient(instance, library, inputs, wrt)
        ]
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-7)


def test_product_with_zeros_has_the_gradient_of_torch() -> None:
    library = declare("op f(x: [b, c]) -> y: [b]\n  y[b] = prod(c) x[b, c]")
    instance = instantiate(library.operators["f"], [Shape((3, 3))], {})
    x = np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0]])
    cotangent = np.array([1.0, 2.0, 3.0])
    (found,) = evaluate(adjoint(instance, library, 0), [x, cotangent], library)
    (expected,) = torch_gradients(Case([torch.tensor(x)], lambda t: t.prod(1)), [cotangent])
    assert expected is not None
    np.testing.assert_allclose(found, expected)


@settings(max_examples=60)
@given(st.data())
def test_gradient_of_random_affine_reads(data: st.DataObject) -> None:
    """Any read `x[a * p + b * r + c else 0]`: the adjoint is the transpose of the map, element by element."""
    a, b = (data.draw(st.integers(-3, 3)) for _ in range(2))
    c, fill = data.draw(st.integers(-8, 8)), data.draw(st.sampled_from(["0", "2"]))
    h, p, r = (data.draw(st.integers(1, 6)) for _ in range(3))
    index = f"{a} * p + {b} * r + {c}"
    library = declare(f"op f(x: [h], k: [p, r]) -> y: [p]\n  y[p] = sum(r) x[{index} else {fill}] * k[p, r]")
    instance = instantiate(library.operators["f"], [Shape((h,)), Shape((p, r))], {})
    generator = np.random.default_rng(0)
    x, k, d = generator.normal(size=h), generator.normal(size=(p, r)), generator.normal(size=p)
    position = a * np.arange(p)[:, None] + b * np.arange(r) + c
    inside = (position >= 0) & (position < h)
    expected_x, expected_k = np.zeros(h), np.where(inside, x[np.where(inside, position, 0)], float(fill)) * d[:, None]
    np.add.at(expected_x, position[inside], (d[:, None] * k)[inside])
    (found_x,) = evaluate(adjoint(instance, library, 0), [x, k, d], library)
    (found_k,) = evaluate(adjoint(instance, library, 1), [x, k, d], library)
    np.testing.assert_allclose(found_x, expected_x, atol=1e-12)
    np.testing.assert_allclose(found_k, expected_k, atol=1e-12)

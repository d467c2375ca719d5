"""Gradients: every shipped operator against torch autograd, unusual index maps against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.index.adjoint import adjoint
from unity_dsl.index.evaluate import evaluate
from unity_dsl.index.instance import Instance
from unity_dsl.index.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.index.notation import equation_text
from unity_dsl.index.uniform import uniform

from .declare import declare

Tensor = torch.Tensor


@dataclass(frozen=True)
class Case:
    """A call of a shipped operator, and the same in torch by hand."""

    name: str
    shapes: Sequence[Sequence[int]]
    reference: Callable[..., Tensor]
    attributes: Mapping[str, float] = field(default_factory=dict)
    integers: Mapping[int, int] = field(default_factory=dict)
    binding: Binding | None = None
    positive: bool = False

    def __str__(self) -> str:
        return f"{self.name}-{'-'.join('x'.join(map(str, shape)) for shape in self.shapes)}"


def pattern(source: str, target: str, **sizes: int) -> Binding:
    """`pattern("b (h k)", "h b k", …)`."""

    def dims(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
        found: list[tuple[tuple[str, int], ...]] = []
        inside: list[tuple[str, int]] | None = None
        for word in text.replace("(", " ( ").replace(")", " ) ").split():
            if word == "(":
                inside = []
            elif word == ")":
                found.append(tuple(inside or ()))
                inside = None
            elif inside is not None:
                inside.append((word, sizes[word]))
            else:
                found.append(((word, sizes[word]),) if word != "1" else ())
        return tuple(found)

    return Binding(dims(source), dims(target))


def mask(shape: torch.Size, p: float) -> Tensor:
    position = np.arange(math.prod(shape)).reshape(tuple(shape))
    return torch.from_numpy(uniform(position) >= p)


def masked_cross_entropy(x: Tensor, target: Tensor, kept: Tensor) -> Tensor:
    losses = F.cross_entropy(x.flatten(0, -2), target.flatten(), reduction="none")
    return (losses * (kept.flatten() != 0)).sum() / (kept != 0).sum().clamp(min=1)


CASES = [
    Case("linear", [(2, 3, 4), (5, 4)], F.linear),
    Case("linear", [(4,), (1, 4)], F.linear),
    Case("matmul", [(2, 3, 2, 4), (2, 3, 4, 5)], torch.matmul),
    Case("matmul", [(3, 4), (4, 2)], torch.matmul),
    Case("project", [(2, 3, 4), (3, 2, 5, 4)], lambda x, w: torch.einsum("bsi,pqri->bspqr", x, w)),
    Case("root_scale", [(2, 3)], lambda x: x / math.sqrt(x.shape[-1])),
    Case("embedding", [(2, 3), (7, 4)], F.embedding, integers={0: 7}),
    *(
        Case(name, shapes, reference, positive=name == "div")
        for name, reference in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div))
        for shapes in ([(2, 3), (2, 3)], [(2, 1, 4), (3, 1)], [(4,), (2, 3, 4)], [(2, 3), ()])
    ),
    Case("scale", [(2, 3)], lambda x: x * 0.3, {"factor": 0.3}),
    Case("shift", [(2, 3)], lambda x: x + 2, {"by": 2}),
    Case("relu", [(3, 4)], torch.relu),
    Case("gelu", [(3, 4)], F.gelu),
    Case("gelu_tanh", [(3, 4)], lambda x: F.gelu(x, approximate="tanh")),
    Case("tanh", [(3, 4)], torch.tanh),
    Case("sigmoid", [(3, 4)], torch.sigmoid),
    Case("exp", [(3, 4)], torch.exp),
    Case("reciprocal", [(3, 4)], lambda x: 1 / x, positive=True),
    Case("dropout", [(5, 8)], lambda x: x * mask(x.shape, 0.25) / 0.75, {"p": 0.25}),
    Case("causal_mask", [(2, 3, 3)], lambda x: x.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)),
    Case(
        "padding_mask",
        [(2, 3, 4, 4), (2, 4)],
        lambda x, m: x - 10000.0 * (m == 0)[:, None, None, :],
        integers={1: 2},
    ),
    Case("mse", [(2, 3), (2, 3)], F.mse_loss),
    Case(
        "cross_entropy",
        [(2, 3, 5), (2, 3)],
        lambda x, t: F.cross_entropy(x.flatten(0, -2), t.flatten()),
        integers={1: 5},
    ),
    Case("cross_entropy", [(4, 5), (4,)], F.cross_entropy, integers={1: 5}),
    Case("masked_cross_entropy", [(2, 3, 5), (2, 3), (2, 3)], masked_cross_entropy, integers={1: 5, 2: 2}),
    Case("softmax", [(2, 3, 5)], lambda x: torch.softmax(x, -1)),
    Case(
        "layer_norm",
        [(2, 3, 5), (5,), (5,)],
        lambda x, g, b: F.layer_norm(x, [5], g, b, 1e-3),
        {"eps": 1e-3},
    ),
    Case(
        "rearrange",
        [(2, 3, 20)],
        lambda x: x.reshape(2, 3, 4, 5).permute(2, 0, 1, 3).reshape(4, 6, 5),
        binding=pattern("b s (h k)", "h (b s) k", b=2, s=3, h=4, k=5),
    ),
    Case("rearrange", [(2, 1, 3)], lambda x: x[:, 0].t(), binding=pattern("b 1 s", "s b", b=2, s=3)),
    Case("reduce_sum", [(2, 3, 4)], lambda x: x.sum(1).t(), binding=pattern("a b c", "c a", a=2, b=3, c=4)),
    Case(
        "reduce_mean",
        [(2, 12)],
        lambda x: x.reshape(2, 3, 4).mean(2),
        binding=pattern("a (b c)", "a b", a=2, b=3, c=4),
    ),
    Case("reduce_mean", [(2, 3)], lambda x: x.mean(), binding=pattern("a b", "", a=2, b=3)),
    Case("reduce_max", [(2, 3, 4)], lambda x: x.amax((0, 2)), binding=pattern("a b c", "b", a=2, b=3, c=4)),
    Case("concat", [(2, 3, 4), (2, 5, 4)], lambda x, y: torch.cat([x, y], 1), {"dim": 1}),
    Case("concat", [(3,), (2,)], lambda x, y: torch.cat([x, y]), {"dim": 0}),
    Case("slice", [(2, 7, 3)], lambda x: x[:, 2:5], {"dim": 1, "start": 2, "stop": 5}),
]


def draw(instance: Instance, generator: np.random.Generator, positive: bool = False) -> list[np.ndarray]:
    """Random inputs, away from zero where `positive`."""
    found = []
    for operand in instance.inputs:
        shape = instance.shape(operand)
        if operand.integer_range is not None:
            found.append(generator.integers(0, operand.integer_range, shape))
        else:
            found.append(generator.uniform(0.5, 2, shape) if positive else generator.normal(size=shape))
    return found


def call(case: Case, library: Library) -> Instance:
    shapes = [Shape(tuple(shape), case.integers.get(i)) for i, shape in enumerate(case.shapes)]
    return instantiate(library.operators[case.name], shapes, case.attributes, binding=case.binding)


def torch_gradients(
    reference: Callable[..., Tensor], inputs: Sequence[np.ndarray], cotangent: np.ndarray
) -> list[np.ndarray | None]:
    tensors = [torch.tensor(value, requires_grad=value.dtype == np.float64) for value in inputs]
    found = torch.autograd.grad(
        reference(*tensors),
        [t for t in tensors if t.requires_grad],
        torch.tensor(cotangent),
    )
    left = iter(found)
    return [next(left).numpy() if t.requires_grad else None for t in tensors]


def assert_gradients(case: Case, library: Library, inputs: Sequence[np.ndarray], seed: int = 0) -> None:
    instance = call(case, library)
    outputs = evaluate(instance, inputs, library)
    cotangents = [np.random.default_rng(seed).normal(size=output.shape) for output in outputs]
    (cotangent,) = cotangents
    for i, expected in enumerate(torch_gradients(case.reference, inputs, cotangent)):
        if expected is None:
            with pytest.raises(ValueError, match="no cotangent"):
                adjoint(instance, library, i)
            continue
        (found,) = evaluate(adjoint(instance, library, i), [*inputs, cotangent], library)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_gradient_equals_autograd(case: Case, seed: int, library: Library) -> None:
    inputs = draw(call(case, library), np.random.default_rng(seed), case.positive)
    assert_gradients(case, library, inputs, seed)


def test_every_shipped_operator_has_a_case(library: Library) -> None:
    assert {case.name for case in CASES} == set(library.operators)


@pytest.mark.parametrize("name", ["relu", "tanh", "softmax"])
def test_gradient_at_kinks_and_ties_is_that_of_torch(name: str, library: Library) -> None:
    case = next(case for case in CASES if case.name == name)
    assert_gradients(case, library, [np.zeros(tuple(case.shapes[0]))])


def test_ties_of_a_maximum_share_equally(library: Library) -> None:
    case = next(case for case in CASES if case.name == "reduce_max")
    assert_gradients(case, library, [np.round(np.random.default_rng(0).normal(size=(2, 3, 4)))])


# ------------------------------------------------------------------------------------------ how it reads


def lines(instance: Instance, library: Library, wrt: int) -> list[str]:
    found = adjoint(instance, library, wrt)
    return [equation_text(equation) for equation in found.equations if equation not in instance.equations]


@pytest.mark.parametrize(
    ("name", "wrt", "expected"),
    [
        ("linear", 0, ["d_x[b0, b1, i] = sum(o) d_y[b0, b1, o] * w[o, i]"]),
        ("linear", 1, ["d_w[o, i] = sum(b0, b1) d_y[b0, b1, o] * x[b0, b1, i]"]),
        ("embedding", 1, ["d_w[v, d] = sum(n0, n1) d_y[n0, n1, d] * [v == ids[n0, n1]]"]),
        ("concat", 1, ["d_y[f0, e, g0] = d_z[f0, e + |d|, g0]"]),
        ("slice", 0, ["d_x[f0, d, g0] = d_y[f0, d - 2, g0 else 0]"]),
        ("causal_mask", 0, ["d_x[b0, s, t] = select(t <= s, d_y[b0, s, t], 0)"]),
    ],
)
def test_gradients_read_as_one_would_write_them(name: str, wrt: int, expected: list[str], library: Library) -> None:
    case = next(case for case in CASES if case.name == name)
    assert lines(call(case, library), library, wrt) == expected


def test_cancelled_maximum_is_not_differentiated(library: Library) -> None:
    case = next(case for case in CASES if case.name == "softmax")
    assert not any(line.startswith("d_m") for line in lines(call(case, library), library, 0))


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
    """Central differences, one array of output derivatives per element."""
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
    inputs = draw(instance, np.random.default_rng(1), positive=True)
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
    (expected,) = torch_gradients(lambda t: t.prod(1), [x], cotangent)
    np.testing.assert_allclose(found, expected)


@settings(deadline=None, max_examples=60)
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

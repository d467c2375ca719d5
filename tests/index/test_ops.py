"""Every shipped declaration against torch, in float64 at random shapes: equations, native line, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unity_dsl.index.evaluate import evaluate
from unity_dsl.index.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.index.native import LITERALS
from unity_dsl.index.term import call, substitute
from unity_dsl.syntax.ast import (
    DimDecl,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeSteps,
    Number,
    OperatorDecl,
    Read,
    Size,
    Statement,
    TensorDecl,
)

from .operand_cases import Case, Random, Tensors, any_shape, broadcast, normal, sizes, unary
from .simple_cases import SIMPLE_CASES, WITHOUT_NATIVE_CALL


def linear(random: Random) -> Case:
    i, o = sizes(random, 2)
    return Case([normal(random, *any_shape(random), i), normal(random, o, i)], F.linear)


def matmul(random: Random) -> Case:
    batch, (m, k, n) = any_shape(random), sizes(random, 3)
    return Case([normal(random, *batch, m, k), normal(random, *batch, k, n)], torch.matmul)


def embedding(random: Random) -> Case:
    v, d = sizes(random, 2)
    ids = torch.from_numpy(random.integers(0, v, any_shape(random)))
    return Case([torch.as_tensor(ids), normal(random, v, d)], F.embedding, ranges={0: v})


def causal_mask(random: Random) -> Case:
    def reference(x: torch.Tensor) -> torch.Tensor:
        later = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
        return x.masked_fill(later, -torch.inf)

    return Case([normal(random, *any_shape(random), *sizes(random, 2))], reference)


def softmax(random: Random) -> Case:
    x = 300 * normal(random, *any_shape(random), *sizes(random, 1))
    return Case([x], lambda x: torch.softmax(x, -1))


def layer_norm(random: Random) -> Case:
    (c,) = sizes(random, 1)
    inputs = [normal(random, *any_shape(random), c), normal(random, c), normal(random, c)]
    return Case(inputs, lambda x, g, b: F.layer_norm(x, [c], g, b, 0.01), {"eps": 0.01})


def batch_norm(random: Random) -> Case:
    """At least two elements of each channel, without which there is no variance."""
    (c,) = sizes(random, 1)
    channels = [normal(random, c), normal(random, c), normal(random, c), normal(random, c).abs()]
    x = normal(random, int(random.integers(2, 5)), c, *any_shape(random))

    def reference(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Tensors:
        rows = x.transpose(0, 1).flatten(1)
        y = (rows - rows.mean(1)[:, None]) / (rows.var(1, correction=0) + 0.01).sqrt()[:, None] * g[:, None] + b[
            :, None
        ]
        whole = y.reshape(x.transpose(0, 1).shape).transpose(0, 1)
        return [whole, 0.8 * m + 0.2 * rows.mean(1), 0.8 * v + 0.2 * rows.var(1)]

    return Case([x, *channels], reference, {"momentum": 0.2, "eps": 0.01})


def mse(random: Random) -> Case:
    shape = any_shape(random)
    return Case([normal(random, *shape), normal(random, *shape)], F.mse_loss)


def cross_entropy(random: Random) -> Case:
    shape, c = any_shape(random), sizes(random, 1)[0]
    target = torch.as_tensor(random.integers(0, c, shape))

    def reference(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(torch.log_softmax(x, -1).reshape(-1, c), target.reshape(-1))

    return Case([30 * normal(random, *shape, c), target], reference, ranges={1: c})


def masked_cross_entropy(random: Random) -> Case:
    case = cross_entropy(random)
    mask = torch.as_tensor(random.integers(0, 2, case.inputs[1].shape))

    def reference(x: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        losses = -torch.log_softmax(x, -1).gather(-1, target[..., None])[..., 0]
        return (losses * mask).sum() / max(int(mask.sum()), 1)

    return Case([*case.inputs, mask], reference, ranges={**case.ranges, 2: 2})


def padding_mask(random: Random) -> Case:
    b, h, s, t = sizes(random, 4)
    mask = torch.as_tensor(random.integers(0, 2, (b, t)))
    inputs = [normal(random, b, h, s, t), mask]
    return Case(inputs, lambda x, mask: x - 1e4 * (1 - mask)[:, None, None], ranges={1: 2})


def project(random: Random) -> Case:
    (i,) = sizes(random, 1)
    x, w = normal(random, *any_shape(random), i), normal(random, *any_shape(random), i)
    return Case([x, w], lambda x, w: torch.tensordot(x, w, dims=([-1], [-1])))


def root_scale(random: Random) -> Case:
    (k,) = sizes(random, 1)
    return Case([normal(random, *any_shape(random), k)], lambda x: x / k**0.5)


def rms_norm(random: Random) -> Case:
    (c,) = sizes(random, 1)
    inputs = [normal(random, *any_shape(random), c), normal(random, c)]
    return Case(inputs, lambda x, g: F.rms_norm(x, [c], g, 0.01), {"eps": 0.01})


def rope(random: Random) -> Case:
    s, half = sizes(random, 2)

    def reference(x: torch.Tensor) -> torch.Tensor:
        """Elements i and i + half are a complex number, turned by position * base^(-i / half)."""
        angles = torch.outer(torch.arange(s), 500.0 ** (-torch.arange(half, dtype=x.dtype) / half))
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], -1)

    return Case([normal(random, *any_shape(random), s, 2 * half)], reference, {"base": 500})


def attention(kind: str) -> Callable[[Random], Case]:
    """`causal`, `masked` or `full`, against matrix products and a softmax that are written out."""

    def made(random: Random) -> Case:
        b, heads, groups, s, t, k, v = sizes(random, 7)
        seen = random.integers(0, 2, (b, s, t))
        seen[..., 0] = 1  # at least one key for every query
        mask = torch.as_tensor(seen)
        keep = {"causal": torch.ones(s, t).tril(), "masked": mask[:, None], "full": torch.ones(s, t)}[kind]

        def reference(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
            scores = (q @ key.transpose(-2, -1) / k**0.5).masked_fill(keep == 0, -torch.inf)
            return torch.softmax(scores, -1) @ value

        inputs = [
            normal(random, b, heads * groups, s, k),
            normal(random, b, heads, t, k),
            normal(random, b, heads, t, v),
        ]
        return Case([*inputs, mask], reference, ranges={3: 2}) if kind == "masked" else Case(inputs, reference)

    return made


def concat(random: Random) -> Case:
    shape = sizes(random, int(random.integers(1, 4)))
    dim = int(random.integers(-len(shape), len(shape)))
    other = list(shape)
    other[dim] = int(random.integers(1, 5))
    return Case([normal(random, *shape), normal(random, *other)], lambda x, y: torch.cat([x, y], dim), {"dim": dim})


def cut(random: Random) -> Case:
    shape = sizes(random, int(random.integers(1, 4)))
    dim = int(random.integers(-len(shape), len(shape)))
    start = int(random.integers(0, shape[dim]))
    stop = int(random.integers(start + 1, shape[dim] + 1))
    attributes = {"dim": dim, "start": start, "stop": stop}
    return Case([normal(random, *shape)], lambda x: x.narrow(dim, start, stop - start), attributes)


def prepend(random: Random) -> Case:
    shape, (s, r, d) = any_shape(random), sizes(random, 3)

    def reference(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows.expand(*shape, r, d), x], -2)

    return Case([normal(random, *shape, s, d), normal(random, r, d)], reference)


def pattern(reference: Callable[[torch.Tensor], torch.Tensor], keeps: bool = False) -> Callable[[Random], Case]:
    """`x[b, (h k), s, 1] -> [s, (h b)]`, or with `k` kept; the reference sees x as [s, h, b, k]."""

    def made(random: Random) -> Case:
        b, h, k, s = sizes(random, 4)
        source = ((("b", b),), (("h", h), ("k", k)), (("s", s),), ())
        target = ((("s", s),), (("h", h), ("b", b)), *(((), (("k", k),)) if keeps else ()))

        def whole(x: torch.Tensor) -> torch.Tensor:
            y = reference(x.reshape(b, h, k, s).permute(3, 1, 0, 2))
            return y.reshape(s, h * b, 1, k) if keeps else y.reshape(s, h * b)

        return Case([normal(random, b, h * k, s, 1)], whole, binding=Binding(source, target))

    return made


def window(random: Random) -> tuple[int, int, dict[str, int]]:
    """A length, a kernel that fits into it, and how it moves."""
    stride, dilation, pad, width = (int(random.integers(low, 4)) for low in (1, 1, 0, 1))
    reach = dilation * (width - 1) + 1
    length = max(1, reach - 2 * pad) + int(random.integers(0, 5))
    return length, width, {"stride": stride, "dilation": dilation, "pad": pad}


def conv1d(random: Random) -> Case:
    (n, c, o), (length, width, moves) = sizes(random, 3), window(random)
    inputs = [normal(random, n, c, length), normal(random, o, c, width)]
    return Case(inputs, lambda x, k: F.conv1d(x, k, None, moves["stride"], moves["pad"], moves["dilation"]), moves)


def conv2d(random: Random) -> Case:
    (n, c, o), (height, r, moves) = sizes(random, 3), window(random)
    stride, dilation, pad_h, pad_w = moves["stride"], moves["dilation"], moves["pad"], int(random.integers(0, 3))
    s = int(random.integers(1, 4))
    width = max(1, dilation * (s - 1) + 1 - 2 * pad_w) + int(random.integers(0, 5))
    inputs = [normal(random, n, c, height, width), normal(random, o, c, r, s)]
    attributes = {"stride": stride, "dilation": dilation, "pad_h": pad_h, "pad_w": pad_w}
    return Case(inputs, lambda x, k: F.conv2d(x, k, None, stride, (pad_h, pad_w), dilation), attributes)


def pool2d(reference: Callable[..., torch.Tensor]) -> Callable[[Random], Case]:
    def made(random: Random) -> Case:
        size, stride = (int(number) for number in random.integers(1, 4, 2))
        pads = [int(number) for number in random.integers(0, size // 2 + 1, 2)]
        shape = [*sizes(random, 2), *(max(1, size - 2 * pad) + int(random.integers(0, 5)) for pad in pads)]
        attributes = {"size": size, "stride": stride, "pad_h": pads[0], "pad_w": pads[1]}
        return Case([normal(random, *shape)], lambda x: reference(x, size, stride, pads), attributes)

    return made


def global_avg_pool2d(random: Random) -> Case:
    return Case([normal(random, *sizes(random, 4))], lambda x: F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0])


def few(random: Random, *shape: int) -> torch.Tensor:
    """Numbers with many ties."""
    return torch.from_numpy(random.integers(-2, 3, shape).astype(float))


def integers(random: Random, bound: int, *shape: int) -> torch.Tensor:
    return torch.as_tensor(random.integers(0, bound, shape))


def top_k(random: Random) -> Case:
    (c,) = sizes(random, 1)
    count = int(random.integers(1, c + 1))

    def reference(x: torch.Tensor) -> torch.Tensor:
        """Sorted by element, then by position, one row at a time."""
        rows = [sorted(range(c), key=lambda n, row=row: (-row[n], n))[:count] for row in x.reshape(-1, c).tolist()]
        return torch.tensor(rows).reshape(*x.shape[:-1], count)

    return Case([few(random, *any_shape(random), c)], reference, {"count": count})


def sort(random: Random) -> Case:
    (c,) = sizes(random, 1)

    def reference(x: torch.Tensor) -> torch.Tensor:
        rows = [sorted(range(c), key=lambda n, row=row: (row[n], n)) for row in x.reshape(-1, c).tolist()]
        return torch.tensor(rows).reshape(x.shape)

    return Case([few(random, *any_shape(random), c)], reference)


def along(random: Random) -> tuple[torch.Tensor, torch.Tensor, int]:
    """A tensor, positions along one of its dimensions, and which one."""
    shape = sizes(random, int(random.integers(1, 4)))
    dim = int(random.integers(-len(shape), len(shape)))
    other = list(shape)
    other[dim] = int(random.integers(1, 6))
    return normal(random, *shape), integers(random, shape[dim], *other), dim


def gather(random: Random) -> Case:
    x, i, dim = along(random)
    return Case([x, i], lambda x, i: torch.gather(x, dim, i), {"dim": dim}, {1: x.shape[dim]})


def scatter_add(random: Random) -> Case:
    x, i, dim = along(random)
    inputs = [x, i, normal(random, *i.shape)]
    return Case(inputs, lambda x, i, v: torch.scatter_add(x, dim, i, v), {"dim": dim}, {1: x.shape[dim]})


def one_hot(random: Random) -> Case:
    (c,) = sizes(random, 1)
    return Case([integers(random, c, *any_shape(random))], lambda i: F.one_hot(i, c), ranges={0: c})


def cumsum(random: Random) -> Case:
    x, _, dim = along(random)
    return Case([x], lambda x: torch.cumsum(x, dim), {"dim": dim})


Choices = tuple[torch.Tensor, torch.Tensor, int]


def queue(i: torch.Tensor, experts: int) -> torch.Tensor:
    """The places of choices, one group, choice and token after the other."""
    places = torch.zeros_like(i)
    for group in range(i.shape[0]):
        taken = [0] * experts
        for choice in range(i.shape[2]):
            for token in range(i.shape[1]):
                expert = int(i[group, token, choice])
                places[group, token, choice] = taken[expert]
                taken[expert] += 1
    return places


def choices(random: Random) -> Choices:
    """What groups of tokens choose, the places of that, and how many experts there are."""
    g, s, k, e = sizes(random, 4)
    i = integers(random, e, g, s, k)
    return i, queue(i, e), e


def expert_places(random: Random) -> Case:
    i, _, e = choices(random)
    return Case([i], lambda i: queue(i, e), ranges={0: e})


def dispatch(random: Random) -> Case:
    (i, p, e), (d, capacity) = choices(random), sizes(random, 2)
    g, s, k = i.shape

    def reference(x: torch.Tensor, i: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(e, g, capacity, d, dtype=x.dtype)
        for group, token, choice in np.ndindex(g, s, k):
            if p[group, token, choice] < capacity:
                y[i[group, token, choice], group, p[group, token, choice]] += x[group, token]
        return y

    return Case([normal(random, g, s, d), i, p], reference, {"capacity": capacity}, {1: e, 2: s * k})


def expert_linear(random: Random) -> Case:
    e, i, o = sizes(random, 3)
    inputs = [normal(random, e, *any_shape(random), i), normal(random, e, o, i)]
    return Case(inputs, lambda x, w: torch.stack([F.linear(*part) for part in zip(x, w, strict=True)]))


def combine_experts(random: Random) -> Case:
    (i, p, e), (d, capacity) = choices(random), sizes(random, 2)
    g, s, k = i.shape

    def reference(y: torch.Tensor, i: torch.Tensor, p: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        z = torch.zeros(g, s, d, dtype=y.dtype)
        for group, token, choice in np.ndindex(g, s, k):
            if p[group, token, choice] < capacity:
                z[group, token] += w[group, token, choice] * y[i[group, token, choice], group, p[group, token, choice]]
        return z

    inputs = [normal(random, e, g, capacity, d), i, p, normal(random, g, s, k)]
    return Case(inputs, reference, ranges={1: e, 2: s * k})


def expert_balance(random: Random) -> Case:
    i, _, e = choices(random)
    r = torch.softmax(normal(random, *i.shape[:2], e), -1)

    def reference(r: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        share = F.one_hot(i, e).double().sum(2).mean((0, 1))
        return e * (share * r.mean((0, 1))).sum()

    return Case([r, i], reference, ranges={1: e})


CASES: dict[str, Callable[[Random], Case]] = {
    "add": broadcast(torch.add),
    "sub": broadcast(torch.sub),
    "mul": broadcast(torch.mul),
    "div": broadcast(torch.div),
    "scale": unary(lambda x: x * 1.5, factor=1.5),
    "shift": unary(lambda x: x - 2, by=-2),
    "relu": unary(F.relu),
    "gelu": unary(F.gelu),
    "gelu_tanh": unary(lambda x: F.gelu(x, approximate="tanh")),
    "silu": unary(F.silu),
    "tanh": unary(torch.tanh),
    "sigmoid": unary(torch.sigmoid),
    "exp": unary(torch.exp),
    "causal_mask": causal_mask,
    "linear": linear,
    "matmul": matmul,
    "embedding": embedding,
    "reciprocal": unary(torch.reciprocal),
    "padding_mask": padding_mask,
    "masked_cross_entropy": masked_cross_entropy,
    "project": project,
    "root_scale": root_scale,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "rms_norm": rms_norm,
    "rope": rope,
    "full_attention": attention("full"),
    "causal_attention": attention("causal"),
    "masked_attention": attention("masked"),
    "mse": mse,
    "cross_entropy": cross_entropy,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "max_pool2d": pool2d(F.max_pool2d),
    "avg_pool2d": pool2d(F.avg_pool2d),
    "global_avg_pool2d": global_avg_pool2d,
    "concat": concat,
    "slice": cut,
    "prepend": prepend,
    "rearrange": pattern(lambda x: x, keeps=True),
    "reduce_sum": pattern(lambda x: x.sum(-1)),
    "reduce_mean": pattern(lambda x: x.mean(-1)),
    "reduce_max": pattern(lambda x: x.amax(-1)),
    **SIMPLE_CASES,
    "top_k": top_k,
    "sort": sort,
    "gather": gather,
    "scatter_add": scatter_add,
    "one_hot": one_hot,
    "cumsum": cumsum,
    "expert_places": expert_places,
    "dispatch": dispatch,
    "expert_linear": expert_linear,
    "combine_experts": combine_experts,
    "expert_balance": expert_balance,
}
ELSEWHERE = {"dropout"}
EQUATIONS_ONLY = {
    *("causal_mask", "dropout", "gelu_tanh", "masked_cross_entropy", "padding_mask", "project", "reciprocal"),
    *("rearrange", "reduce_max", "reduce_mean", "reduce_sum", "root_scale", "rope", "prepend"),
    *("one_hot", "expert_places", "dispatch", "expert_linear", "combine_experts", "expert_balance"),
    *WITHOUT_NATIVE_CALL,
}
"""Operators without a native line."""
SEEDS = range(8)


def test_every_shipped_operator_has_a_case(library: Library) -> None:
    assert set(library.operators) == set(CASES) | ELSEWHERE
    assert {name for name, decl in library.operators.items() if decl.torch is None} == EQUATIONS_ONLY


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_equations_are_what_torch_computes(name: str, seed: int, library: Library) -> None:
    case = CASES[name](np.random.default_rng(seed))
    expected = listed(case.reference(*case.inputs))
    instance = case.instance(library.operators[name])
    found = evaluate(instance, [t.numpy() for t in case.inputs], library)
    for value, wanted, output in zip(found, expected, instance.outputs, strict=True):
        assert value.shape == wanted.shape == instance.shape(output)
        np.testing.assert_allclose(value, wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in EQUATIONS_ONLY])
def test_the_native_line_agrees_with_the_equations(name: str, seed: int, library: Library) -> None:
    operator = library.operators[name]
    case = CASES[name](np.random.default_rng(seed))
    instance = case.instance(operator)
    assert operator.torch is not None
    names = {tensor.name: value for tensor, value in zip(operator.inputs, case.inputs, strict=True)}
    native = run_lowering(operator, {**names, **instance.attributes}, instance.sizes)
    found = evaluate(instance, [t.numpy() for t in case.inputs], library)
    for ours, value in zip(native, found, strict=True):
        np.testing.assert_allclose(ours.numpy(), value, rtol=1e-12, atol=1e-12)


def listed(results: torch.Tensor | Sequence[torch.Tensor]) -> Tensors:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def run_lowering(operator: OperatorDecl, names: Mapping[str, Any], sizes: Mapping[str, int]) -> Tensors:
    """The outputs by the native calls, in training."""
    if not isinstance(operator.torch, NativeSteps):
        assert operator.torch is not None
        return listed(run(operator.torch, names, sizes))
    bound = {**names, "training": True}
    for name, step in operator.torch.steps:
        bound[name] = run(step, bound, sizes)
    return [bound[output.name] for output in operator.outputs]


def run(argument: NativeArgument, names: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    match argument:
        case NativeCall(function, arguments, keywords):
            module, name = function.split(".")
            native = getattr({"F": F, "torch": torch}[module], name)
            given = {key: run(value, names, sizes) for key, value in keywords}
            return native(*(run(part, names, sizes) for part in arguments), **given)
        case NativeList(items):
            return [run(item, names, sizes) for item in items]
        case Name(name):
            return LITERALS[name] if name in LITERALS else names[name]
        case Size(name):
            return sizes[name]
        case Number(value):
            return value


# ---------------------------------------------------------------------------------------------- element functions

POSITIVE = {"log", "sqrt", "rsqrt", "pow"}
FUNCTIONS = (
    *("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid", "softplus", "silu", "sin", "cos", "abs"),
    *("maximum", "minimum", "relu", "pow"),
)


def test_every_shipped_function_is_tested(library: Library) -> None:
    assert set(library.functions) == set(FUNCTIONS)


def pointwise(expr: Expr, parameters: tuple[str, ...], points: list[np.ndarray], library: Library) -> np.ndarray:
    """A term of a function's parameters at points."""
    value = substitute(expr, {name: Read(name, (Name("n"),)) for name in parameters})
    inputs = tuple(TensorDecl(name, (DimDecl("n"),)) for name in parameters)
    output = TensorDecl("result", (DimDecl("n"),))
    operator = OperatorDecl("pointwise", inputs, (), (output,), (), (Statement("result", (Name("n"),), value),))
    (found,) = evaluate(instantiate(operator, [Shape(p.shape) for p in points], {}), points, library)
    return found


def points(function: FunctionDecl) -> list[np.ndarray]:
    """Random points, kinks and ties included."""
    random = np.random.default_rng(7)
    found = [np.concatenate([random.standard_normal(200), [0.0, 0.0, 1.0, -1.0]]) for _ in function.parameters]
    if len(found) == 2:
        found[1][:20] = found[0][:20]
    return [abs(p) + 0.1 if function.name in POSITIVE else p for p in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_their_derivatives_are_torch_s(name: str, library: Library) -> None:
    function = library.functions[name]
    at = points(function)
    inputs = [torch.from_numpy(p).requires_grad_() for p in at]
    names = dict(zip(function.parameters, inputs, strict=True))
    assert function.torch is not None
    native = run(function.torch, names, {})
    applied = call(name, *map(Name, function.parameters))
    np.testing.assert_allclose(pointwise(applied, function.parameters, at, library), native.detach(), rtol=1e-12)
    gradients = torch.autograd.grad(native.sum(), inputs)
    for (parameter, derivative), expected in zip(function.derivatives, gradients, strict=True):
        found = pointwise(derivative, function.parameters, at, library)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12, err_msg=f"{name} by {parameter}")

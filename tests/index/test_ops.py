"""Every shipped declaration against torch, in float64 at random shapes: equations, native line, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unity_dsl.index.equations.term import call, substitute
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.native_calls import LITERALS
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import (
    DimDecl,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeSteps,
    NativeString,
    Number,
    OperatorDecl,
    Read,
    Size,
    Statement,
    TensorDecl,
)

from .attention_cases import ATTENTION_CASES
from .fused_cases import FUSED_BY_STATEMENTS, FUSED_CASES
from .operand_cases import Case, Random, Tensors, any_shape, broadcast, normal, sizes, unary
from .selection_cases import SELECTION_CASES
from .simple_cases import SIMPLE_CASES, WITHOUT_NATIVE_CALL
from .window_cases import WINDOW_CASES


def linear(random: Random) -> Case:
    i, o = sizes(random, 2)
    return Case([normal(random, *any_shape(random), i), normal(random, o, i)], F.linear)


def linear_bias(random: Random) -> Case:
    i, o = sizes(random, 2)
    return Case([normal(random, *any_shape(random), i), normal(random, o, i), normal(random, o)], F.linear)


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
    """A case with at least two elements of each channel; fewer have no variance."""
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


def group_norm(random: Random) -> Case:
    """A case with at least two elements of each group; fewer have no variance."""
    (groups,) = sizes(random, 1)
    c = groups * int(random.integers(2, 5))
    inputs = [normal(random, *sizes(random, 1), c, *any_shape(random)), normal(random, c), normal(random, c)]

    def reference(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(x.shape[0], groups, -1)
        rows = rows - rows.mean(-1, keepdim=True)
        y = (rows / (rows.square().mean(-1, keepdim=True) + 0.01).sqrt()).reshape(x.shape)
        return (y.transpose(1, -1) * g + b).transpose(1, -1) if x.dim() > 2 else y * g + b

    return Case(inputs, reference, {"groups": groups, "eps": 0.01})


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
        """Elements i and i + half form a complex number, rotated by position * base^(-i / half)."""
        angles = torch.outer(torch.arange(s), 500.0 ** (-torch.arange(half, dtype=x.dtype) / half))
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], -1)

    return Case([normal(random, *any_shape(random), s, 2 * half)], reference, {"base": 500})


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
    """A case of `x[b, (h k), s, 1] -> [s, (h b)]`, or with `k` kept; the reference gets x as [s, h, b, k]."""

    def made(random: Random) -> Case:
        b, h, k, s = sizes(random, 4)
        source = ((("b", b),), (("h", h), ("k", k)), (("s", s),), ())
        target = ((("s", s),), (("h", h), ("b", b)), *(((), (("k", k),)) if keeps else ()))

        def whole(x: torch.Tensor) -> torch.Tensor:
            y = reference(x.reshape(b, h, k, s).permute(3, 1, 0, 2))
            return y.reshape(s, h * b, 1, k) if keeps else y.reshape(s, h * b)

        return Case([normal(random, b, h * k, s, 1)], whole, binding=Binding(source, target))

    return made


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
    "linear_bias": linear_bias,
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
    "group_norm": group_norm,
    "rms_norm": rms_norm,
    "rope": rope,
    "mse": mse,
    "cross_entropy": cross_entropy,
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
    **ATTENTION_CASES,
    **SIMPLE_CASES,
    **WINDOW_CASES,
    **SELECTION_CASES,
    **FUSED_CASES,
}
ELSEWHERE = {"dropout", "row_dropout"}
EQUATIONS_ONLY = {
    *("causal_mask", "dropout", "row_dropout", "padding_mask", "project", "reciprocal", "window_attention"),
    "biased_attention",
    *("gru_cell", "start_state", "tail", "spread", "zero_pad", "hardsigmoid", "hardswish", "is_above"),
    *("rearrange", "reduce_max", "reduce_mean", "reduce_sum", "root_scale", "rope", "prepend", "lstm_cell"),
    *("one_hot", "expert_places", "dispatch", "expert_linear", "combine_experts", "expert_balance"),
    *WITHOUT_NATIVE_CALL,
    *FUSED_BY_STATEMENTS,
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
    """The outputs of the native calls, in training mode."""
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
        case NativeString(text):
            return text


# ---------------------------------------------------------------------------------------------- element functions

POSITIVE = {"log", "sqrt", "rsqrt", "pow"}
FUNCTIONS = (
    *("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid", "softplus", "silu", "sin", "cos", "abs"),
    *("floor", "round"),
    *("maximum", "minimum", "relu", "pow"),
)
STEERED = {
    "stop": ((lambda x: x), {"x": 0}),
    "straight_through": ((lambda value, x: value), {"value": 0, "x": 1}),
    "reversed": ((lambda x, scale: x), {"x": lambda x, scale: -scale, "scale": 0}),
}
"""Functions whose declared gradient differs from that of their value, with both."""


def test_every_shipped_function_is_tested(library: Library) -> None:
    assert set(library.functions) == {*FUNCTIONS, *STEERED}


@pytest.mark.parametrize("name", STEERED)
def test_functions_with_surrogates_pass_back_what_is_declared(name: str, library: Library) -> None:
    function, (value, slopes) = library.functions[name], STEERED[name]
    at = points(function)
    applied = call(name, *map(Name, function.parameters))
    np.testing.assert_array_equal(pointwise(applied, function.parameters, at, library), value(*at))
    assert dict(function.derivatives).keys() == slopes.keys()
    for parameter, derivative in function.derivatives:
        slope = slopes[parameter]
        expected = slope(*at) if callable(slope) else np.full_like(at[0], slope)
        np.testing.assert_array_equal(pointwise(derivative, function.parameters, at, library), expected)


def pointwise(expr: Expr, parameters: tuple[str, ...], points: list[np.ndarray], library: Library) -> np.ndarray:
    """Evaluates a term of a function's parameters at points."""
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

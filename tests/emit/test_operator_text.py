"""Torch text of operators on one device: native call, equations and NumPy evaluation agree, gradients included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unity_dsl.emit.constant_text import ConstantsText
from unity_dsl.emit.conversion_text import Collectives
from unity_dsl.emit.operator_text import Place, operator_text
from unity_dsl.emit.program_names import Names
from unity_dsl.emit.templates import template
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.native_calls import changed_in_place
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.syntax.span import Source

from .planning import conversions_on

OWN = """
fn softsign(x) = x / (1 + abs(x))
  derivative x: 1 / ((1 + abs(x)) * (1 + abs(x)))

op strided(x: [d]) -> y: [e]
  where d == 2 * e
  y[i] = x[2 * i + 1]

op trace(x: [d, d]) -> y: []
  y[] = sum(i) x[i, i]

op outer_diagonal(x: [b, d, d]) -> y: [d, b]
  y[i, b] = x[b, i, i]

op reversed(x: [b.., d]) -> y: [b.., d]
  y[b.., i] = x[b.., |d| - 1 - i]

op halves(x: [d, b..]) -> y: [e, b..]
  where e == 2 * d
  y[i, b..] = x[i // 2, b..]

op filled(x: [d]; by = 2) -> y: [d]
  y[i] = x[i - by else 1.5]

op filled_by_index(x: [d]) -> y: [d]
  y[i] = x[i + 1 else i]

op far(x: [d]) -> y: [d]
  y[i] = x[i + 100 else -1]

op first(x: [d, e]) -> y: [e]
  y[j] = x[0, j] + x[|d| - 1, j]

op angles(x: [b.., s, e]) -> y: [b.., s, e]
  y[b.., s, e] = x[b.., s, e] * cos(s * exp(-(e / |e|))) + s // 2

op running(x: [b.., s]) -> y: [b.., s]
  y[b.., s] = sum(t) [t <= s] * x[b.., t]

op pick(ids: int<c>[n..], x: [n.., c]) -> y: [n..]
  y[n..] = sum(c) [ids[n..] == c] * x[n.., c] * x[n.., c] / 2

op pick_next(ids: int<v>[n..], w: [v, d]) -> y: [n.., d]
  y[n.., d] = sum(v) [v == ids[n..] + 1] * w[v, d]

op marked(ids: int<c>[n..], x: [c]) -> y: [n.., c]
  y[n.., c] = [c == ids[n..]] - 0 * x[c]

op before(x: [b.., s, c], w: [s]) -> y: [b.., s, c]
  y[b.., s, c] = sum(t) [s > t] * x[b.., t, c] * w[s]

op from_here(x: [b.., s], w: [k, s]) -> y: [s, b..]
  y[s, b..] = sum(t, k) [s <= t] * x[b.., t] * w[k, t] / 2

op after(x: [s, c]) -> y: [s, c]
  y[s, c] = sum(t) [t > s] * x[t, c]

op ranks(x: [b.., c]) -> y: int<n>[b.., c]
  where n == c + 1
  y[b.., c] = sum(d) [x[b.., d] * 2 > x[b.., c] + d / 4]

op histogram(ids: int<v>[b, n], x: [b, n, c], w: [v]) -> y: [v, c, b]
  y[v, c, b] = sum(n) [v == ids[b, n]] * x[b, n, c] * w[v]

op moved(ids: int<v>[n], x: [n, c]) -> y: [v, c]
  y[v, c] = sum(n) [ids[n] + 1 == v] * x[n, c]

op pick_apart(ids: int<c>[n], x: [m, c, n, d]) -> y: [n, m, d]
  y[n, m, d] = sum(c) [c == ids[n]] * x[m, c, n, d]

op pick_rows(ids: int<c>[n, k], other: int<d>[n], x: [d, m, c, e]) -> y: [m, n, k, e]
  y[m, n, k, e] = sum(c, d) [c == ids[n, k]] * [d == other[n]] * x[d, m, c, e]

op count(ids: int<v>[n], x: [v]) -> y: [v]
  y[v] = sum(n) [ids[n] == v] * x[v]

op extremes(x: [b.., c]) -> y: [b..], z: [b..], p: [b..]
  y[b..] = max(c) x[b.., c]
  z[b..] = min(c) x[b.., c] * 2
  p[b..] = prod(c) x[b.., c]

op first_of_equal(x: [b.., c, d]) -> y: [b..], z: [b.., c]
  y[b..] = max(d, c; ties = first) x[b.., c, d]
  z[b.., c] = min(d; ties = first) x[b.., c, d] * x[b.., c, d]

op variance(x: [b.., c]) -> y: [b..]
  y[b..] = (sum(c) x[b.., c] * x[b.., c]) / |c| - (sum(c) x[b.., c]) * (sum(c) x[b.., c]) / (|c| * |c|)

op bilinear(x: [b, i], w: [o, i, j], y: [b, j]) -> z: [b, o]
  z[b, o] = sum(i, j) x[b, i] * w[o, i, j] * y[b, j] / (2 * sqrt(|i|))

op distances(x: [b, d], y: [c, d]) -> z: [b, c]
  z[b, c] = sum(d) softsign(x[b, d] - y[c, d])

op spread(x: [b]; n = 3) -> y: [b, c]
  where c == n
  y[b, c] = x[b]

op ones_like(x: [b, c]) -> y: [b, c]
  y[b, c] = 1 + 0 * x[b, c] * x[b, c]

op weigh(x: [b, c], w: [k]) -> y: [b]
  y[b] = sum(c, k) x[b, c] + 0 * w[0]

op bounded(x: [b..]) -> y: [b..]
  y[b..] = minimum(maximum(x[b..], -1), 0.5)

op kink(x: [b..]) -> y: [b..]
  y[b..] = select(x[b..] > 0, x[b..], [x[b..] < -1] * 3)

op noise(x: [b.., c]) -> y: [b.., c]
  y[b.., c] = x[b.., c] + uniform[b.., c] * 2
  eval
    y[b.., c] = x[b.., c]
"""


@dataclass(frozen=True)
class Case:
    operator: str
    shapes: tuple[Any, ...]
    attributes: dict[str, float]
    binding: Binding | None = None

    def __str__(self) -> str:
        return f"{self.operator}{list(self.shapes)}"


def ids(bound: int, *shape: int) -> tuple[str, int, tuple[int, ...]]:
    return "int", bound, shape


def pattern(source: str, target: str, **sizes: int) -> Binding:
    def dims(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
        return tuple(
            tuple((name, sizes[name]) for name in part.replace("*", " ").split() if name != "1")
            for part in text.split(",") if part.strip()
        )  # fmt: skip

    return Binding(dims(source), dims(target))


ALONG = ((0, 5, (6, 4, 3)), (1, 4, (5, 2, 3)), (2, 3, (5, 4, 4)))
"""A dimension, its length, and a shape of positions in it."""

SHIPPED = [
    Case("linear", ((2, 3, 4), (5, 4)), {}),
    Case("linear_bias", ((2, 3, 4), (5, 4), (5,)), {}),
    Case("matmul", ((2, 3, 4), (2, 4, 5)), {}),
    Case("project", ((2, 4), (3, 5, 4)), {}),
    Case("embedding", (ids(7, 2, 3), (7, 4)), {}),
    Case("softmax", ((2, 3, 5),), {}),
    Case("layer_norm", ((2, 3, 5), (5,), (5,)), {"eps": 1e-3}),
    Case("batch_norm", ((4, 3, 2, 3), *[(3,)] * 4), {"eps": 1e-3, "momentum": 0.3}),
    Case("group_norm", ((2, 6, 2, 3), (6,), (6,)), {"groups": 3, "eps": 1e-3}),
    Case("mse", ((2, 3), (2, 3)), {}),
    Case("cross_entropy", ((2, 3, 5), ids(5, 2, 3)), {}),
    Case("concat", ((2, 3, 4), (2, 5, 4)), {"dim": 1}),
    Case("slice", ((2, 7, 4),), {"dim": -2, "start": 2, "stop": 5}),
    Case("add", ((2, 3), (3,)), {}),
    Case("sub", ((2, 1, 3), (4, 1)), {}),
    Case("mul", ((), (4, 2)), {}),
    Case("div", ((2, 3), (2, 3)), {}),
    Case("scale", ((2, 3),), {"factor": -0.5}),
    Case("shift", ((2, 3),), {"by": 1.5}),
    *(Case(name, ((3, 2),), {}) for name in ("relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "exp")),
    Case("silu", ((3, 2),), {}),
    Case("rms_norm", ((2, 3, 5), (5,)), {"eps": 1e-3}),
    Case("root_scale", ((3, 2, 4),), {}),
    Case("rope", ((2, 5, 6),), {"base": 500}),
    Case("full_attention", ((2, 6, 4, 3), (2, 2, 5, 3), (2, 2, 5, 2)), {}),
    Case("causal_attention", ((2, 6, 4, 3), (2, 2, 4, 3), (2, 2, 4, 2)), {}),
    Case("causal_attention", ((1, 2, 5, 3), (1, 2, 3, 3), (1, 2, 3, 2)), {}),
    Case("masked_attention", ((2, 6, 4, 3), (2, 2, 5, 3), (2, 2, 5, 2), ids(9, 2, 4, 5)), {}),
    Case("padded_attention", ((2, 6, 4, 3), (2, 2, 5, 3), (2, 2, 5, 2), ids(9, 2, 5)), {}),
    Case("causal_mask", ((2, 4, 4),), {}),
    Case("dropout", ((4, 3),), {"p": 0.3}),
    Case("rearrange", ((2, 12, 3),), {}, pattern("b, h*k, c", "b, h, c, k", b=2, h=3, k=4, c=3)),
    Case("rearrange", ((2, 3, 4),), {}, pattern("b, h, k", "b, k*h", b=2, h=3, k=4)),
    Case("rearrange", ((2, 1, 4),), {}, pattern("b, 1, k", "k, 1, b, 1", b=2, k=4)),
    Case("reduce_sum", ((2, 3, 4),), {}, pattern("b, h, k", "", b=2, h=3, k=4)),
    Case("reduce_mean", ((2, 3, 4),), {}, pattern("b, h, k", "k, b", b=2, h=3, k=4)),
    Case("reduce_max", ((2, 3, 4),), {}, pattern("b, h, k", "h", b=2, h=3, k=4)),
    *(Case("gather", ((5, 4, 3), ids(n, *shape)), {"dim": dim}) for dim, n, shape in ALONG),
    *(Case("scatter_add", ((5, 4, 3), ids(n, *shape), shape), {"dim": dim}) for dim, n, shape in ALONG),
    Case("one_hot", (ids(4, 2, 3),), {}),
    *(Case("cumsum", ((2, 3, 4),), {"dim": dim}) for dim in range(3)),
    Case("expert_places", (ids(3, 2, 5, 2),), {}),
    Case("dispatch", ((2, 5, 3), ids(3, 2, 5, 2), ids(10, 2, 5, 2)), {"capacity": 4}),
    Case("expert_linear", ((3, 2, 4, 5), (3, 6, 5)), {}),
    Case("combine_experts", ((3, 2, 4, 5), ids(3, 2, 6, 2), ids(12, 2, 6, 2), (2, 6, 2)), {}),
    Case("expert_balance", ((2, 5, 3), ids(3, 2, 5, 2)), {}),
]

OTHERS = [
    Case("conv2d", ((2, 3, 6, 5), (4, 3, 3, 3)), {"stride": 2, "pad_h": 1, "pad_w": 1}),
    Case("conv2d", ((1, 2, 4, 4), (3, 2, 2, 2)), {}),
    Case("strided", ((6,),), {}),
    Case("trace", ((3, 3),), {}),
    Case("outer_diagonal", ((2, 3, 3),), {}),
    Case("reversed", ((2, 3),), {}),
    Case("halves", ((3, 2),), {}),
    Case("filled", ((5,),), {"by": 2}),
    Case("filled", ((5,),), {"by": -2}),
    Case("filled_by_index", ((4,),), {}),
    Case("far", ((4,),), {}),
    Case("first", ((3, 4),), {}),
    Case("angles", ((2, 5, 3),), {}),
    Case("running", ((2, 4),), {}),
    Case("pick", (ids(4, 2, 3), (2, 3, 4)), {}),
    Case("pick_next", (ids(5, 3), (5, 2)), {}),
    Case("marked", (ids(4, 3), (4,)), {}),
    Case("count", (ids(4, 6), (4,)), {}),
    Case("before", ((2, 4, 3), (4,)), {}),
    Case("before", ((1, 2), (1,)), {}),
    Case("from_here", ((2, 4), (3, 4)), {}),
    Case("after", ((4, 3),), {}),
    Case("ranks", ((2, 5),), {}),
    Case("histogram", (ids(4, 2, 6), (2, 6, 3), (4,)), {}),
    Case("moved", (ids(4, 6), (6, 3)), {}),
    Case("pick_apart", (ids(4, 5), (2, 4, 5, 3)), {}),
    Case("pick_rows", (ids(4, 5, 2), ids(3, 5), (3, 2, 4, 3)), {}),
    Case("extremes", ((3, 4),), {}),
    Case("first_of_equal", ((2, 3, 4),), {}),
    Case("variance", ((3, 4),), {}),
    Case("bilinear", ((2, 3), (4, 3, 5), (2, 5)), {}),
    Case("distances", ((2, 3), (4, 3)), {}),
    Case("spread", ((4,),), {}),
    Case("ones_like", ((2, 3),), {}),
    Case("weigh", ((2, 3), (4,)), {}),
    Case("bounded", ((6,),), {}),
    Case("kink", ((6,),), {}),
    Case("noise", ((2, 3),), {}),
]

FUSED = [
    Case("rms_norm_linear", ((2, 3, 5), (5,), (4, 5)), {"eps": 1e-3}),
    Case("layer_norm_linear", ((2, 3, 5), (5,), (5,), (4, 5)), {"eps": 1e-3}),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of([*library_sources(), Source("own.uop", OWN)])


def build(case: Case, library: Library) -> tuple[Instance, TypedOperator, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes, inputs = [], []
    for shape in case.shapes:
        if shape and shape[0] == "int":
            shapes.append(Shape(shape[2], shape[1]))
            inputs.append(rng.integers(shape[1], size=shape[2]))
        else:
            shapes.append(Shape(shape))
            inputs.append(np.asarray(rng.standard_normal(shape)))
    instance = instantiate(library.operators[case.operator], shapes, case.attributes, binding=case.binding)
    typed = type_operator(instance, (), Mesh(()), library)
    assert isinstance(typed, TypedOperator)
    return instance, typed, inputs


class State:
    """The attributes of `self` that the text reads."""

    counters, device = (7, 3), "cpu"

    def __init__(self, training: bool, constants: object) -> None:
        import torch

        self.training, self.dtype, self.constants = training, torch.float64, constants


def text_of(
    instance: Instance, typed: TypedOperator, library: Library, constants: ConstantsText | None = None
) -> list[str]:
    # Without a native call, slices have none either.
    instance = replace(instance, native=instance.native and typed.native)
    mesh = Mesh(())
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    place = Place(Names(), mesh, library, collectives, "self", site="2", constants=constants)
    arguments = [f"arg{i}" for i in range(len(instance.inputs))]
    return operator_text(instance, typed, arguments, [f"result{i}" for i in range(len(instance.outputs))], place)


def counted(position: Any, seed: int, step: int, site: int) -> Any:
    return uniform(position.numpy(), seed, step, site)


def run(
    lines: Sequence[str],
    inputs: Sequence[Any],
    outputs: int,
    training: bool,
    draw: Callable[..., Any] = counted,
    constants: object = None,
) -> list[Any]:
    """Executes a text and returns its results; `draw` gives its random numbers."""
    import torch
    import torch.nn.functional

    names: dict[str, Any] = {f"arg{i}": tensor for i, tensor in enumerate(inputs)}
    names |= {"torch": torch, "F": torch.nn.functional, "self": State(training, constants)}
    names["uniform"] = lambda *counters: torch.from_numpy(draw(*counters))
    names["at_least"] = lambda bound, *counters: torch.from_numpy(np.asarray(draw(*counters) >= bound, np.int32))
    names["places"] = lambda x: (
        torch.arange(0, x.numel(), x.size(-1), dtype=torch.int32)[:, None] + torch.arange(x.size(-1), dtype=torch.int32)
    ).view(x.shape)
    names["Tensor"] = torch.Tensor
    exec(compile(template("surrogate.py.j2").render(), "surrogate", "exec"), names)
    exec(compile("\n".join(lines), "operator", "exec"), names)
    return [names[f"result{i}"] for i in range(outputs)]


def constants_of(text: ConstantsText, dtype: Any) -> object:
    """An object that holds a program's constants, in a float type."""
    import torch

    held = SimpleNamespace()
    model = SimpleNamespace(dtype=dtype, device="cpu")
    exec(compile("\n".join(text.lines), "constants", "exec"), {"torch": torch, "self": held, "model": model})
    return held


def tensors(inputs: Sequence[np.ndarray]) -> list[Any]:
    import torch

    found = [torch.from_numpy(array.copy()) for array in inputs]
    return [tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in found]


@pytest.mark.parametrize("case", [*SHIPPED, *OTHERS, *FUSED], ids=str)
def test_text_equals_numpy(case: Case, library: Library) -> None:
    import torch

    instance, typed, inputs = build(case, library)
    for native in {typed.native, False}:
        held = ConstantsText()
        lines = text_of(instance, replace(typed, native=native), library, held)
        constants = constants_of(held, torch.float64)
        for training in (True, False):
            expected = evaluate(
                instance, inputs, library, training=training, uniform=lambda _, position: uniform(position, 7, 3, 2)
            )
            found = run(lines, tensors(inputs), len(expected), training, constants=constants)
            for value, wanted in zip(found, expected, strict=True):
                assert value.dtype.is_floating_point == (wanted.dtype.kind == "f") and value.dtype.itemsize == 8
                np.testing.assert_allclose(value.detach().numpy(), wanted, atol=1e-12, err_msg="\n".join(lines))


WITHOUT_NATIVE_CALL = {
    "gelu_tanh", "root_scale", "causal_mask", "dropout", "project", "rearrange",
    "reduce_sum", "reduce_mean", "reduce_max", "rope", "one_hot", "expert_places", "dispatch", "expert_linear",
    "combine_experts", "expert_balance",
}  # fmt: skip


@pytest.mark.parametrize("case", [case for case in SHIPPED if case.operator not in WITHOUT_NATIVE_CALL], ids=str)
def test_equations_have_the_gradient_of_the_native_call(case: Case, library: Library) -> None:
    """torch differentiates the sum of squares of the results through both texts.

    An operand that a native call changes in place has no gradient. Such a call is run only without gradients.
    """
    instance, typed, inputs = build(case, library)
    assert typed.native
    gradients = []
    for native in (True, False):
        given = tensors(inputs)
        found = run(text_of(instance, replace(typed, native=native), library), given, len(instance.outputs), True)
        changed = changed_in_place(instance.operator.torch)
        kept = [value for value, output in zip(found, instance.outputs, strict=True) if output.name not in changed]
        finite = [value.masked_fill(value.isinf(), 0) for value in kept]
        sum((value * value).sum() for value in finite).backward()
        gradients.append([tensor.grad for tensor in given if tensor.is_floating_point() and tensor.grad is not None])
    for left, right in zip(*gradients, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), atol=1e-12)


def text(case: Case, library: Library) -> str:
    instance, typed, _ = build(case, library)
    return "\n".join(text_of(instance, replace(typed, native=False), library))


def test_text_is_what_a_person_would_write(library: Library) -> None:
    by_name = {case.operator: case for case in reversed([*SHIPPED, *OTHERS])}
    assert text(by_name["linear"], library) == 'result0 = torch.einsum("bai,oi->bao", arg0, arg1)'
    assert text(FUSED[0], library).endswith("F.linear(arg0 * result0_r[..., None] * arg1, arg2)")
    assert text(by_name["embedding"], library) == "result0 = arg1[arg0]"
    assert text(by_name["slice"], library) == "result0 = arg0[:, 2:5]"
    assert text(by_name["concat"], library) == "result0 = F.pad(arg0, (0, 0, 0, 5)) + F.pad(arg1, (0, 0, 3, 0))"
    assert text(by_name["rearrange"], library) == "result0 = arg0.unflatten(1, (3, 4)).transpose(-2, -1)"
    assert text(by_name["reduce_mean"], library) == "result0 = arg0.sum(1).transpose(-2, -1) / 3"
    assert text(by_name["strided"], library) == "result0 = arg0[1::2]"


def test_what_cancels_carries_no_gradient(library: Library) -> None:
    softmax = next(case for case in SHIPPED if case.operator == "softmax")
    assert "arg0.detach().amax(-1)" in text(softmax, library)


def test_numbers_in_the_text_are_in_the_type_of_the_tensors(library: Library) -> None:
    """0.1 is another number in float32. Positions and brackets must not bring float32 into a float64 program."""
    import torch

    torch.set_default_dtype(torch.float32)
    for case in OTHERS:
        instance, typed, inputs = build(case, library)
        found = run(text_of(instance, typed, library), tensors(inputs), len(instance.outputs), True)
        assert all(value.dtype in (torch.float64, torch.int64) for value in found), case


def test_positions_are_told_apart_in_bfloat16(library: Library) -> None:
    """Above 256 bfloat16 cannot represent every position. Angles are therefore computed in float32 and rounded last."""
    import torch

    case = Case("rope", ((1, 4096, 4),), {"base": 500000})
    instance, typed, inputs = build(case, library)
    (expected,) = evaluate(instance, inputs, library)
    lines = text_of(instance, typed, library)
    (found,) = run(lines, [torch.from_numpy(inputs[0]).bfloat16()], 1, True)
    assert found.dtype is torch.bfloat16
    np.testing.assert_allclose(found.double().numpy(), expected, atol=0.05)

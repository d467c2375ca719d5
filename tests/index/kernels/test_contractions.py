"""Which parts of an instance are a matrix product with a prologue and an epilogue, and which are other kernels."""

from __future__ import annotations

import pytest

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.equations.term import reads
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.backward import backward_instance
from unity_dsl.index.kernels.contractions import contraction_steps, products_of
from unity_dsl.index.kernels.fusion import fuse
from unity_dsl.index.kernels.kernel_steps import kernel_steps
from unity_dsl.index.kernels.product_kernels import ProductKernel
from unity_dsl.index.kernels.row_kernels import RowKernel
from unity_dsl.index.kernels.step_schedule import Contraction, Step
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import Read

from .test_product_kernels import attention, call


def dense(library: Library, *after: str, before: str = "", sizes: tuple[int, int, int] = (6, 7, 5)) -> Instance:
    """`linear` of x[2, m, k] and w[n, k] with unary operators before and after it; `add` adds another tensor."""
    m, k, n = sizes
    parts = [call(library, before, ("x",), "x'", (2, m, k))] if before else []
    parts.append(call(library, "linear", ("x'" if before else "x", "w"), "y0", (2, m, k), (n, k)))
    for number, name in enumerate(after):
        reads = (f"y{number}", "r")[: 1 + (name == "add")]
        parts.append(call(library, name, reads, f"y{number + 1}", *[(2, m, n)] * len(reads)))
    found = fuse(parts, {f"y{len(after)}"})
    assert found is not None
    return found.instance


def contraction(step: Step) -> Contraction:
    assert isinstance(step.kernel, Contraction)
    return step.kernel


def test_a_linear_map_has_rows_columns_and_what_is_summed(library: Library) -> None:
    (step,) = contraction_steps(dense(library, "gelu", "add", before="relu")) or ()
    found = contraction(step)
    assert (found.batch, found.rows, found.columns, found.inner) == ((), ("b0", "b1"), ("o",), ("b2",))
    assert isinstance(found.left, Read) and isinstance(found.right, Read)
    assert (step.prologue, step.epilogue) == ((found.left.tensor,), ("y_2", "z"))
    assert found.stored == ("z",) and found.product not in found.stored
    assert [operand.name for operand in step.loaded] == ["w", "x", "y_3"]


def test_a_batched_product_has_the_axes_of_both_operands_as_batch(library: Library) -> None:
    product = call(library, "matmul", ("x", "w"), "y", (2, 3, 4, 5), (2, 3, 5, 6))
    fused = fuse([product, call(library, "tanh", ("y",), "z", (2, 3, 4, 6))], {"z"})
    assert fused is not None
    (step,) = contraction_steps(fused.instance) or ()
    found = contraction(step)
    assert (found.batch, found.rows, found.columns, found.inner) == (("b0", "b1"), ("m",), ("n",), ("k",))


def test_experts_are_a_batch(library: Library) -> None:
    product = call(library, "expert_linear", ("x", "w"), "y", (4, 2, 3, 5), (4, 6, 5))
    fused = fuse([product, call(library, "silu", ("y",), "z", (4, 2, 3, 6))], {"z"})
    assert fused is not None
    (step,) = contraction_steps(fused.instance) or ()
    found = contraction(step)
    assert (found.batch, found.rows, found.columns) == (("e",), ("b0", "b1"), ("o",))


def test_columns_have_the_last_axis_of_the_result(library: Library) -> None:
    """Adjacent elements in memory are adjacent columns, whichever operand comes first."""
    backward = gradient(dense(library, "gelu"), library)
    steps = contraction_steps(backward) or ()
    assert len(steps) == 2
    for found in map(contraction, steps):
        assert backward.operand(found.product).axes[-1] in found.columns


def gradient(instance: Instance, library: Library) -> Instance:
    """The backward instance of both operands, given the saved products."""
    return backward_instance(instance, library, (0, 1), products_of(instance))


def test_a_gradient_is_two_products_with_the_derivative_in_their_prologue(library: Library) -> None:
    steps = contraction_steps(gradient(dense(library, "gelu"), library)) or ()
    first, second = map(contraction, steps)
    assert (first.rows, first.inner) == (("b0", "b1"), ("o",))
    assert (second.rows, second.columns, second.inner) == (("o",), ("i",), ("b0", "b1"))
    assert all("d_y" in step.prologue[-1] for step in steps) and not any(step.epilogue for step in steps)


def test_the_gradient_of_a_prologue_is_an_epilogue(library: Library) -> None:
    instance = dense(library, before="gelu")
    first, second = contraction_steps(gradient(instance, library)) or ()
    assert first.epilogue and not first.prologue and contraction(first).stored == ("d_x",)
    assert second.prologue and not second.epilogue


def test_a_bias_is_summed_by_a_kernel_of_rows(library: Library) -> None:
    bias = call(library, "linear_bias", ("x", "w", "b"), "y", (2, 6, 7), (5, 7), (5,))
    fused = fuse([bias, call(library, "relu", ("y",), "z", (2, 6, 5))], {"z"})
    assert fused is not None
    backward = backward_instance(fused.instance, library, (0, 1, 2), products_of(fused.instance))
    kinds = [type(step.kernel) for step in contraction_steps(backward) or ()]
    assert kinds == [RowKernel, Contraction, Contraction]


@pytest.mark.parametrize("count", [1, 2])
def test_operands_of_the_vendor_s_products_are_made_once(count: int, library: Library) -> None:
    backward = gradient(dense(library, "gelu"), library)
    vendor = products_of(backward)[:count]
    before, *products = contraction_steps(backward, vendor) or ()
    assert isinstance(before.kernel, RowKernel) and len(before.kernel.stored) == 1
    for step in products:
        found = contraction(step)
        assert found.vendor == (found.product in vendor)
        # A value in memory is not recomputed.
        assert before.kernel.stored[0] in {operand.name for operand in step.loaded} and not step.prologue


def test_what_is_reduced_behind_a_product_is_another_kernel(library: Library) -> None:
    product, rows = contraction_steps(dense(library, "relu", "softmax")) or ()
    assert isinstance(product.kernel, Contraction) and isinstance(rows.kernel, RowKernel)


def test_attention_is_no_contraction(library: Library) -> None:
    (step,) = kernel_steps(attention(library, "softmax")) or ()
    assert isinstance(step.kernel, ProductKernel)
    assert contraction_steps(attention(library, "relu")) is None  # a product of a product


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("op f(x: [m, k], w: [k, n]) -> y: [m, n]\n  y[m, n] = max(k) x[m, k] * w[k, n]", [(4, 5), (5, 6)]),
        ("op f(x: [c, l], w: [o, c]) -> y: [o, q]\n  where q == 2 * l\n  y[o, q] = sum(c) x[c, q // 2] * w[o, c]",
         [(5, 4), (6, 5)]),
        ("op f(x: [k], w: [k]) -> y: []\n  y[] = sum(k) x[k] * w[k]", [(4,), (4,)]),
        ("op f(x: [m, k, n], w: [m, n]) -> y: [m, n]\n  y[m, n] = sum(k) x[m, k, n] * w[m, n]", [(4, 5, 6), (4, 6)]),
        ("op f(x: [m, k], w: [k, n], z: [m, n]) -> y: [m, n]\n"
         "  y[m, n] = sum(k) x[m, k] * w[k, n] * tanh(z[m, n] * x[m, k])",
         [(4, 5), (5, 6), (4, 6)]),
    ],
    ids=["maximum", "positions that are no sum", "inner product", "row sum", "factor of both"],
)  # fmt: skip
def test_other_sums_are_no_contractions(text: str, shapes: list[tuple[int, ...]]) -> None:
    operator = library_with(text).operators["f"]
    assert contraction_steps(instantiate(operator, [Shape(shape) for shape in shapes], {})) is None


CONVOLUTION = "op f(x: [c, l], w: [o, c, r]) -> y: [o, l]\n  y[o, l] = sum(c, r) {} * w[o, c, r]\n"


def test_a_convolution_is_a_product_of_kernels_and_windows() -> None:
    text = CONVOLUTION.format("x[c, l + r else 0]")
    instance = instantiate(library_with(text).operators["f"], [Shape((5, 4)), Shape((6, 5, 3))], {})
    (step,) = contraction_steps(instance) or ()
    found = contraction(step)
    assert (found.rows, found.columns, found.inner, found.windowed) == (("o",), ("l",), ("c", "r"), ("x",))


def test_what_is_read_in_windows_is_made_before() -> None:
    text = CONVOLUTION.format("h[c, l + r else 0]").replace("  y", "  h[c, l] = tanh(x[c, l])\n  y")
    instance = instantiate(library_with(text).operators["f"], [Shape((5, 4)), Shape((6, 5, 3))], {})
    before, step = contraction_steps(instance) or ()
    assert before.kernel.stored == contraction(step).windowed == ("h",) and not step.prologue


def test_several_factors_go_to_the_side_whose_axes_they_have() -> None:
    text = """op scaled(x: [m, k], a: [k], r: [m], w: [k, n], c: [n]) -> y: [m, n]
  y[m, n] = sum(k) x[m, k] * a[k] * r[m] * w[k, n] * c[n] / 2
"""
    shapes = [Shape(shape) for shape in [(4, 5), (5,), (4,), (5, 6), (6,)]]
    (step,) = contraction_steps(instantiate(library_with(text).operators["scaled"], shapes, {})) or ()
    found = contraction(step)
    assert {read.tensor for read in reads(found.left)} == {"x", "a", "r"}
    assert {read.tensor for read in reads(found.right)} == {"w", "c"}

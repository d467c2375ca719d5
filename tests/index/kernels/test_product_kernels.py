"""How attention, and what only looks like it, is scheduled."""

from __future__ import annotations

import pytest

from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.backward import backward_instance
from unity_dsl.index.kernels.fusion import Applied, fuse
from unity_dsl.index.kernels.live_columns import Live
from unity_dsl.index.kernels.product_kernels import product_kernels, statistics
from unity_dsl.index.library import Library


def attention(library: Library, *between: str, sizes: tuple[int, int, int] = (6, 7, 8)) -> Instance:
    """Products with operators between them, as one instance."""
    s, t, k = sizes
    scores = (2, 3, s, t)
    parts = [call(library, "matmul", ("q", "k"), "x0", (2, 3, s, k), (2, 3, k, t))]
    for number, name in enumerate(between):
        parts.append(call(library, name, (f"x{number}",), f"x{number + 1}", scores))
    parts.append(call(library, "matmul", (f"x{len(between)}", "v"), "y", scores, (2, 3, t, k)))
    found = fuse(parts, {"y"})
    assert found is not None
    return found.instance


def call(library: Library, name: str, reads: tuple[str, ...], makes: str, *shapes: tuple[int, ...]) -> Applied:
    instance = instantiate(library.operators[name], [Shape(shape) for shape in shapes], {})
    return Applied(instance, reads, (makes,))


def test_attention_forwards_is_one_loop_over_the_keys(library: Library) -> None:
    (kernel,) = product_kernels(attention(library, "softmax", "dropout")) or ()
    assert (len(kernel.batch), len(kernel.rows), len(kernel.columns)) == (2, 1, 1)
    (found,) = kernel.passes
    maximum, total, mixed = found.targets
    assert found.extremum == maximum
    assert found.scales == ((total, -1), (mixed, -1)) and found.divided == ((mixed, total),)
    assert kernel.stored == kernel.mixed == (mixed,)


def test_attention_backwards_is_a_kernel_of_queries_and_one_of_keys(library: Library) -> None:
    instance = attention(library, "softmax")
    kept = statistics(product_kernels(instance) or (), instance)
    assert len(kept) == 2
    backward = backward_instance(instance, library, (0, 1, 2), [operand.name for operand in kept])
    queries, keys = product_kernels(backward) or ()
    assert (queries.rows, queries.columns) == (keys.columns, keys.rows)
    assert [len(found.targets) for found in queries.passes] == [1, 1] and len(queries.mixed) == 1
    assert [len(found.targets) for found in keys.passes] == [2] and len(keys.mixed) == 2


@pytest.mark.parametrize(("between", "live"), [(("causal_mask", "softmax"), Live.UP_TO_ROW), (("softmax",), Live.ALL)])
def test_keys_that_a_mask_leaves_out_are_not_looked_at(between: tuple[str, ...], live: Live, library: Library) -> None:
    instance = attention(library, *between)
    (kernel,) = product_kernels(instance) or ()
    assert kernel.live is live
    *_, keys = product_kernels(backward_instance(instance, library, (0, 1, 2))) or ()
    assert keys.live is (Live.ALL if live is Live.ALL else Live.FROM_ROW)


def test_a_mask_after_the_softmax_leaves_nothing_out_of_its_sum(library: Library) -> None:
    """What is masked counts in the sum of exponentials, though not in the result."""
    found = product_kernels(attention(library, "softmax", "causal_mask"))
    assert found is None or all(kernel.live is Live.ALL for kernel in found)


@pytest.mark.parametrize("between", [("relu",), ("gelu_tanh",), ()])
def test_products_without_a_statistic_of_rows_are_none_of_these(between: tuple[str, ...], library: Library) -> None:
    assert product_kernels(attention(library, *between)) is None


def test_heads_too_wide_to_be_held_are_none_of_these(library: Library) -> None:
    assert product_kernels(attention(library, "softmax", sizes=(6, 7, 257))) is None
    assert product_kernels(attention(library, "softmax", sizes=(6, 7, 256))) is not None

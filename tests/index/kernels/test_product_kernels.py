"""How attention is scheduled, and what only resembles attention."""

from __future__ import annotations

import pytest

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.backward import backward_instance
from unity_dsl.index.kernels.fusion import Applied, fuse
from unity_dsl.index.kernels.live_columns import ALL, Live
from unity_dsl.index.kernels.product_kernels import product_kernels, statistics
from unity_dsl.index.library import Library


def attention(library: Library, *between: str, sizes: tuple[int, int, int] = (6, 7, 8)) -> Instance:
    """Two matrix products with operators between them, as one instance."""
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


UP_TO_ROW, FROM_ROW = Live(last=0), Live(first=0)


@pytest.mark.parametrize(("between", "live"), [(("causal_mask", "softmax"), UP_TO_ROW), (("softmax",), ALL)])
def test_keys_that_a_mask_leaves_out_are_not_looked_at(between: tuple[str, ...], live: Live, library: Library) -> None:
    instance = attention(library, *between)
    (kernel,) = product_kernels(instance) or ()
    assert kernel.live == live
    *_, keys = product_kernels(backward_instance(instance, library, (0, 1, 2))) or ()
    assert keys.live == (ALL if live == ALL else FROM_ROW)


WINDOW = """
## Attention to keys around a query.
op around(q: [b, s, k], key: [b, t, k], value: [b, t, v]) -> y: [b, s, v]
  d[b, s, t] = sum(k) q[b, s, k] * key[b, t, k]
  c[b, s, t] = select({}, d[b, s, t], -inf)
  x[b, s, t] = select({}, c[b, s, t], -inf)
  m[b, s] = max(t) x[b, s, t]
  e[b, s, t] = exp(x[b, s, t] - m[b, s])
  z[b, s] = sum(t) e[b, s, t]
  p[b, s, t] = e[b, s, t] / z[b, s]
  y[b, s, v] = sum(t) p[b, s, t] * value[b, t, v]
"""


@pytest.mark.parametrize(
    ("first", "second", "live"),
    [
        ("t <= s", "s - t < 4", Live(-3, 0)),
        ("t < s + 3", "s <= t + 5", Live(-5, 2)),
        ("t >= s - 2", "t >= s - 1", Live(first=-1)),
        ("s > t", "t < s - 2", Live(last=-3)),
        ("2 * t <= s", "t + s < 4", ALL),
        ("t <= s + |t| - |s|", "t >= 2", Live(last=1)),
    ],
)
def test_windows_are_bounded_on_both_sides(first: str, second: str, live: Live) -> None:
    """The bounds limit differences of positions. In a backward pass, columns and rows are exchanged."""
    declared = library_with(WINDOW.format(first, second))
    instance = instantiate(declared.operators["around"], [Shape((2, 6, 8)), Shape((2, 7, 8)), Shape((2, 7, 8))], {})
    (kernel,) = product_kernels(instance) or ()
    assert kernel.live == live
    kept = [operand.name for operand in statistics((kernel,), instance)]
    *_, keys = product_kernels(backward_instance(instance, declared, (0, 1, 2), kept)) or ()
    turned = [None if end is None else -end for end in (live.last, live.first)]
    assert keys.live == Live(*turned)


@pytest.mark.parametrize("live", [ALL, Live(last=0), Live(-2, 1), Live(first=3), Live(last=-6)])
def test_the_part_of_pairs_that_counts(live: Live) -> None:
    pairs = [(row, column) for row in range(5) for column in range(9)]
    first, last = live.first if live.first is not None else -99, live.last if live.last is not None else 99
    assert live.part(5, 9) == sum(first <= column - row <= last for row, column in pairs) / len(pairs)


def test_a_mask_after_the_softmax_leaves_nothing_out_of_its_sum(library: Library) -> None:
    """A masked value still counts in the sum of exponentials, though not in the result."""
    found = product_kernels(attention(library, "softmax", "causal_mask"))
    assert found is None or all(kernel.live == ALL for kernel in found)


@pytest.mark.parametrize("between", [("relu",), ("gelu_tanh",), ()])
def test_products_without_a_statistic_of_rows_are_none_of_these(between: tuple[str, ...], library: Library) -> None:
    assert product_kernels(attention(library, *between)) is None


def test_heads_too_wide_to_be_held_are_none_of_these(library: Library) -> None:
    assert product_kernels(attention(library, "softmax", sizes=(6, 7, 257))) is None
    assert product_kernels(attention(library, "softmax", sizes=(6, 7, 256))) is not None

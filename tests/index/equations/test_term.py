"""Terms: traversal, substitution, affine forms, intervals, merged dimensions; against enumeration where they count."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.index.equations.term import (
    affine,
    call,
    dim_axes,
    dim_index,
    free_axes,
    interval,
    reads,
    substitute,
    walk,
)
from unity_dsl.syntax.ast import Expr, Name, Number, Read, Reduce, ReductionKind, Size

AXES = ("h", "i", "k")

numbers = st.integers(-4, 4).map(Number)
leaves = numbers | st.sampled_from(AXES).map(Name) | st.sampled_from(AXES).map(Size)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    binary = st.builds(call, st.sampled_from(["+", "-", "*"]), inner, inner)
    divided = st.builds(call, st.sampled_from(["//", "%"]), inner, st.integers(1, 5).map(Number))
    return binary | divided | st.builds(call, st.just("neg"), inner)


terms = st.recursive(leaves, grow, max_leaves=8)
all_sizes = st.fixed_dictionaries({axis: st.integers(1, 4) for axis in AXES})


def value(expr: Expr, at: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """The value of an index expression by Python's own arithmetic."""
    match expr:
        case Number(number):
            return int(number)
        case Size(name):
            return sizes[name]
        case Name(name):
            return at[name]
    a, *rest = (value(argument, at, sizes) for argument in expr.arguments)
    match expr.function:
        case "+":
            return a + rest[0]
        case "-":
            return a - rest[0]
        case "*":
            return a * rest[0]
        case "//":
            return a // rest[0]
        case "%":
            return a % rest[0]
    return -a


def positions(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    return [dict(zip(sizes, at, strict=True)) for at in itertools.product(*(range(size) for size in sizes.values()))]


@given(terms, all_sizes)
def test_an_interval_holds_every_value(term: Expr, sizes: dict[str, int]) -> None:
    low, high = interval(term, sizes)
    assert all(low <= value(term, at, sizes) <= high for at in positions(sizes))


@given(terms, all_sizes)
def test_an_affine_form_is_the_term_and_its_interval_is_attained(term: Expr, sizes: dict[str, int]) -> None:
    form = affine(term, sizes)
    if form is None:
        return
    values = [value(term, at, sizes) for at in positions(sizes)]
    linear = [form.constant + sum(c * at[axis] for axis, c in form.coefficients.items()) for at in positions(sizes)]
    assert values == linear
    if not any(node.function in ("//", "%") for node in walk(term) if hasattr(node, "function")):
        assert interval(term, sizes) == (min(values), max(values))


@given(st.permutations(AXES), st.integers(0, 3), all_sizes)
def test_a_merged_index_is_recognised(order: list[str], count: int, sizes: dict[str, int]) -> None:
    dim = tuple(order[:count])
    index = dim_index(dim)
    found = dim_axes(index, sizes)
    # Axes of size 1 affect no position, so their order within the dimension means nothing.
    assert found is not None
    assert [axis for axis in found if sizes[axis] > 1] == [axis for axis in dim if sizes[axis] > 1]
    assert set(found) == set(dim)
    here = positions({axis: sizes[axis] for axis in dim})
    assert [value(index, at, sizes) for at in here] == list(range(len(here)))


def test_windows_offsets_strides_and_reversals_are_no_merged_index() -> None:
    sizes = {"h": 3, "i": 4, "k": 2}
    i, k = Name("i"), Name("k")
    for index in (
        call("+", i, Number(1)),
        call("+", i, k),
        call("*", i, Number(2)),
        call("-", call("-", Size("i"), Number(1)), i),
        call("+", call("*", i, Number(3)), k),
        call("//", i, Number(2)),
    ):
        assert dim_axes(index, sizes) is None


def test_a_literal_stride_is_a_merged_index() -> None:
    sizes = {"h": 3, "k": 2}
    assert dim_axes(call("+", Name("k"), call("*", Number(2), Name("h"))), sizes) == ("h", "k")


def test_substitution_is_shielded_by_reductions_and_captures_nothing() -> None:
    body = call("*", Read("x", (Name("i"), Name("j"))), Name("i"))
    total = Reduce(ReductionKind.SUM, (Name("i"),), body)
    assert substitute(total, {"i": Number(0)}) == total
    moved = substitute(total, {"j": call("+", Name("i"), Number(1))})
    assert isinstance(moved, Reduce)
    (bound,) = moved.axes
    assert bound.name != "i"
    assert free_axes(moved) == ("i",)
    (read,) = reads(moved)
    assert read.index == (bound, call("+", Name("i"), Number(1)))


def test_free_axes_are_in_order_and_unbound() -> None:
    inner = Reduce(ReductionKind.MAX, (Name("b"),), Read("x", (Name("c"), Name("b"))))
    assert free_axes(call("+", Name("b"), call("*", inner, Name("a")))) == ("b", "c", "a")

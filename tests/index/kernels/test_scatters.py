"""Which instances are scatter-adds (sums into rows that data choose), and what is computed before and after these."""

from __future__ import annotations

import pytest

from tests.graph.overlapping import library_with
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.equations.term import reads
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.backward import backward_instance
from unity_dsl.index.kernels.kernel_steps import kernel_steps
from unity_dsl.index.kernels.row_kernels import RowKernel
from unity_dsl.index.kernels.scatters import scatter_steps
from unity_dsl.index.kernels.step_schedule import Scatter, Step
from unity_dsl.index.library import Library

OPERATORS = """
## What users have of each thing, relative to the mean of all users.
op relative(x: [n, d], user: int<u>[n]) -> y: [u, d]
  s[u, d] = sum(n) [u == user[n]] * x[n, d]
  m[d] = sum(u) s[u, d] / |u|
  y[u, d] = s[u, d] - m[d]

## What users have of each thing, a column for each user.
op across(x: [n, d], user: int<u>[n]) -> y: [d, u]
  y[d, u] = sum(n) [u == user[n]] * x[n, d]

## What was seen of each pair.
op pairs(x: [n], a: int<u>[n], b: int<v>[n]) -> y: [u, v]
  y[u, v] = sum(n) [u == a[n]] * [v == b[n]] * x[n]

## A product of matrices for each user.
op crossed(x: [n, d], z: [n, e], user: int<u>[n]) -> y: [u, d, e]
  y[u, d, e] = sum(n) [u == user[n]] * x[n, d] * z[n, e]

## What users have in each of several groups.
op grouped(x: [g, n, d], user: int<u>[g, n]) -> y: [g, u, d]
  y[g, u, d] = sum(n) [u == user[g, n]] * x[g, n, d]

## The rows of each user, every position twice as far.
op stretched(x: [n, d], user: int<u>[n]) -> y: [u, e]
  where e == 2 * d
  y[u, e] = sum(n, d) [u == user[n]] * [2 * d == e] * x[n, d]

## Users of whom only the first count.
op first_users(x: [n], user: int<v>[n], shown: [u]) -> y: [u]
  y[u] = sum(n) [u == user[n]] * x[n] * shown[u]
"""


@pytest.fixture(scope="module")
def declared() -> Library:
    return library_with(OPERATORS)


def scatter(step: Step) -> Scatter:
    assert isinstance(step.kernel, Scatter)
    return step.kernel


def gradient(library: Library, name: str) -> Instance:
    instance = instantiate(library.operators[name], [Shape((2, 5), 7), Shape((7, 3))], {})
    return backward_instance(instance, library, (1,))


@pytest.mark.parametrize("name", ["embedding", "embedding_bag"])
def test_the_gradient_of_a_table_has_an_entry_for_each_look_up(name: str, library: Library) -> None:
    (step,) = kernel_steps(gradient(library, name)) or ()
    found = scatter(step)
    assert (found.target, found.keys.tensor, found.batch, len(found.entries)) == ("d_w", "ids", (), 2)
    assert (found.rows, found.columns) == (("v",), ("d",))
    assert [read.tensor for read in reads(found.value)] == ["d_y"]
    assert [operand.name for operand in step.loaded] == ["d_y"]


def test_keys_that_are_kept_count_rows_anew(declared: Library) -> None:
    instance = instantiate(declared.operators["grouped"], [Shape((2, 5, 3)), Shape((2, 5), 7)], {})
    (step,) = scatter_steps(instance) or ()
    found = scatter(step)
    assert (found.batch, found.rows, found.entries, found.columns) == (("g",), ("g", "u"), ("g", "n"), ("d",))


def test_what_is_made_of_sums_is_made_after_them(declared: Library) -> None:
    instance = instantiate(declared.operators["relative"], [Shape((9, 3)), Shape((9,), 4)], {})
    first, *others = scatter_steps(instance) or ()
    assert scatter(first).target == "s"
    assert others and all(isinstance(step.kernel, RowKernel) for step in others)
    assert others[-1].kernel.stored == ("y",)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("across", [Shape((9, 3)), Shape((9,), 4)]),
        ("pairs", [Shape((9,)), Shape((9,), 4), Shape((9,), 5)]),
        ("crossed", [Shape((9, 3)), Shape((9, 2)), Shape((9,), 4)]),
        ("stretched", [Shape((9, 3)), Shape((9,), 4)]),
        ("first_users", [Shape((9,)), Shape((9,), 4), Shape((3,))]),
    ],
)
def test_others_are_none(name: str, shapes: list[Shape], declared: Library) -> None:
    assert scatter_steps(instantiate(declared.operators[name], shapes, {})) is None

"""Typing of operators with dimensions that a user's own op partitions: windows for neighbourhood reads,
and minor axes.
"""

from __future__ import annotations

import tracemalloc
from itertools import product

import pytest

from unity_dsl.graph.declared_slices import bijective, cut_indices, free_attributes, linear_span
from unity_dsl.graph.halo import halo_window, is_halo_op, merged_attributes, window_attributes
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, Linearly, TypedOperator, Uniformly, type_operator
from unity_dsl.index.axes.axis_windows import Reach
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate

from .overlapping import CYCLIC, HALO, STRIDED, library_with

OPERATORS = """
op conv1d(x: [n, c, l], w: [o, c, r]; stride = 1, pad = 0) -> y: [n, o, q]
  where q == (l + 2 * pad - r) // stride + 1
  y[n, o, q] = sum(c, r) x[n, c, q * stride + r - pad else 0] * w[o, c, r]

op blur(x: [b.., l], w: [l]) -> y: [b.., l]
  y[b.., i] = x[b.., i - 1 else 1] * w[i] + x[b.., i]

op deviation(x: [b.., l]) -> y: [b.., l]
  m[b..] = sum(l) x[b.., l] * x[b.., l - 1 else 0]
  y[b.., i] = x[b.., i - 1 else 0] - m[b..]
"""
SHUFFLED = """
parallel mirrored[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., |d| - 1 - @p * |e| - j, g..]

parallel overlapping[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., @p + j, g..]

parallel doubled[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., 2 * @p * |e| - @p * |e| + j, g..]
"""
AROUND_SLICES = """
parallel around[p; dim, width](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + 2 * width
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - width, g.. else 0]

parallel shifted[p; dim, before, more](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + 3 * before + more, more != 1
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - before - more, g.. else 0]

parallel squares[p; dim, width](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + 2 * width * width
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - width * width, g.. else 0]
"""
LIBRARY = library_with(OPERATORS, HALO, STRIDED, CYCLIC, SHUFFLED, AROUND_SLICES)
TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
AROUND = Along("q", "halo")


def make(name: str, *shapes: tuple[int, ...], **attributes: int) -> Instance:
    return instantiate(LIBRARY.operators[name], [Shape(shape) for shape in shapes], attributes)


def view(pattern: tuple[tuple[tuple[str, int], ...], ...], *target: tuple[tuple[str, int], ...]) -> Instance:
    sizes = [1] * len(pattern)
    for place, dim in enumerate(pattern):
        for _, size in dim:
            sizes[place] *= size
    binding = Binding(pattern, target)
    return instantiate(LIBRARY.operators["rearrange"], [Shape(tuple(sizes))], {}, binding=binding)


CONV = make("conv1d", (2, 4, 16), (6, 4, 3), pad=1)
SPLIT = view(((("b", 4),), (("h", 3), ("k", 8))), (("b", 4),), (("h", 3),), (("k", 8),))


def typed(instance: Instance, *roles: Along | Linearly | Uniformly, mesh: Mesh = TWO) -> TypedOperator:
    found = type_operator(instance, tuple(roles), mesh, LIBRARY)
    assert isinstance(found, TypedOperator), found
    return found


def refused(instance: Instance, *roles: Along | Linearly | Uniformly, mesh: Mesh = TWO) -> str:
    found = type_operator(instance, tuple(roles), mesh, LIBRARY)
    assert isinstance(found, str), found
    return found


def layouts(found: TypedOperator) -> str:
    return " ".join(map(str, found.arguments)) + " -> " + " ".join(map(str, found.results))


def test_a_convolution_along_its_output() -> None:
    found = typed(CONV, AROUND)
    assert layouts(found) == "halo(2; before=1; after=1) R -> S2"
    assert found.arguments[0].transpose.transpose == found.arguments[0] != found.arguments[0].transpose
    assert found.local_sizes["q"] == 8 and found.local_sizes["l"] == 10
    assert [(window.start, window.length) for window in found.windows] == [(-1, 10)]
    assert not found.native and not found.inner


def test_mesh_axes_are_one_device_axis_of_the_op() -> None:
    found = typed(CONV, AROUND, AROUND, mesh=FOUR)
    assert found.arguments[0].nesting(2) == (0, 1)
    assert found.local_sizes["q"] == 4 and found.local_sizes["l"] == 6


def test_beside_another_divided_axis() -> None:
    assert layouts(typed(CONV, AROUND, Along("o"), mesh=FOUR)) == "halo(2; before=1; after=1),R R,S0 -> S2,S1"
    assert layouts(typed(CONV, Along("c"), AROUND, mesh=FOUR)) == "S1,halo(2; before=1; after=1) S1,R -> P,S2"


def test_a_stride_makes_the_slices_of_the_input_longer() -> None:
    found = typed(make("conv1d", (1, 2, 32), (2, 2, 4), stride=2, pad=1), AROUND)
    assert layouts(found) == "halo(2; before=1; after=1) R -> S2"
    assert found.local_sizes["q"] == 8 and found.local_sizes["l"] == 18


def test_an_axis_that_is_read_around_itself() -> None:
    """An operand that is read at the position itself is partitioned; only one with neighbourhood reads
    gets a window.
    """
    found = typed(make("blur", (4, 16), (16,)), Along("l", "halo"))
    assert layouts(found) == "halo(1; before=1; after=0) S0 -> S1"
    assert found.local_sizes["l"] == 8


def test_why_not() -> None:
    assert "needs its neighbours" in refused(CONV, Along("q"))
    assert "drift apart" in refused(make("conv1d", (1, 2, 18), (2, 2, 3)), AROUND)
    assert "needs nothing" in refused(CONV, Along("n", "halo"))
    assert "3 devices do not divide" in refused(CONV, AROUND, mesh=Mesh((MeshAxis("a", 3),)))
    assert "does not give 2 devices all" in refused(CONV, Along("q", "strided"))
    assert "on the way" in refused(make("deviation", (4, 16)), Along("l", "halo"))


def test_a_minor_axis_before_the_major_one_is_divided() -> None:
    found = typed(SPLIT, Along("k", "strided"))
    assert layouts(found) == "strided(1; block=4) -> S2"
    assert found.local_sizes["k"] == 4
    assert "divided entirely first" in refused(SPLIT, Along("k"))
    assert "needs nothing" in refused(SPLIT, Along("h", "strided"))


def test_mesh_axes_of_a_minor_axis_nest() -> None:
    found = typed(SPLIT, Along("k", "strided"), Along("k", "strided"), mesh=FOUR)
    assert layouts(found) == "strided(1; block=4),strided(1; block=2) -> S2,S2"


def test_the_major_axis_comes_first_where_both_are_divided() -> None:
    split = view((((("h", 4)), ("k", 8)),), (("h", 4),), (("k", 8),))
    found = typed(split, Along("k", "strided"), Along("h"), mesh=FOUR)
    assert found.arguments[0].nesting(0) == (1, 0)
    assert str(found.arguments[0]) == "strided(0; block=4),S0"


def test_attributes_are_the_smallest_that_do() -> None:
    halo, strided = LIBRARY.parallels["halo"], LIBRARY.parallels["strided"]
    assert window_attributes(halo, 16, Reach("x", 0, 1, -3, 5)) == (("before", 3), ("after", 5))
    assert window_attributes(halo, 16, Reach("x", 0, 2, 0, 1)) == (("before", 0), ("after", 0))
    assert window_attributes(halo, 16, Reach("x", 0, 1, 2, 3)) == (("before", 0), ("after", 3))
    assert merged_attributes(strided, 2, 3, 8, 5) == (("block", 20),)
    assert merged_attributes(halo, 2, 3, 8, 5) is None


@pytest.mark.parametrize(("name", "linear"), [("halo", True), ("around", True), ("shifted", False), ("squares", False)])
def test_attributes_are_those_found_by_trying_all(name: str, linear: bool) -> None:
    """If the op's span is linear in the attributes, it excludes most of them."""
    declaration = LIBRARY.parallels[name]
    names = free_attributes(declaration)
    assert (linear_span(declaration, 12) is not None) is linear
    for low, high, step in product((-5, -2, 0, 1), (1, 3, 4, 9), (1, 2)):
        reach = Reach("x", 0, step, low, high)
        most = max(0, -low) + max(0, high - step + 1)
        choices = (tuple(zip(names, values, strict=True)) for values in product(range(most + 1), repeat=len(names)))
        tried = sorted(choices, key=lambda chosen: (sum(value for _, value in chosen), [value for _, value in chosen]))
        expected = (c for c in tried if sum(v for _, v in c) <= most and halo_window(declaration, 1, 12, reach, c))
        assert window_attributes(declaration, 12, reach) == next(expected, None)


@pytest.mark.parametrize(("name", "expected"), [("partition", False), ("cyclic", False), ("halo", True)])
def test_which_ops_only_hold(name: str, expected: bool) -> None:
    assert is_halo_op(LIBRARY.parallels[name]) is expected


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("held", [1, 2, 3, 4])
def test_cuts_that_cover_a_dimension(degree: int, held: int) -> None:
    """The result derived from the index map agrees with inspecting every position."""
    for name in ("partition", "cyclic", "mirrored", "overlapping", "doubled"):
        declaration, extent = LIBRARY.parallels[name], degree * held
        found = cut_indices(declaration, degree, extent)
        expected = found is not None and sorted(found.ravel().tolist()) == list(range(extent))
        assert bijective(declaration, degree, extent) == expected
        assert expected or name in ("overlapping",)


def test_a_dimension_of_many_millions_is_not_looked_at_position_by_position() -> None:
    tracemalloc.start()
    assert bijective(LIBRARY.parallels["partition"], 8, 800_000_000)
    assert not bijective(LIBRARY.parallels["partition"], 8, 800_000_001)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()

"""Moves keep the value, and the paths that tables take are the lightest."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import permutations, product

import numpy as np
import pytest

from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, nest
from unity_dsl.graph.layout_codes import all_layouts, encode, find
from unity_dsl.graph.layout_conversion import divides, divisors, move_table
from unity_dsl.graph.lightest_paths import lightest_paths, weigh

from .simulation import decode, run
from .simulation import encode as hold

FOUR = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
SIX = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 3)))
EIGHT = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2), MeshAxis("c", 2)))


def every_nesting(shape: tuple[int, ...], mesh: Mesh) -> set[Layout]:
    """Every choice of kinds, and of an order in which mesh axes cut dimensions, that divides the shape."""
    kinds: list[Kind] = [Invariant(), Replicate(), Partial(), *map(Shard, range(len(shape)))]
    found = set()
    axes = range(len(mesh.axes))
    for chosen, order in product(product(kinds, repeat=len(mesh.axes)), permutations(axes)):
        nested = nest([chosen[axis] for axis in order])
        layout = Layout(tuple(nested.kinds[order.index(axis)] for axis in axes))
        if divides(layout, shape, mesh):
            found.add(layout)
    return found


@pytest.mark.parametrize(
    ("mesh", "shape"), [(FOUR, (4, 2)), (SIX, (6, 4)), (EIGHT, (8, 4)), (EIGHT, ()), (Mesh(()), (3,))]
)
def test_tables_have_every_layout_and_those_in_mesh_order_first(mesh: Mesh, shape: tuple[int, ...]) -> None:
    table = move_table(divisors(shape, mesh), mesh)
    assert set(table.layouts) == every_nesting(divisors(shape, mesh), mesh)
    assert len(set(table.layouts)) == len(table.layouts)
    for number, layout in enumerate(table.layouts):
        assert (nest(layout.kinds) == layout) == (number < table.in_order)


def test_codes_are_those_of_their_layouts() -> None:
    codes, _ = all_layouts((8, 4), EIGHT)
    layouts = codes.layouts((1, 3))
    again = encode(layouts, (1, 3))
    assert np.array_equal(again.kind, codes.kind)
    assert np.array_equal(again.place, codes.place)
    assert np.array_equal(find(again, codes, 2), np.arange(len(codes)))
    transposed = codes.transpose.layouts((1, 3))
    assert transposed == [layout.transpose for layout in layouts]
    assert codes.in_mesh_order.tolist() == [nest(layout.kinds) == layout for layout in layouts]


@pytest.mark.parametrize("mesh", [FOUR, SIX])
def test_every_move_keeps_the_value_both_ways(mesh: Mesh) -> None:
    rng = np.random.default_rng(0)
    shape = (12, 24)
    table = move_table(divisors(shape, mesh), mesh)
    for number in range(len(table.paths.moves.source)):
        move = table.move(number)
        value = rng.integers(-9, 9, shape).astype(float)
        forward = run((move.forward,) if move.forward else (), hold(value, move.source, mesh, rng), mesh, shape)
        assert np.array_equal(decode(forward, move.target, shape, mesh), value)
        held = hold(value, move.target.transpose, mesh, rng)
        backward = run((move.backward,) if move.backward else (), held, mesh, shape)
        assert np.array_equal(decode(backward, move.source.transpose, shape, mesh), value)


@pytest.mark.parametrize(
    ("mesh", "extents"), [(FOUR, (4, 4)), (FOUR, (4, 2, 4)), (SIX, (6, 2, 3)), (EIGHT, (8, 8)), (EIGHT, (2, 8, 2))]
)
def test_paths_are_the_lightest(mesh: Mesh, extents: tuple[int, ...]) -> None:
    paths = lightest_paths(extents, mesh)
    count = len(paths.layouts)
    weights = weigh(paths.moves, paths.layouts, mesh)
    onward: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    ends = zip(paths.moves.source.tolist(), paths.moves.target.tolist(), weights.tolist(), strict=True)
    for source, target, weight in ends:
        onward[source].append((weight, target))
    for source in range(0, count, 7):
        lightest = dijkstra(onward, source)
        for target in range(count):
            weight, here = 0.0, source
            while here != target:
                move = paths.first[here, target]
                assert paths.moves.source[move] == here
                weight += weights[move]
                here = int(paths.moves.target[move])
            assert weight == pytest.approx(lightest[target], rel=0, abs=1e-11)


def dijkstra(onward: list[list[tuple[float, int]]], source: int) -> dict[int, float]:
    found: dict[int, float] = {}
    queue = [(0.0, source)]
    while queue:
        weight, here = heappop(queue)
        if here not in found:
            found[here] = weight
            for further, there in onward[here]:
                heappush(queue, (weight + further, there))
    return found

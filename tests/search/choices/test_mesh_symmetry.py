"""Renamings of mesh axes, against applying every permutation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampling import of_the_day
from unity_dsl.graph.graph import Graph, Node
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, nest
from unity_dsl.graph.layout_codes import layouts_in_order
from unity_dsl.graph.layout_typing import Along, Linearly, Role, Uniformly, configurations
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.price import price_operators
from unity_dsl.resources import folder
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.mesh_symmetry import no_symmetry, symmetry_of
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..conftest import EQUAL

EIGHT = Mesh((MeshAxis("a", 2), MeshAxis("b", 2), MeshAxis("c", 2)))
NODES = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2), MeshAxis("c", 2)))
MIXED = Mesh((MeshAxis("a", 2), MeshAxis("b", 4), MeshAxis("c", 2)))
ROLES: list[Role] = [Uniformly(Invariant()), Uniformly(Replicate()), Along("i"), Along("o"), Linearly((0,))]
KINDS = (Invariant(), Replicate(), Partial(), Shard(0), Shard(1))


@pytest.mark.parametrize(("mesh", "moves"), [(EIGHT, 6), (NODES, 2), (MIXED, 2)], ids=["2x2x2", "levels", "2x4x2"])
def test_only_equal_axes_trade_places(mesh: Mesh, moves: int) -> None:
    symmetry = symmetry_of(mesh)
    assert not symmetry.trivial
    assert len(list(symmetry.placements("xyz"))) == moves
    for placed in symmetry.placements(range(3)):
        assert all(mesh.axes[i].degree == mesh.axes[j].degree for i, j in enumerate(placed))
        assert all(mesh.axes[i].level == mesh.axes[j].level for i, j in enumerate(placed))


@pytest.mark.parametrize("mesh", [EIGHT, NODES, MIXED], ids=["2x2x2", "levels", "2x4x2"])
def test_every_configuration_is_a_renaming_of_one_canonical(mesh: Mesh) -> None:
    symmetry = symmetry_of(mesh)
    canonical = list(symmetry.choices([ROLES] * 3))
    assert len(set(canonical)) == len(canonical)
    assert all(symmetry.canonical(found) == found for found in canonical)
    renamed = [placed for found in canonical for placed in symmetry.placements(found)]
    assert sorted(map(str, renamed)) == sorted(map(str, product(ROLES, repeat=3)))


def test_where_no_axes_trade_places_everything_is_told_apart() -> None:
    symmetry = no_symmetry(EIGHT)
    assert symmetry.trivial
    assert list(symmetry.choices([ROLES] * 3)) == list(product(ROLES, repeat=3))
    layout = nest((Shard(0), Invariant(), Shard(1)))
    assert symmetry.orbit(layout) == layout
    assert list(symmetry.renamed(layout)) == [layout]


@given(st.tuples(*[st.sampled_from(KINDS)] * 3), st.permutations(range(3)))
def test_an_orbit_is_what_renamings_do_not_change(kinds: tuple[object, ...], order: list[int]) -> None:
    symmetry = symmetry_of(EIGHT)
    layout, renamed = nest(kinds), nest([kinds[axis] for axis in order])
    assert symmetry.orbit(layout) == symmetry.orbit(renamed)
    assert renamed in symmetry.renamed(layout)
    assert {symmetry.orbit(found) for found in symmetry.renamed(layout)} == {symmetry.orbit(layout)}


def test_orbits_count_how_many_axes_do_what() -> None:
    """Of rank 4 on three equal axes: multisets of three of the seven kinds."""
    layouts = layouts_in_order((8, 8, 8, 8), EIGHT)
    assert len(layouts) == 7**3
    assert len({symmetry_of(EIGHT).orbit(layout) for layout in layouts}) == 84


def test_out_of_order_nestings_keep_all_their_orders() -> None:
    layout = Layout((Shard(0, 1), Shard(0, 0), Invariant()))
    renamed = set(symmetry_of(EIGHT).renamed(layout))
    moved = {Layout(tuple(layout.kinds[axis] for axis in order)) for order in permutations(range(3))}
    assert renamed == moved


EXAMPLES = sorted(path.stem for path in folder("examples").glob("*.udl"))


@pytest.mark.parametrize("example", of_the_day(EXAMPLES, 4))
def test_renamed_configurations_are_as_good(example: str, library: Library) -> None:
    """Of one call of every operator: what may be divided so may be renamed, to layouts of the same orbits, at the same
    price. That is what the bound over orbits rests on.
    """
    model = build_model(parse_model(read_source(folder("examples") / f"{example}.udl")), library)
    machine, theorems, symmetry = load_machine("dgx-a100"), ShardingTheorems(library), symmetry_of(EQUAL)
    for node in {node.instance.name: node for node in _nodes(model.graph)}.values():
        weights = [False] * len(node.arguments)
        typed = configurations(node.instance, EQUAL, library, node.gradients, weights, theorems)
        seconds = price_operators(node.instance, typed, "f32", EQUAL, machine, node.gradients)
        found = {one.configuration: (one, price) for one, price in zip(typed, seconds, strict=True)}
        for configuration, (one, price) in found.items():
            other, same = found[symmetry.canonical(configuration)]
            assert price == pytest.approx(same, rel=1e-12), f"{node.instance.name} {configuration}"
            for layout, renamed in zip((*one.arguments, *one.results), (*other.arguments, *other.results), strict=True):
                assert symmetry.orbit(layout) == symmetry.orbit(renamed), f"{node.instance.name} {configuration}"
        assert {c for one in found for c in symmetry.placements(one)} == set(found), node.instance.name


def _nodes(graph: Graph) -> Iterator[Node]:
    for step in graph.steps:
        if isinstance(step, Node):
            yield step
        else:
            yield from _nodes(step.body)

"""Meshes: prime axes, slow levels outermost, fast levels filled first; enumeration of all meshes; splitting of axes."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import (
    all_meshes,
    build_mesh,
    has_moved_factor,
    joined,
    prime_factors,
    refined,
    refined_blocks,
    regrouped_axes,
    reordered_axes,
)
from unity_dsl.syntax.diagnostic import InputError


def described(machine: str, devices: int, shape: tuple[int, ...] | None = None) -> list[tuple[str, int, int]]:
    mesh = build_mesh(load_machine(machine), devices, shape)
    return [(axis.name, axis.degree, axis.level) for axis in mesh.axes]


def test_the_axes() -> None:
    assert described("local", 1) == []
    assert described("dgx-a100", 8) == [("a", 2, 0), ("b", 2, 0), ("c", 2, 0)]
    assert described("dgx-a100", 16) == [("a", 2, 1), ("b", 2, 0), ("c", 2, 0), ("d", 2, 0)]
    assert described("summit", 6) == [("a", 2, 1), ("b", 3, 0)]
    assert described("summit", 12) == [("a", 2, 2), ("b", 2, 1), ("c", 3, 0)]
    assert described("summit", 4) == [("a", 2, 1), ("b", 2, 0)]
    assert described("local", 6) == [("a", 2, 0), ("b", 3, 0)]


def test_a_machine_of_thousands_of_devices() -> None:
    """Axes fill nodes, racks, pods and the cluster in turn."""
    assert described("llama3-cluster", 24576, (8, 192, 2, 8)) == [("a", 8, 3), ("b", 192, 2), ("c", 2, 1), ("d", 8, 0)]
    assert described("llama3-cluster", 24576, (1536, 16)) == [("a", 1536, 3), ("b", 16, 1)]
    machine = load_machine("llama3-cluster")
    assert all(mesh.size == 10240 for mesh in all_meshes(machine, 10240))


def test_given_shapes() -> None:
    assert described("dgx-a100", 16, (2, 8)) == [("a", 2, 1), ("b", 8, 0)]
    assert described("dgx-a100", 16, (8, 2)) == [("a", 8, 1), ("b", 2, 0)]
    assert described("dgx-a100", 16, (16,)) == [("a", 16, 1)]


@pytest.mark.parametrize("devices", [0, -1, 9])
def test_numbers_of_devices(devices: int) -> None:
    with pytest.raises(InputError) as raised:
        build_mesh(load_machine("local"), devices)
    assert raised.value.diagnostic.code == "E302"


@pytest.mark.parametrize("shape", [(2, 2), (8, 1), (3,), (), (-2, -4)])
def test_shapes_of_another_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as raised:
        build_mesh(load_machine("local"), 8, shape)
    assert raised.value.diagnostic.code == "E303"


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((1, 2), "axis 0 of a mesh of 1 x 2 has 1 device: every axis needs at least two"),
        ((2, 0), "axis 1 of a mesh of 2 x 0 has 0 devices: every axis needs at least two"),
        ((2, 3), "a mesh of 2 x 3 has 6 devices, 2 were asked for"),
    ],
)
def test_what_is_wrong_with_a_shape_is_told(shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(InputError) as raised:
        build_mesh(load_machine("local"), 2, shape)
    assert raised.value.diagnostic.message == told


@given(st.sampled_from(["local", "summit", "dgx-a100", "h200"]), st.integers(1, 192))
def test_any_number(name: str, devices: int) -> None:
    machine = load_machine(name)
    if devices > machine.devices:
        return
    try:
        mesh = build_mesh(machine, devices)
    except InputError:
        raise AssertionError(f"{devices} devices of {name}") from None
    assert mesh.size == devices
    levels = [axis.level for axis in mesh.axes]
    assert levels == sorted(levels, reverse=True)
    assert sorted(mesh.degrees) == prime_factors(devices)
    assert all(0 <= level < len(machine.levels) for level in levels)


@given(st.integers(1, 10**4))
def test_prime_factors(number: int) -> None:
    factors = prime_factors(number)
    assert prod(factors) == number
    assert all(factor > 1 and all(factor % d for d in range(2, factor)) for factor in factors)


def factorisations(number: int) -> set[tuple[int, ...]]:
    """Ordered factorisations into up to three factors above 1, by trying all triples of divisors."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return {
        tuple(d for d in (a, b, number // a // b) if d > 1) for a in divisors for b in divisors if number % (a * b) == 0
    }


@pytest.mark.parametrize("devices", [1, 2, 7, 8, 12, 60, 64, 97, 128])
def test_all_meshes(devices: int) -> None:
    """Every ordered factorisation into up to three axes, each once."""
    machine = load_machine("dgx-a100")
    meshes = all_meshes(machine, devices)
    degrees = [mesh.degrees for mesh in meshes]
    assert len(set(degrees)) == len(degrees)
    assert set(degrees) == factorisations(devices)
    assert all(mesh == build_mesh(machine, devices, mesh.degrees) for mesh in meshes)
    assert [len(found) for found in degrees] == sorted(len(found) for found in degrees)


def test_meshes_that_split_at_nodes_come_first() -> None:
    def first(machine: str, devices: int, axes: int, count: int) -> list[tuple[int, ...]]:
        found = [mesh.degrees for mesh in all_meshes(load_machine(machine), devices)]
        return [degrees for degrees in found if len(degrees) == axes][:count]

    assert first("dgx-a100", 64, 2, 1) == [(8, 8)]
    assert set(first("dgx-a100", 64, 2, 3)[1:]) == {(4, 16), (16, 4)}
    assert set(first("summit", 192, 2, 2)) == {(32, 6), (64, 3)}
    assert first("summit", 192, 3, 1) == [(32, 2, 3)]
    assert all(8 in (found[2], found[1] * found[2]) for found in first("dgx-a100", 64, 3, 2))


def test_numbers_of_devices_of_all_meshes() -> None:
    for devices in (0, -1, 9, 2**40):
        with pytest.raises(InputError) as raised:
            all_meshes(load_machine("local"), devices)
        assert raised.value.diagnostic.code == "E302"


@given(st.lists(st.integers(2, 4), min_size=1, max_size=5), st.data())
def test_blocks_of_axes(degrees: list[int], data: st.DataObject) -> None:
    """A joined mesh is split into the blocks that were joined, and devices keep their coordinates."""
    fine = Mesh(tuple(MeshAxis("abcde"[i], degree, data.draw(st.integers(0, 2))) for i, degree in enumerate(degrees)))
    ends = sorted(data.draw(st.sets(st.integers(1, len(degrees) - 1)))) if len(degrees) > 1 else []
    blocks = tuple(tuple(range(*pair)) for pair in pairwise((0, *ends, len(degrees))))
    coarse = joined(fine, blocks)
    assert coarse.size == fine.size
    assert refined_blocks(fine, coarse) == blocks
    assert refined(range(len(blocks)), blocks) == tuple(i for i, block in enumerate(blocks) for _ in block)
    for rank in range(fine.size):
        place = fine.coordinates(rank)
        inside = [
            Mesh(tuple(fine.axes[axis] for axis in block)).rank(place[axis] for axis in block) for block in blocks
        ]
        assert coarse.coordinates(rank) == tuple(inside)


@pytest.mark.parametrize(
    ("fine", "coarse"), [((2, 8, 4), (16, 4)), ((4, 4), (2, 8)), ((2, 2), (2, 2, 2)), ((8,), (2, 4))]
)
def test_what_refines(fine: tuple[int, ...], coarse: tuple[int, ...]) -> None:
    meshes = [Mesh(tuple(MeshAxis("abc"[i], degree) for i, degree in enumerate(found))) for found in (fine, coarse)]
    expected = ((0, 1), (2,)) if fine == (2, 8, 4) else None
    assert refined_blocks(meshes[0], meshes[1]) == expected


def test_axes_in_another_order() -> None:
    meshes = all_meshes(load_machine("dgx-a100"), 48)
    alike = 0
    for mesh, other in product(meshes, meshes):
        order = reordered_axes(mesh, other)
        assert (order is None) == (sorted(mesh.degrees) != sorted(other.degrees))
        if order is not None:
            assert sorted(order) == list(range(len(mesh.axes)))
            assert tuple(other.degrees[axis] for axis in order) == mesh.degrees
            alike += mesh != other
        if mesh == other:
            assert order == tuple(range(len(mesh.axes)))
    assert alike


def test_a_prime_factor_that_has_moved() -> None:
    """Against every way to divide one axis by a prime and to multiply another one by that prime."""
    meshes = all_meshes(load_machine("dgx-h100"), 96)
    for other in meshes:
        expected = set()
        for giving, taking in permutations(range(len(other.axes)), 2):
            for prime in (2, 3):
                degrees = list(other.degrees)
                if degrees[giving] > prime and degrees[giving] % prime == 0:
                    degrees[giving] //= prime
                    degrees[taking] *= prime
                    expected.add(tuple(degrees))
        found = {mesh.degrees for mesh in meshes if has_moved_factor(mesh, other)}
        assert found == expected - {other.degrees}
        assert found or len(other.axes) == 1


def test_axes_that_are_no_neighbours_make_up_coarser_ones() -> None:
    """Against every set of axes of a fine mesh, apart from its first axes, with the size of the first of two coarse
    axes.
    """
    meshes = all_meshes(load_machine("dgx-h100"), 96)
    found = 0
    for fine in (mesh for mesh in meshes if len(mesh.axes) == 3):
        for coarse in (mesh for mesh in meshes if len(mesh.axes) == 2):
            expected = set()
            for size in (1, 2):
                for first in combinations(range(3), size):
                    neighbours = first == tuple(range(size))
                    if fine.degree(first) == coarse.degrees[0] and not neighbours:
                        expected.add(tuple(0 if axis in first else 1 for axis in range(3)))
            ways = list(regrouped_axes(fine, coarse))
            assert set(ways) == expected and len(ways) == len(expected), (fine.degrees, coarse.degrees)
            found += len(ways)
    assert found

"""Meshes: prime axes, slow levels outermost, as many devices as possible on the fast ones."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh, prime_factors
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

"""Device meshes: prime-factor axes, placed on the levels of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from string import ascii_lowercase

from ..graph.layout import Mesh, MeshAxis
from ..syntax.diagnostic import fail
from .machine import Machine


def build_mesh(machine: Machine, devices: int, shape: tuple[int, ...] | None = None) -> Mesh:
    """A mesh of that many devices, slow levels outermost, axes named a, b, c, …

    Without a `shape` the axes are the prime factors, ordered so that as many devices as possible share the fast levels.
    Raises E302 for a number of devices that the machine does not have, E303 for a shape of another size.
    """
    if devices < 1:
        raise fail("E302", f"a plan needs at least one device, not {devices}")
    if devices > machine.devices:
        raise fail("E302", f"machine `{machine.name}` has {machine.devices} devices, {devices} were asked for")
    if shape is None:
        shape = min(
            _orders(tuple(prime_factors(devices))),
            key=lambda degrees: (tuple(reversed(_levels(degrees, machine))), degrees),
        )
    elif any(degree < 2 for degree in shape) or prod(shape) != devices:
        text = " x ".join(map(str, shape))
        raise fail(
            "E303",
            f"a mesh of {text} has {prod(shape)} devices, {devices} were asked for",
            help="every axis has at least two devices, and the product is the number of devices",
        )
    levels = _levels(shape, machine)
    return Mesh(tuple(map(MeshAxis, _names(len(shape)), shape, levels)))


def _names(count: int) -> list[str]:
    return [ascii_lowercase[i] if i < 26 else f"a{i}" for i in range(count)]


def prime_factors(number: int) -> list[int]:
    """Smallest first; none for 1."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors


def _orders(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every distinct order of the items, once."""
    if not items:
        yield ()
    for item in sorted(set(items)):
        at = items.index(item)
        for rest in _orders(items[:at] + items[at + 1 :]):
            yield (item, *rest)


def _levels(degrees: tuple[int, ...], machine: Machine) -> tuple[int, ...]:
    """The slowest level that each axis crosses when the grid is packed innermost axis first.

    A block of axes fills `units` units of its level; a block that no longer fits becomes one unit of the next level.
    """
    level, units, levels = 0, 1, []
    last = len(machine.levels) - 1
    for degree in reversed(degrees):
        units *= degree
        while level < last and units > machine.levels[level].size:
            size = machine.levels[level].size
            units = units // size if units % size == 0 else degree
            level += 1
        levels.append(level)
    return tuple(reversed(levels))

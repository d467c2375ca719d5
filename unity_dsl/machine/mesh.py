"""Device meshes on the levels of a machine: one of a given shape, all for a search, and refinements between meshes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import log, prod
from string import ascii_lowercase
from typing import TypeVar

from ..graph.layout import Mesh, MeshAxis
from ..syntax.diagnostic import fail
from .machine import Machine


def build_mesh(machine: Machine, devices: int, shape: tuple[int, ...] | None = None) -> Mesh:
    """A mesh of that many devices, slow levels outermost, axes named a, b, c, …

    Without a `shape` the axes are the prime factors, ordered so that as many devices as possible share the fast levels.
    Raises E302 for a number of devices that the machine does not have, E303 for a shape of another size.
    """
    _check_degrees(shape or ())
    _check_devices(machine, devices)
    if shape is None:
        shape = min(
            _orders(tuple(prime_factors(devices))),
            key=lambda degrees: (tuple(reversed(_levels(degrees, machine))), degrees),
        )
    elif prod(shape) != devices:
        raise fail(
            "E303",
            f"a mesh of {_shape_text(shape)} has {prod(shape)} devices, {devices} were asked for",
            help="the product of the degrees is the number of devices",
        )
    levels = _levels(shape, machine)
    return Mesh(tuple(map(MeshAxis, _names(len(shape)), shape, levels)))


def _check_devices(machine: Machine, devices: int) -> None:
    if devices < 1:
        raise fail("E302", f"a plan needs at least one device, not {devices}")
    if devices > machine.devices:
        raise fail("E302", f"machine `{machine.name}` has {machine.devices} devices, {devices} were asked for")


def _check_degrees(shape: Sequence[int]) -> None:
    for number, degree in enumerate(shape):
        if degree < 2:
            count = "1 device" if degree == 1 else f"{degree} devices"
            message = f"axis {number} of a mesh of {_shape_text(shape)} has {count}: every axis needs at least two"
            others = ",".join(str(other) for other in shape if other > 1)
            raise fail("E303", message, help=f"without it: --mesh {others}" if others else "")


def _shape_text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


MOST_AXES = 3
"""Most axes of a searched mesh: with 3, a tensor of rank 4 has 7^3 layouts, and every pair of them has a price."""


def all_meshes(machine: Machine, devices: int) -> tuple[Mesh, ...]:
    """Every mesh of that many devices with at most `MOST_AXES` axes. Meshes with fewer axes come first, and among these
    the ones whose axes end at or near the units of the machine.

    Order matters: the last axis has the fastest links, and the first is the major one if two shard the same dimension.
    No two of these meshes are therefore the same problem. Raises E302 as `build_mesh`.
    """
    _check_devices(machine, devices)
    if devices == 1:
        return (build_mesh(machine, devices, ()),)
    shapes = [shape for axes in range(1, MOST_AXES + 1) for shape in _factorisations(devices, axes)]
    shapes.sort(key=lambda shape: (len(shape), _misfit(shape, machine)))
    return tuple(build_mesh(machine, devices, shape) for shape in shapes)


def _factorisations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Every ordered product of `count` factors above 1 that is `number`, itself above 1."""
    if count == 1:
        yield (number,)
        return
    for first in range(2, number // 2 + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorisations(number // first, count - 1))


def _misfit(shape: tuple[int, ...], machine: Machine) -> float:
    """How far the groups of inner axes are from the nearest unit of the machine (a node, an island): the sum of the
    logarithms of the ratios.
    """
    units = [machine.devices_below(level) for level in range(1, len(machine.levels) + 1)]
    groups = (prod(shape[axis:]) for axis in range(1, len(shape)))
    return sum(min(abs(log(group / unit)) for unit in units) for group in groups)


def describe_mesh(mesh: Mesh) -> str:
    return " x ".join(map(str, mesh.degrees)) or "one device"


Blocks = tuple[tuple[int, ...], ...]
"""For each axis of a coarse mesh, the neighbouring axes of a finer mesh that it is split into."""

_Chosen = TypeVar("_Chosen")


def refined_blocks(mesh: Mesh, coarse: Mesh) -> Blocks | None:
    """How a mesh splits the axes of a coarser one; None if it does not. A mesh refines itself."""
    blocks, axis = [], 0
    for degree in coarse.degrees:
        first, reached = axis, 1
        while reached < degree and axis < len(mesh.axes):
            reached *= mesh.degrees[axis]
            axis += 1
        if reached != degree:
            return None
        blocks.append(tuple(range(first, axis)))
    return tuple(blocks) if axis == len(mesh.axes) else None


def reordered_axes(mesh: Mesh, other: Mesh) -> tuple[int, ...] | None:
    """A permutation: for each axis of a mesh, an axis of the same degree of `other`; None if there is none."""
    left = list(range(len(other.axes)))
    order = []
    for degree in mesh.degrees:
        axis = next((axis for axis in left if other.degrees[axis] == degree), None)
        if axis is None:
            return None
        left.remove(axis)
        order.append(axis)
    return None if left else tuple(order)


def regrouped_axes(mesh: Mesh, coarse: Mesh) -> Iterator[tuple[int, ...]]:
    """Every other way in which the axes of a mesh make up those of a coarser one: for each axis the coarse axis that it
    is part of. Assignments in the order of the axes are left out, as `refined_blocks` finds them.
    """
    for part_of in product(range(len(coarse.axes)), repeat=len(mesh.axes)):
        degrees = [1] * len(coarse.axes)
        for axis, degree in zip(part_of, mesh.degrees, strict=True):
            degrees[axis] *= degree
        if tuple(degrees) == coarse.degrees and part_of != tuple(sorted(part_of)):
            yield part_of


def has_moved_factor(mesh: Mesh, other: Mesh) -> bool:
    """Whether moving one prime factor between two axes of `other` gives the axes of `mesh`."""
    differ = [(own, given) for own, given in zip(mesh.degrees, other.degrees, strict=False) if own != given]
    if len(mesh.axes) != len(other.axes) or len(differ) != 2 or mesh.size != other.size:
        return False
    (least, most), _ = sorted(map(sorted, differ))
    return most % least == 0 and len(prime_factors(most // least)) == 1


def joined(mesh: Mesh, blocks: Blocks) -> Mesh:
    """The coarse mesh whose axes are blocks of neighbouring axes of a finer one."""
    levels = (max(mesh.axes[axis].level for axis in block) for block in blocks)
    names = (axis.name for axis in mesh.axes[: len(blocks)])
    return Mesh(tuple(map(MeshAxis, names, map(mesh.degree, blocks), levels)))


def refined(chosen: Sequence[_Chosen], blocks: Blocks) -> tuple[_Chosen, ...]:
    """A choice for each axis of a coarse mesh, expanded to the axes of a finer one."""
    return tuple(one for one, block in zip(chosen, blocks, strict=True) for _ in block)


def _names(count: int) -> list[str]:
    return [ascii_lowercase[i] if i < 26 else f"a{i}" for i in range(count)]


def prime_factors(number: int) -> list[int]:
    """The prime factors of a number, smallest first; none for 1."""
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

"""The table of all pairs against the price of each conversion's steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from random import Random

import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, Window
from unity_dsl.graph.layout_conversion import convert, divisors, move_table
from unity_dsl.graph.layout_exchange import transfers
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.price import Price, local_fraction, price_exchange, price_steps
from unity_dsl.search.choices.conversion_prices import ConversionPrices

LIBRARY = load_library()


@pytest.mark.parametrize(
    ("machine", "devices", "mesh_shape", "shape"),
    [
        ("dgx-a100", 8, None, (8, 24)),
        ("dgx-a100", 8, None, (2, 6, 4)),
        ("dgx-a100", 16, (4, 4), (16, 8, 4)),
        ("summit", 12, None, (12, 6)),
        ("summit", 6, None, (6, 2, 3)),
        ("dgx-h100", 32, (32,), (32, 64)),
    ],
)
def test_every_pair_has_the_price_of_its_steps(
    machine: str, devices: int, mesh_shape: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    found = load_machine(machine)
    mesh = build_mesh(found, devices, mesh_shape)
    table = move_table(tuple(shape), mesh)
    layouts = list(table.layouts[: table.in_order])
    if len(mesh.axes) > 1:  # slices nested against the mesh's order, as merged dimensions have them
        kinds = [*(Shard(0, len(mesh.axes) - 1 - i) for i in range(len(mesh.axes)))]
        layouts.append(Layout(tuple(kinds)))
    prices = ConversionPrices(mesh, found, LIBRARY).between(layouts, shape)
    rng = Random(0)
    pairs = [(rng.randrange(len(layouts)), rng.randrange(len(layouts))) for _ in range(300)]
    pairs += [(i, len(layouts) - 1) for i in range(0, len(layouts), 7)]
    for i, j in pairs:
        conversion = convert(layouts[i], layouts[j], mesh, shape)
        there = price_steps(conversion.forward, mesh, found, local_fraction(layouts[i], mesh))
        back = price_steps(conversion.backward, mesh, found, local_fraction(layouts[j], mesh))
        for count in (0.0, 1e9):
            assert prices.forward(count)[i, j] == pytest.approx(there.seconds(count), rel=1e-9, abs=0)
            assert prices.backward(count)[i, j] == pytest.approx(back.seconds(count), rel=1e-9, abs=0)
        assert prices.steps[i, j] >= (1.0 if conversion.forward and conversion.backward and i != j else 0.0) * 0.1


def windows(shape: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """Layouts of an image in which height or width, or both, are held with a neighbour on either side."""
    table = move_table(divisors(shape, mesh), mesh)
    around = {dim: Window(dim, 0, "halo", (("before", 1), ("after", 1))) for dim in (2, 3)}
    kinds: list[Kind] = [Invariant(), Replicate(), Partial(), Shard(0), Shard(1), Shard(2), *around.values()]
    found = list(table.layouts[: table.in_order])
    for chosen in product(kinds, repeat=len(mesh.axes)):
        cuts = [kind for kind in chosen if isinstance(kind, Shard | Window)]
        if any(isinstance(kind, Window) for kind in chosen) and len({kind.dim for kind in cuts}) == len(cuts):
            found.append(Layout(chosen))
    both = tuple(Window(3, place, "halo", (("before", 0), ("after", 2))) for place in range(len(mesh.axes)))
    return [*found, Layout(both)]


def counted(steps: Sequence[Step], start: Layout, shape: tuple[int, ...], mesh: Mesh, machine: Machine) -> Price:
    """The price of steps, an exchange of windows by the elements of its transfers."""
    total, held = Price(), local_fraction(start, mesh)
    for step in steps:
        if step.kind is StepKind.EXCHANGE and step.source is not None and step.target is not None:
            received = [0] * mesh.size
            for transfer in transfers(step.source, step.target, shape, mesh, LIBRARY):
                received[transfer.taker] += transfer.elements * (transfer.giver != transfer.taker)
            before, held = held, local_fraction(step.target, mesh)
            total += price_exchange(step.axes, max(received) / prod(shape), mesh, machine, before + held)
        else:
            total += price_steps((step,), mesh, machine, held)
            if step.kind in (StepKind.SLICE, StepKind.REDUCE_SCATTER):
                held /= mesh.degree(step.axes)
            elif step.kind in (StepKind.ALL_GATHER, StepKind.PAD):
                held *= mesh.degree(step.axes)
    return total


def test_windows_have_the_price_of_what_is_sent() -> None:
    found, shape = load_machine("dgx-a100"), (4, 2, 8, 12)
    mesh = build_mesh(found, 4, (2, 2))
    layouts = windows(shape, mesh)
    prices = ConversionPrices(mesh, found, LIBRARY).between(layouts, shape)
    rng = Random(1)
    held = [i for i, layout in enumerate(layouts) if layout.overlaps]
    pairs = [(rng.randrange(len(layouts)), rng.choice(held)) for _ in range(80)]
    pairs += [(rng.choice(held), rng.randrange(len(layouts))) for _ in range(40)]
    for i, j in pairs:
        conversion = convert(layouts[i], layouts[j], mesh, shape)
        there = counted(conversion.forward, layouts[i], shape, mesh, found)
        back = counted(conversion.backward, layouts[j].transpose, shape, mesh, found)
        for count in (0.0, 1e9):
            assert prices.forward(count)[i, j] == pytest.approx(there.seconds(count), rel=1e-9, abs=0)
            assert prices.backward(count)[i, j] == pytest.approx(back.seconds(count), rel=1e-9, abs=0)

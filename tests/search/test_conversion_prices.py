"""The table of all pairs against the price of each conversion's steps."""

from __future__ import annotations

from random import Random

import pytest

from unity_dsl.graph.conversion import convert, move_table
from unity_dsl.graph.layout import Layout, Shard
from unity_dsl.index.library import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.price import held_fraction, price_steps
from unity_dsl.search.conversion_prices import ConversionPrices


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
    prices = ConversionPrices(mesh, found, load_library()).between(layouts, shape)
    rng = Random(0)
    pairs = [(rng.randrange(len(layouts)), rng.randrange(len(layouts))) for _ in range(300)]
    pairs += [(i, len(layouts) - 1) for i in range(0, len(layouts), 7)]
    for i, j in pairs:
        conversion = convert(layouts[i], layouts[j], mesh, shape)
        there = price_steps(conversion.forward, mesh, found, held_fraction(layouts[i], mesh))
        back = price_steps(conversion.backward, mesh, found, held_fraction(layouts[j], mesh))
        for count in (0.0, 1e9):
            assert prices.forward(count)[i, j] == pytest.approx(there.seconds(count), rel=1e-9, abs=0)
            assert prices.backward(count)[i, j] == pytest.approx(back.seconds(count), rel=1e-9, abs=0)
        assert prices.steps[i, j] >= (1.0 if conversion.forward and conversion.backward and i != j else 0.0) * 0.1

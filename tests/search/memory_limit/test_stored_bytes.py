"""A lower bound on the bytes of weights on a device, against all layouts in which they may be stored."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.layout import At, Invariant, Mesh, MeshAxis, Shard
from unity_dsl.index.library import Library
from unity_dsl.machine.collective_price import local_fraction
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.resources import folder
from unity_dsl.search.choices.layout_space import Space
from unity_dsl.search.memory_limit.stored_bytes import HELD_TRAINED, StoredBytes, most_parts

from ..conftest import Build

MODEL = """
model m[b = 4]
  input x: f32[b, 12]
  input target: f32[b, 12]
  weight w: f32[12, 12] ~ normal(0.1)
  weight bias: f32[12] ~ zeros
  repeat 3 as layer
    weight up: f32[40, 12] ~ normal(0.1)
    weight down: f32[12, 40] ~ normal(0.1)
    x = x + linear(relu(linear(x, up)), down)
  y = linear(x, w) + bias
  loss mse(y, target)
"""


def test_parts_against_every_way_to_cut() -> None:
    for seed in range(200):
        rng = Random(seed)
        extents = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12, 20, 35)) for _ in range(rng.randint(0, 3)))
        degrees = tuple(rng.choice((2, 3, 4, 5, 6)) for _ in range(rng.randint(0, 4)))
        best = 1
        for dims in product(range(-1, len(extents)), repeat=len(degrees)):
            cuts = [prod(d for d, dim in zip(degrees, dims, strict=True) if dim == i) for i in range(len(extents))]
            if all(extent % cut == 0 for extent, cut in zip(extents, cuts, strict=True)):
                best = max(best, prod(cuts))
        assert most_parts(extents, degrees) == best, f"seed {seed}: {extents} on {degrees}"


@pytest.mark.parametrize("degrees", [(2,), (6,), (2, 4), (4, 3), (2, 2, 5)])
def test_bytes_against_every_layout(degrees: tuple[int, ...], library: Library, build: Build) -> None:
    model, mesh = build(MODEL), Mesh(tuple(MeshAxis(f"a{i}", degree, 0) for i, degree in enumerate(degrees)))
    conversions = ConversionModel(mesh, load_machine("dgx-h100"), library)
    expected = 0.0
    for _, weight in model.weights():
        space = Space(weight.value.shape, conversions)
        fraction = min(local_fraction(space.layouts[number], mesh) for number in space.storable)
        expected += HELD_TRAINED * weight.value.bytes * fraction
    assert StoredBytes.of(model).least(mesh) == pytest.approx(expected)


def test_no_mesh_holds_less_than_any_may(build: Build) -> None:
    stored, machine = StoredBytes.of(build(MODEL)), load_machine("dgx-h100")
    for devices in (1, 2, 6, 8, 60):
        every = [stored.least(mesh) for mesh in all_meshes(machine, devices)]
        assert stored.least_on_any(devices) <= min(every) * (1 + 1e-12)


def test_what_is_on_one_coordinate_counts_as_divided(build: Build) -> None:
    """A device may then hold nothing of it."""
    model, mesh = build(MODEL), Mesh((MeshAxis("a", 7, 0),))
    total = sum(HELD_TRAINED * weight.value.bytes for _, weight in model.weights())
    assert (
        StoredBytes.of(model).least(mesh) == StoredBytes.of(model, [(Shard(0),), (Invariant(),)]).least(mesh) == total
    )
    placed = StoredBytes.of(model, [(At(0),)])
    assert placed.least(mesh) == placed.least_on_any(7) == pytest.approx(total / 7)


def test_weights_that_no_mesh_divides_are_told_at_once() -> None:
    """On 7 devices no weight of mlp can be divided. No number of micro-batches is tried, though a seventh would fit."""
    path = folder("examples") / "mlp.udl"
    whole = compile_model(Request(path, preset="small", devices=1, memory=10**12)).plan
    memory = whole.cost.memory
    limit = int((memory.total - memory.activations) / 2)
    found = compile_model(Request(path, {"b": 28}, "small", devices=7, memory=limit)).plan
    assert found.warnings and any("micro-batches would not help" in note for note in found.notes)

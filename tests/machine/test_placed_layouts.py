"""Layouts on one coordinate: conversions from and to them keep the value and its gradient, and cost what their steps
cost.
"""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from tests.graph.simulation import LIBRARY, decode, encode, is_there, layouts, run
from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.graph.layout import At, Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, Window, nest
from unity_dsl.machine.conversion_model import TIE, ConversionModel
from unity_dsl.machine.machine import load_machine

from .test_conversion_model import counted

DGX = load_machine("dgx-a100")
TWO = Mesh((MeshAxis("a", 2),))
THREE = Mesh((MeshAxis("a", 3),))
FOUR = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))
SIX = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 3)))
SHAPE = (12, 24)
COUNTS = (0.0, 1e5, 1e8)


def placed(mesh: Mesh) -> list[Layout]:
    """Every layout of a matrix that is placed on one coordinate of some axis."""
    others: list[Kind] = [Invariant(), Replicate(), Partial(), Shard(0), Shard(1)]
    kinds = [[*others, *map(At, range(degree))] for degree in mesh.degrees]
    return [layout for chosen in product(*kinds) if (layout := nest(chosen)).placement]


def check_both_ways(model: ConversionModel, source: Layout, target: Layout, count: float, seed: int) -> None:
    rng, mesh = np.random.default_rng(seed), model.mesh
    conversion = model.conversion(source, target, SHAPE, count)
    for steps, start, end in (
        (conversion.forward, source, target),
        (conversion.backward, target.transpose, source.transpose),
    ):
        value = rng.integers(-9, 9, SHAPE).astype(float)
        held = run(steps, encode(value, start, mesh, rng), mesh, SHAPE)
        assert np.array_equal(decode(held, end, SHAPE, mesh), value), (str(source), str(target), seed)
        if start.placement == end.placement:
            kept = {axis for axis, _ in start.placement}
            assert not any(kept & {*step.axes} for step in steps), "others take part in what concerns these devices"


@pytest.mark.parametrize("mesh", [TWO, THREE, FOUR, SIX], ids=["2", "3", "2x2", "2x3"])
def test_every_pair_of_which_one_is_on_one_coordinate(mesh: Mesh) -> None:
    model, every = ConversionModel(mesh, DGX, LIBRARY), placed(mesh)
    pairs = list(product(every, [*every, *layouts(2, mesh)]))
    for seed, (one, other) in enumerate(pairs if len(pairs) < 200 else Random(9).sample(pairs, 200)):
        check_both_ways(model, one, other, COUNTS[seed % 3], seed)
        check_both_ways(model, other, one, COUNTS[seed % 3], seed)


def test_every_pair_has_the_price_of_its_steps() -> None:
    for mesh, in_buckets in product((TWO, FOUR, SIX), (False, True)):
        model, rng = ConversionModel(mesh, DGX, LIBRARY), Random(3)
        every = [*placed(mesh), *layouts(2, mesh)]
        for count in COUNTS:
            seconds = model.seconds(model.located(every, SHAPE), count, in_buckets=in_buckets)
            for _ in range(150):
                i, j = rng.randrange(len(every)), rng.randrange(len(every))
                steps = model.steps(every[i], every[j], SHAPE, count, in_buckets=in_buckets)
                told = model.seconds_of(steps, every[i], SHAPE, count, in_buckets=in_buckets)
                assert seconds[i, j] == pytest.approx(told, rel=1e-9, abs=10 * TIE)
                if not in_buckets:
                    price = counted(steps, every[i], SHAPE, mesh, DGX).seconds(count)
                    assert told == pytest.approx(price, rel=1e-12)


@pytest.mark.parametrize(
    ("source", "target", "forward", "backward"),
    [
        (Replicate(), At(1), [], [StepKind.MASK]),
        (Invariant(), At(1), [], [StepKind.MASK, StepKind.ALL_REDUCE]),
        (At(1), Partial(), [StepKind.MASK], []),
        (At(1), Invariant(), [StepKind.MASK, StepKind.ALL_REDUCE], []),
        (At(1), Replicate(), [StepKind.MASK, StepKind.ALL_REDUCE], [StepKind.ALL_REDUCE]),
        (At(0), At(1), [StepKind.MASK, StepKind.ALL_REDUCE], [StepKind.MASK, StepKind.ALL_REDUCE]),
        (At(1), Shard(0), [StepKind.MASK, StepKind.REDUCE_SCATTER], [StepKind.ALL_GATHER]),
    ],
)
def test_what_they_take(source: Kind, target: Kind, forward: list[StepKind], backward: list[StepKind]) -> None:
    conversion = ConversionModel(TWO, DGX, LIBRARY).conversion(Layout((source,)), Layout((target,)), (4, 4), 1e9)
    assert [step.kind for step in conversion.forward] == forward
    assert [step.kind for step in conversion.backward] == backward
    masks = [step.member for step in (*conversion.forward, *conversion.backward) if step.kind is StepKind.MASK]
    assert all(member in (source.coordinate if isinstance(source, At) else 1, 1) for member in masks)


def test_windows_are_cut_by_the_devices_that_have_the_tensor() -> None:
    shape, rng = (4, 2, 8, 12), np.random.default_rng(5)
    around = Window(2, 0, "halo", (("before", 1), ("after", 1)))
    model = ConversionModel(FOUR, DGX, LIBRARY)
    for coordinate in (0, 1):
        source, target = Layout((At(coordinate), Shard(2))), Layout((At(coordinate), around))
        (step,) = model.steps(source, target, shape, 1e6)
        assert step.kind is StepKind.EXCHANGE and step.axes == (1,)
        value = rng.integers(-9, 9, shape).astype(float)
        held = run((step,), encode(value, source, FOUR, rng), FOUR, shape)
        there = [local for rank, local in enumerate(held) if is_there(target, FOUR.coordinates(rank))]
        assert np.array_equal(there[0][:, :, 1:], value[:, :, :5]) and np.array_equal(
            there[1][:, :, :-1], value[:, :, 3:]
        )

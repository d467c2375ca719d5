"""Conversions keep the value and its gradient, cost what their steps cost, and obey the two laws of prices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from tests.graph.simulation import LIBRARY, decode, encode, layouts, run, run_transfers
from tests.graph.transfers import transfers
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, Window, nest
from unity_dsl.graph.layout_codes import layouts_in_order
from unity_dsl.graph.layout_conversion import divides, divisors
from unity_dsl.machine.collective_price import local_fraction, price_copies, price_exchange, price_steps
from unity_dsl.machine.conversion_model import TIE, ConversionModel
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.price import Price
from unity_dsl.machine.two_step_collectives import ways as ways_of

DGX = load_machine("dgx-a100")
SUMMIT = load_machine("summit")
TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))
SIX = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 3)))
EIGHT = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2), MeshAxis("c", 2)))
COUNTS = (0.0, 1e5, 1e8)
"""Bytes of a tensor: latency dominates, matters, or is negligible."""


def assert_conversion(
    model: ConversionModel, source: Layout, target: Layout, shape: tuple[int, ...], count: float, seed: int
) -> None:
    rng, mesh = np.random.default_rng(seed), model.mesh
    conversion = model.conversion(source, target, shape, count)
    value = rng.integers(-9, 9, shape).astype(float)
    held = encode(value, source, mesh, rng)
    converted = run(conversion.forward, held, mesh, shape)
    assert np.allclose(decode(converted, target, shape, mesh), value)
    assert np.allclose(decode(run_transfers(source, target, held, mesh, shape), target, shape, mesh), value)
    cotangent = rng.integers(-9, 9, shape).astype(float)
    taken_back = run(conversion.backward, encode(cotangent, target.transpose, mesh, rng), mesh, shape)
    assert np.allclose(decode(taken_back, source.transpose, shape, mesh), cotangent)


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("mesh", [TWO, FOUR, SIX], ids=["2", "2x2", "2x3"])
def test_every_pair_of_layouts(mesh: Mesh) -> None:
    model = ConversionModel(mesh, DGX, LIBRARY)
    for seed, (source, target) in enumerate(product(layouts(2, mesh), repeat=2)):
        assert_conversion(model, source, target, (12, 24), COUNTS[seed % 3], seed)


def test_sampled_pairs_on_three_axes_and_rank_three() -> None:
    rng, model = np.random.default_rng(7), ConversionModel(EIGHT, DGX, LIBRARY)
    every = layouts(3, EIGHT)
    for seed in range(300):
        source, target = (every[i] for i in rng.integers(len(every), size=2))
        assert_conversion(model, source, target, (8, 16, 8), COUNTS[seed % 3], seed)


@pytest.mark.parametrize("shape", [(2, 4), (4, 6), (2, 2, 3), (3, 4)])
def test_paths_keep_to_layouts_that_divide(shape: tuple[int, ...]) -> None:
    model = ConversionModel(FOUR, DGX, LIBRARY)
    every = [layout for layout in layouts(len(shape), FOUR) if divides(layout, shape, FOUR)]
    for seed, (source, target) in enumerate(product(every, repeat=2)):
        assert_conversion(model, source, target, shape, COUNTS[seed % 3], seed)


def test_nesting_out_of_mesh_order() -> None:
    model, major_b = ConversionModel(FOUR, DGX, LIBRARY), Layout((Shard(0, 1), Shard(0, 0)))
    for seed, other in enumerate(layouts(2, FOUR)):
        assert_conversion(model, major_b, other, (8, 8), 1e8, seed)
        assert_conversion(model, other, major_b, (8, 8), 1e8, seed)


@pytest.mark.parametrize(
    ("source", "target", "forward", "backward"),
    [
        ("I", "R", [], [StepKind.ALL_REDUCE]),
        ("P", "I", [StepKind.ALL_REDUCE], []),
        ("P", "R", [StepKind.ALL_REDUCE], [StepKind.ALL_REDUCE]),
        ("I", "S0", [StepKind.SLICE], [StepKind.ALL_GATHER]),
        ("S0", "I", [StepKind.ALL_GATHER], [StepKind.SLICE]),
        ("S0", "R", [StepKind.ALL_GATHER], [StepKind.REDUCE_SCATTER]),
        ("P", "S1", [StepKind.REDUCE_SCATTER], [StepKind.ALL_GATHER]),
        ("S0", "S1", [StepKind.ALL_TO_ALL], [StepKind.ALL_TO_ALL]),
        ("R", "S0", [StepKind.SLICE], [StepKind.PAD]),
        ("R", "I", [], [StepKind.MASK]),
    ],
)
def test_recognised_collectives(source: str, target: str, forward: list[StepKind], backward: list[StepKind]) -> None:
    kinds: dict[str, Kind] = {"I": Invariant(), "R": Replicate(), "P": Partial(), "S0": Shard(0), "S1": Shard(1)}
    model = ConversionModel(TWO, DGX, LIBRARY)
    conversion = model.conversion(nest([kinds[source]]), nest([kinds[target]]), (4, 4), 1e9)
    assert [step.kind for step in conversion.forward] == forward
    assert [step.kind for step in conversion.backward] == backward


# ------------------------------------------------------------------------------------------------ prices


@pytest.mark.parametrize(
    ("machine", "devices", "mesh_shape", "shape"),
    [
        (DGX, 8, (2, 2, 2), (8, 24)),
        (DGX, 8, (2, 2, 2), (2, 6, 4)),
        (DGX, 16, (4, 4), (16, 8, 4)),
        (SUMMIT, 12, (2, 2, 3), (12, 6)),
        (SUMMIT, 6, (2, 3), (6, 2, 3)),
        (DGX, 32, (32,), (32, 64)),
    ],
)
def test_every_pair_has_the_price_of_its_steps(
    machine: Machine, devices: int, mesh_shape: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    mesh = build_mesh(machine, devices, mesh_shape)
    every = list(layouts_in_order(divisors(shape, mesh), mesh))
    against = Layout(tuple(Shard(0, len(mesh.axes) - 1 - i) for i in range(len(mesh.axes))))
    if divides(against, shape, mesh):  # nested against the mesh order, as in merged dimensions
        every.append(against)
    model, rng = ConversionModel(mesh, machine, LIBRARY), Random(0)
    pairs = [(rng.randrange(len(every)), rng.randrange(len(every))) for _ in range(300)]
    pairs += [(i, len(every) - 1) for i in range(0, len(every), 7)]
    for count in COUNTS:
        seconds = model.seconds(model.located(every, shape), count)
        for i, j in pairs:
            steps = model.steps(every[i], every[j], shape, count)
            told = counted(steps, every[i], shape, mesh, machine).seconds(count)
            assert seconds[i, j] == pytest.approx(told, rel=1e-9, abs=10 * TIE)
            assert model.seconds_of(steps, every[i], shape, count) == pytest.approx(told, rel=1e-12)


@pytest.mark.parametrize(
    ("machine", "devices", "mesh_shape"), [(DGX, 8, (2, 2, 2)), (DGX, 32, (4, 4, 2)), (SUMMIT, 36, (6, 6))]
)
@pytest.mark.parametrize("begun", [0.05, 0.4])
def test_of_an_all_gather_that_comes_first_a_part_counts(
    machine: Machine, devices: int, mesh_shape: tuple[int, ...], begun: float
) -> None:
    """Against every first all-gather, counted by the fraction `begun`, followed by the cheapest
    conversion from there.
    """
    mesh, shape = build_mesh(machine, devices, mesh_shape), (144, 288)
    every = list(layouts_in_order(divisors(shape, mesh), mesh))
    model, rng = ConversionModel(mesh, machine, LIBRARY), Random(0)
    located, gathered = model.located(every, shape), 0
    for count in COUNTS:
        whole, seconds = model.seconds(located, count), model.seconds(located, count, begun=begun)
        for i, j in [(rng.randrange(len(every)), rng.randrange(len(every))) for _ in range(300)]:
            ways = [whole[i, j]] if i != j else [0.0]
            for step, middle in all_gathers(every[i].without_copies) if i != j else ():
                for way in ways_of(step, mesh, machine):
                    first = counted([way], every[i], shape, mesh, machine).seconds(count)
                    ways.append(begun * first + whole[every.index(middle), j])
            assert seconds[i, j] == pytest.approx(min(ways), rel=1e-9, abs=20 * TIE)
            steps = model.steps(every[i], every[j], shape, count, begun=begun)
            told = model.seconds_of(steps, every[i], shape, count, begun=begun)
            assert told == pytest.approx(min(ways), rel=1e-9, abs=20 * TIE)
            gathered += whole[i, j] > seconds[i, j] + 20 * TIE
    assert gathered > 100


def all_gathers(layout: Layout) -> list[tuple[Step, Layout]]:
    """The all-gathers that a layout allows: over some or all of the mesh axes that cut a dimension, innermost first."""
    found = []
    for dim in {kind.dim for kind in layout.kinds if isinstance(kind, Shard)}:
        nesting = layout.nesting(dim)
        for number in range(len(nesting)):
            kinds = [Invariant() if axis in nesting[number:] else kind for axis, kind in enumerate(layout.kinds)]
            found.append((Step(StepKind.ALL_GATHER, nesting[number:], dim), Layout(tuple(kinds))))
    return found


def test_what_is_gathered_ahead_is_gathered_at_once() -> None:
    """Slicing along other axes first would shorten the gather, but the gather could not be prefetched."""
    mesh = build_mesh(DGX, 64, (8, 4, 2))
    source, target = nest([Shard(0), Shard(0), Invariant()]), nest([Invariant(), Invariant(), Invariant()])
    model = ConversionModel(mesh, DGX, LIBRARY)
    first, *_ = model.conversion(source, target, (8192, 8192), 1e8).forward
    assert first.kind is not StepKind.ALL_GATHER
    (step,) = model.steps(source, target, (8192, 8192), 1e8, begun=0.05)
    assert step == Step(StepKind.ALL_GATHER, (0, 1), 0)


def windows(shape: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """All layouts of an image, including those where height, width or both are slices with a halo."""
    around = {dim: Window(dim, 0, "halo", (("before", 1), ("after", 1))) for dim in (2, 3)}
    kinds: list[Kind] = [Invariant(), Replicate(), Partial(), Shard(0), Shard(1), Shard(2), *around.values()]
    found = list(layouts_in_order(divisors(shape, mesh), mesh))
    for chosen in product(kinds, repeat=len(mesh.axes)):
        cuts = [kind for kind in chosen if isinstance(kind, Shard | Window)]
        if any(isinstance(kind, Window) for kind in chosen) and len({kind.dim for kind in cuts}) == len(cuts):
            found.append(Layout(chosen))
    both = tuple(Window(3, place, "halo", (("before", 0), ("after", 2))) for place in range(len(mesh.axes)))
    return [*found, Layout(both)]


def counted(steps: Sequence[Step], start: Layout, shape: tuple[int, ...], mesh: Mesh, machine: Machine) -> Price:
    """The price of steps. An exchange is priced by the elements of its transfers."""
    total, held = Price(), local_fraction(start, mesh)
    for step in steps:
        if step.kind is StepKind.EXCHANGE and step.source is not None and step.target is not None:
            received = [0] * mesh.size
            for transfer in transfers(step.source, step.target, shape, mesh, LIBRARY):
                received[transfer.taker] += transfer.elements * (transfer.giver != transfer.taker)
            before, held = held, local_fraction(step.target, mesh)
            total += price_exchange(step.axes, max(received) / prod(shape), mesh, machine, before, held)
        else:
            before = held
            total += price_steps((step,), mesh, machine, held)
            if step.kind in (StepKind.SLICE, StepKind.REDUCE_SCATTER):
                held /= mesh.degree(step.axes)
            elif step.kind in (StepKind.ALL_GATHER, StepKind.PAD):
                held *= mesh.degree(step.axes)
            total += price_copies(step, machine, before, held)
    return total


def test_windows_have_the_price_of_what_is_sent_and_keep_the_value() -> None:
    shape = (4, 2, 8, 12)
    mesh = build_mesh(DGX, 4, (2, 2))
    every = windows(shape, mesh)
    model, rng = ConversionModel(mesh, DGX, LIBRARY), Random(1)
    held = [i for i, layout in enumerate(every) if layout.overlaps]
    pairs = [(rng.randrange(len(every)), rng.choice(held)) for _ in range(80)]
    pairs += [(rng.choice(held), rng.randrange(len(every))) for _ in range(40)]
    for count in (0.0, 1e9):
        there = model.seconds(model.located(every, shape), count)
        back = model.seconds(model.located([layout.transpose for layout in every], shape), count)
        for seed, (i, j) in enumerate(pairs):
            conversion = model.conversion(every[i], every[j], shape, count)
            told = counted(conversion.forward, every[i], shape, mesh, DGX).seconds(count)
            assert there[i, j] == pytest.approx(told, rel=1e-9, abs=10 * TIE)
            told = counted(conversion.backward, every[j].transpose, shape, mesh, DGX).seconds(count)
            assert back[j, i] == pytest.approx(told, rel=1e-9, abs=10 * TIE)
            if count:
                assert_conversion(model, every[i], every[j], shape, count, seed)


def refined(layout: Layout, parts: Sequence[int]) -> Layout:
    """The layout on a refined mesh: axis i of the layout's mesh becomes `parts[i]` neighbouring axes."""
    kinds: list[Kind] = []
    start = [sum(parts[:axis]) for axis in range(len(parts))]
    for axis, kind in enumerate(layout.kinds):
        for part in range(parts[axis]):
            if isinstance(kind, Shard):
                before = [other for other in layout.nesting(kind.dim) if layout.cut(other).place < kind.place]
                kinds.append(Shard(kind.dim, sum(parts[other] for other in before) + part))
            else:
                kinds.append(kind)
    assert len(kinds) == sum(parts) == start[-1] + parts[-1]
    return Layout(tuple(kinds))


@pytest.mark.parametrize(
    ("machine", "coarse", "fine", "parts", "ranks", "most"),
    [
        (DGX, (8,), (2, 2, 2), (3,), 3, None),
        (DGX, (2, 4), (2, 2, 2), (1, 2), 3, None),
        (DGX, (4, 2), (2, 2, 2), (2, 1), 3, None),
        (DGX, (64,), (2, 4, 8), (3,), 3, None),
        (DGX, (8, 8), (2, 4, 8), (2, 1), 3, 4000),
        (DGX, (2, 32), (2, 4, 8), (1, 2), 3, 4000),
        (SUMMIT, (32, 6), (32, 2, 3), (1, 2), 3, 4000),
        (SUMMIT, (192,), (32, 2, 3), (3,), 3, None),
        (SUMMIT, (192,), (32, 6), (2,), 3, None),
        (SUMMIT, (32, 6), (8, 4, 6), (2, 1), 3, 4000),
    ],
)
def test_a_refined_mesh_converts_for_no_more(
    machine: Machine,
    coarse: tuple[int, ...],
    fine: tuple[int, ...],
    parts: tuple[int, ...],
    ranks: int,
    most: int | None,
) -> None:
    meshes = [build_mesh(machine, prod(degrees), degrees) for degrees in (coarse, fine)]
    models = [ConversionModel(mesh, machine, LIBRARY) for mesh in meshes]
    shape = (prod(coarse),) * ranks
    every = layouts(ranks, meshes[0])
    finer = [refined(layout, parts) for layout in every]
    pairs = np.array(list(product(range(len(every)), repeat=2)))
    if most is not None and len(pairs) > most:
        pairs = np.random.default_rng(3).choice(pairs, most, replace=False)
    held = [model.located(found, shape) for model, found in zip(models, (every, finer), strict=True)]
    for count in COUNTS:
        there, finer_there = (model.seconds(found, count) for model, found in zip(models, held, strict=True))
        excess = finer_there - there * (1 + 1e-9) - 20 * TIE
        i, j = pairs[np.argmax(excess[pairs[:, 0], pairs[:, 1]])]
        assert excess[i, j] <= 0, (every[i], every[j], count, there[i, j], finer_there[i, j])


@pytest.mark.parametrize(("machine", "degrees"), [(DGX, (2, 2, 2)), (SUMMIT, (4, 2, 3))])
def test_no_path_of_conversions_is_cheaper(machine: Machine, degrees: tuple[int, ...]) -> None:
    mesh = build_mesh(machine, prod(degrees), degrees)
    every, shape = layouts(2, mesh), (mesh.size,) * 2
    for count in COUNTS:
        model = ConversionModel(mesh, machine, LIBRARY)
        seconds = model.seconds(model.located(every, shape), count)
        for middle in range(len(every)):
            assert (seconds <= (seconds[:, middle, None] + seconds[middle]) * (1 + 1e-12) + 1e-15).all()


def test_shapes_that_convert_alike_are_located_once() -> None:
    mesh = build_mesh(DGX, 4, (2, 2))
    every = windows((4, 2, 8, 12), mesh)
    model = ConversionModel(mesh, DGX, LIBRARY)
    first = model.located(every, (4, 2, 8, 12))
    assert model.located(every, (12, 6, 8, 12)) is first, "the extents of blocks matter no more than their divisors"
    other = model.located(every, (4, 2, 24, 12))
    assert other is not first, "those of windows do"
    alone = ConversionModel(mesh, DGX, LIBRARY)
    for count in COUNTS:
        assert np.array_equal(model.seconds(first, count), alone.seconds(alone.located(every, (12, 6, 8, 12)), count))
        if count:
            assert (model.seconds(other, count) <= model.seconds(first, count)).all(), "of more rows rims are fewer"
            assert (model.seconds(other, count) < model.seconds(first, count)).any()

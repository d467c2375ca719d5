"""Conversions keep the value, their backward is the adjoint, and collectives equal the generic lowering."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Layout, Mesh, MeshAxis, Shard, nest
from unity_dsl.graph.layout_conversion import convert, divides, move_table

from .simulation import decode, encode, layouts, run, run_transfers

TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
SIX = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 3)))
EIGHT = Mesh((MeshAxis("a", 2), MeshAxis("b", 2), MeshAxis("c", 2)))


def assert_conversion(source: Layout, target: Layout, mesh: Mesh, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    conversion = convert(source, target, mesh, shape)
    value = rng.integers(-9, 9, shape).astype(float)
    held = encode(value, source, mesh, rng)
    converted = run(conversion.forward, held, mesh, shape)
    assert np.array_equal(decode(converted, target, shape, mesh), value)
    assert np.array_equal(decode(run_transfers(source, target, held, mesh, shape), target, shape, mesh), value)
    cotangent = rng.integers(-9, 9, shape).astype(float)
    taken_back = run(conversion.backward, encode(cotangent, target.transpose, mesh, rng), mesh, shape)
    assert np.array_equal(decode(taken_back, source.transpose, shape, mesh), cotangent)


@pytest.mark.parametrize(("mesh", "rank"), [(TWO, 2), (FOUR, 2), (SIX, 2)], ids=["2", "2x2", "2x3"])
def test_every_pair_of_layouts(mesh: Mesh, rank: int) -> None:
    for seed, (source, target) in enumerate(product(layouts(rank, mesh), repeat=2)):
        assert_conversion(source, target, mesh, (12, 24)[:rank], seed)


def test_sampled_pairs_on_three_axes_and_rank_three() -> None:
    rng = np.random.default_rng(7)
    every = layouts(3, EIGHT)
    for seed in range(300):
        source, target = (every[i] for i in rng.integers(len(every), size=2))
        assert_conversion(source, target, EIGHT, (8, 16, 8), seed)


@pytest.mark.parametrize("shape", [(2, 4), (4, 6), (2, 2, 3), (3, 4)])
def test_paths_keep_to_layouts_that_divide(shape: tuple[int, ...]) -> None:
    every = [layout for layout in layouts(len(shape), FOUR) if divides(layout, shape, FOUR)]
    for seed, (source, target) in enumerate(product(every, repeat=2)):
        assert_conversion(source, target, FOUR, shape, seed)


def test_nesting_out_of_mesh_order() -> None:
    major_b = Layout((Shard(0, 1), Shard(0, 0)))
    for seed, other in enumerate(layouts(2, FOUR)):
        assert_conversion(major_b, other, FOUR, (8, 8), seed)
        assert_conversion(other, major_b, FOUR, (8, 8), seed)


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
    from unity_dsl.graph.layout import Invariant, Kind, Partial, Replicate

    kinds: dict[str, Kind] = {"I": Invariant(), "R": Replicate(), "P": Partial(), "S0": Shard(0), "S1": Shard(1)}
    conversion = convert(nest([kinds[source]]), nest([kinds[target]]), TWO, (4, 4))
    assert [step.kind for step in conversion.forward] == forward
    assert [step.kind for step in conversion.backward] == backward


def test_same_steps_on_two_axes_are_one_collective() -> None:
    from unity_dsl.graph.layout import Invariant, Partial, Replicate

    shards = nest([Shard(0), Shard(0)])
    assert convert(shards, nest([Invariant()] * 2), FOUR, (4, 4)).forward == (Step(StepKind.ALL_GATHER, (0, 1), 0),)
    assert convert(nest([Partial()] * 2), shards, FOUR, (4, 4)).forward == (Step(StepKind.REDUCE_SCATTER, (0, 1), 0),)
    assert convert(nest([Partial()] * 2), nest([Invariant()] * 2), FOUR, (4, 4)).forward == (
        Step(StepKind.ALL_REDUCE, (0, 1)),
    )
    assert convert(nest([Invariant()] * 2), nest([Replicate()] * 2), FOUR, (4, 4)).backward == (
        Step(StepKind.ALL_REDUCE, (0, 1)),
    )


def test_paths_of_the_table_end_where_they_should() -> None:
    table = move_table((4, 4), FOUR)
    for source, target in product(table.layouts[: table.in_order], repeat=2):
        here = source
        for move in table.path(source, target):
            assert move.source == here
            here = move.target
        assert here == target

"""Two-step collectives: their price is the sum of both steps, and they are chosen where they are shorter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Partial, Shard
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.collective_price import fastest_price, fastest_way, price_step
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.two_step_collectives import ways

H100 = load_machine("dgx-h100")
MESH = Mesh((MeshAxis("a", 64, 1), MeshAxis("b", 8)))
GATHER, SCATTER, ALL_TO_ALL = StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL


def seconds(step: Step, count: float) -> float:
    """Seconds of a step on a tensor of which a device holds `count` bytes."""
    return price_step(step, MESH, H100, 1.0)[0].seconds(count)


@pytest.mark.parametrize("count", [1e3, 1e5, 1e7])
def test_the_price_is_that_of_both_steps_and_the_copies(count: float) -> None:
    """Between nodes, a gather or a sum sends the eighth that a rank has. An all-to-all sends everything."""
    copy = H100.launch_seconds + H100.traffic_seconds(2 * 512 * count)
    apart = seconds(Step(GATHER, (0,)), count) + seconds(Step(GATHER, (1,)), 64 * count)
    assert seconds(Step(GATHER, (0, 1), first=(0,)), count) == pytest.approx(apart + copy)
    copy = H100.launch_seconds + H100.traffic_seconds(2 * count)
    apart = seconds(Step(SCATTER, (1,)), count) + seconds(Step(SCATTER, (0,)), count / 8)
    assert seconds(Step(SCATTER, (0, 1), first=(0,)), count) == pytest.approx(apart + copy)
    apart = seconds(Step(ALL_TO_ALL, (0,)), count) + seconds(Step(ALL_TO_ALL, (1,)), count)
    assert seconds(Step(ALL_TO_ALL, (0, 1), first=(0,)), count) == pytest.approx(apart + 2 * copy)


@pytest.mark.parametrize("kind", [GATHER, SCATTER, ALL_TO_ALL])
def test_small_tensors_go_in_two_steps_and_large_ones_at_once(kind: StepKind) -> None:
    whole = Step(kind, (0, 1))
    staged = replace(whole, first=(0,))
    held = 1 / 512 if kind is GATHER else 1.0
    assert fastest_way(whole, MESH, H100, held * 1e6) == staged
    assert fastest_way(whole, MESH, H100, held * 8e9) == whole
    for count in (held * 1e6, held * 8e9):
        least = min(seconds(whole, count), seconds(staged, count))
        assert fastest_price(whole, MESH, H100).seconds(count) == pytest.approx(least)


def test_groups_within_a_node_or_of_one_rank_a_node_have_one_way() -> None:
    for axes in ((0,), (1,)):
        assert list(ways(Step(GATHER, axes), MESH, H100)) == [Step(GATHER, axes)]
    inside = Mesh((MeshAxis("a", 2), MeshAxis("b", 4)))
    assert len(list(ways(Step(GATHER, (0, 1)), inside, H100))) == 1
    assert len(list(ways(Step(StepKind.ALL_REDUCE, (0, 1)), MESH, H100))) == 1


def test_a_gather_that_is_begun_ahead_takes_the_way_that_is_priced() -> None:
    """The last reduce-scatter of a bucket also takes the way that is priced."""
    model, shape, begun = ConversionModel(MESH, H100, load_library()), (4096, 64), 0.05
    whole, cut = Layout((Invariant(),) * 2), Layout((Shard(0, 0), Shard(0, 1)))
    terms, located = Layout((Partial(),) * 2), model.located([cut, whole], shape)
    for count, first in ((1e7, (0,)), (8e9, ())):
        (step,) = model.steps(cut, whole, shape, count, begun=begun)
        assert step == Step(GATHER, (0, 1), first=first)
        table = model.seconds(located, count, begun=begun)
        told = model.seconds_of([step], cut, shape, count, begun=begun)
        assert table[0, 1] == pytest.approx(told) == pytest.approx(begun * seconds(step, count / 512))
    in_buckets = ConversionModel(MESH, H100, load_library(), gradient_bytes=1e9)
    (summed,) = in_buckets.steps(terms, cut, shape, 1e4, in_buckets=True)
    assert summed == Step(SCATTER, (0, 1), first=(0,))

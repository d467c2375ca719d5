"""Passes that hill climbing switches on: if a step becomes shorter, not if it could not, or would not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_conversion import BUCKET_MIB
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.search.constants import DOUBLED, GAIN, WORTH
from unity_dsl.search.evaluate import Evaluator
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.moves import passes
from unity_dsl.search.moves.passes import climbed, inherited, interleaving
from unity_dsl.search.pass_notes import pass_notes
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.exposure import exposed_sums
from unity_dsl.simulation.step_tasks import simulate_step, step_tasks

from ..conftest import Build

MEGATRON = """
model megatron[n = 1]
  input x: f32[4096, 4096]
  input target: f32[4096, 4096]
  weight first: f32[4096, 4096] ~ normal(0.1)
  h = linear(x, first)
  weight a: f32[4096, 4096] ~ normal(0.1)
  weight b: f32[4096, 4096] ~ normal(0.1)
  m = relu(h)
  h = linear(relu(linear(m, a)), b)
  loss mse(h, target)
"""
PINS = ["first=I", "m=I", "a=S0", "b=S1"]
"""Tensor parallelism on two devices: all-reduces of the gradient of `m` and of the product with `b`."""


def megatron(build: Build, library: Library, machine: Machine, size: int = 4096) -> Plan:
    model = build(MEGATRON.replace("4096", str(size)))
    return search(model, all_meshes(machine, 2), machine, library, "auto", pins=parse_pins(PINS))


def test_gradients_are_deferred_and_products_decomposed_where_a_step_is_shorter(build: Build, library: Library) -> None:
    """The large model gets both passes. The small one, whose launches take longer, gets no decomposed products."""
    machine = load_machine("dgx-h100")
    plan, evaluator = megatron(build, library, machine), Evaluator(machine, library)
    after = climbed(plan, evaluator)
    assert after.passes.deferred_gradients and after.passes.chunks == 2
    for without in (after.with_passes(deferred_gradients=False), after.with_passes(chunks=1), plan):
        assert evaluator.seconds(after) < (1 - GAIN) * evaluator.seconds(without)
    assert evaluator.held(after) == step_tasks(after, machine, library).peak().bytes
    deferred, products = pass_notes(after, library, evaluator.seconds)
    ratio = evaluator.seconds(after) / evaluator.seconds(after.with_passes(deferred_gradients=False))
    assert deferred == f"weight gradients are deferred to overlap communication ({ratio:.3f} x step time)"
    assert "`h_1`: a part of 2 is summed while the next is computed" in products
    assert climbed(megatron(build, library, machine, 64), evaluator).passes.chunks == 1


def test_a_pass_that_cannot_beat_the_incumbent_is_not_simulated(build: Build, library: Library) -> None:
    machine = load_machine("dgx-h100")
    plan, evaluator = megatron(build, library, machine), Evaluator(machine, library)
    shortest = evaluator.seconds(climbed(plan, evaluator))
    timeline = simulate_step(plan, machine, library)
    least = timeline.seconds - timeline.exposed()
    assert least < shortest < timeline.seconds
    few = Evaluator(machine, library)
    assert climbed(plan, few, least) is plan and few.count == 1
    more = Evaluator(machine, library)
    assert more.seconds(climbed(plan, more, shortest / (1 - 2 * WORTH))) == shortest and more.count > 2


def test_a_pass_that_does_not_fit_is_not_taken(build: Build, library: Library) -> None:
    """For a plan that fills the memory: passes that are taken there need no more memory."""
    machine = load_machine("dgx-h100")
    plan, free = megatron(build, library, machine), Evaluator(machine, library)
    assert free.held(climbed(plan, free)) > free.held(plan)
    full = Evaluator(machine.holding(int(free.held(plan))), library)
    found = climbed(plan, full)
    assert full.held(found) <= free.held(plan) and full.seconds(found) >= free.seconds(climbed(plan, free))


TOWERS = ["  input target: f32[b, d]", *(f"  input x{number}: f32[b, d]" for number in range(4))]
for tower in range(4):
    TOWERS += [f"  v{tower} = x{tower}", f"  repeat 4 as tower{tower}", "    weight w: f32[d, d] ~ normal(0.5)"]
    TOWERS += [f"    v{tower} = relu(linear(v{tower}, w))"]
TOWERS += ["  loss mse((v0 + v1) + (v2 + v3), target)"]


def test_repeats_are_interleaved_and_skewed_where_a_step_is_shorter(tmp_path: Path) -> None:
    """For four towers and random plans: no other skew has a shorter step than the one that is found."""
    towers, machine = tmp_path / "towers.udl", load_machine("dgx-h100")
    towers.write_text("\n".join(["model towers[b = 64, d = 4096]", *TOWERS]) + "\n")
    skews = set()
    for seed in (1, 2, 8):
        compiled = compile_model(Request(towers, machine="dgx-h100", devices=4, strategy=f"random:{seed}"))
        evaluator, found = Evaluator(machine, compiled.library), compiled.plan
        assert found.passes.interleaved and found.simulated == evaluator.seconds(found), seed
        others = [found.with_passes(skew=skew) for skew in (1, 2, 3, 4)]
        assert (1 - GAIN - WORTH) * evaluator.seconds(found) <= min(map(evaluator.seconds, others)), seed
        skews.add(found.passes.skew)
        assert any("skewed start" in note for note in found.notes) is (found.passes.skew > 1)
        plain = replace(found, graph=found.graph).with_passes(interleaved=(), skew=1)
        assert inherited(plain, found).passes == found.passes and interleaving(plain).passes.interleaved
    assert len(skews) > 1


@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_size_of_buckets_is_the_best_on_the_way_to_it(count: int, build: Build, library: Library) -> None:
    """Sizes are halved or doubled as long as that shortens the step. Sizes that do not change the step do not end the
    walk.
    """
    weights = [f"  weight w{number}: f32[1024, 1024] ~ normal(0.1)" for number in range(count)]
    lines = [f"  h = relu(linear(h, w{number}))" for number in range(count)]
    text = [
        "model m[n = 1]",
        "  input x: f32[768, 1024]",
        "  input target: f32[768, 1024]",
        *weights,
        "  h = x",
        *lines,
    ]
    machine, model = load_machine("summit"), build("\n".join([*text, "  loss mse(h, target)"]) + "\n")
    plan = search(model, all_meshes(machine, 6)[0], machine, library, "data_parallel")
    evaluator = Evaluator(machine, library)
    found = climbed(plan, evaluator)
    assert isinstance(plan.mesh, Mesh) and exposed_sums(evaluator.timeline(plan)) > WORTH
    size = found.passes.bucket_mib
    near = [size // 2, 2 * size] if 0 < size < BUCKET_MIB << DOUBLED else [size]
    for other in (*near, BUCKET_MIB):
        if (other < BUCKET_MIB) == (size < BUCKET_MIB) or other == BUCKET_MIB:
            assert evaluator.seconds(found.with_passes(bucket_mib=other)) >= (1 - GAIN - WORTH) * evaluator.seconds(
                found
            )


def test_buckets_of_both_sides_are_tried(build: Build, library: Library) -> None:
    """From an inherited large size, small sizes are reached, and vice versa."""
    machine = load_machine("summit")
    plan, evaluator = (
        search(build(MEGATRON), all_meshes(machine, 4), machine, library, "zero"),
        Evaluator(machine, library),
    )
    assert exposed_sums(simulate_step(plan, machine, library)) > WORTH
    for size, sizes in ((4 * BUCKET_MIB, {BUCKET_MIB // 2, 8 * BUCKET_MIB}), (6, {3, 2 * BUCKET_MIB})):
        other = plan.with_passes(bucket_mib=size)
        found = {switched.passes.bucket_mib for _, switched in passes._switched(other, evaluator)}
        assert found - {size} == sizes

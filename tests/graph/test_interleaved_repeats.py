"""Sets of repeats that allow interleaved execution, and the model order that places each set together."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import networkx
import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.graph import Graph, Segment
from unity_dsl.graph.interleaved_repeats import (
    in_model_order,
    independent_repeats,
    interleavable_repeats,
    interleaved_groups,
    run_number,
    side_by_side,
    start_delays,
    stretches,
)
from unity_dsl.graph.plan import Plan, PlannedSegment


def random_repeats(rng: Random) -> str:
    """A model of repeats, each reading the result of an earlier one or an input."""
    lines = ["model m[b = 4, d = 4]", *(f"  input x{i}: f32[b, d]" for i in range(2)), "  input target: f32[b, d]"]
    made = ["x0", "x1"]
    for number in range(rng.randint(3, 6)):
        read = rng.choice(made)
        lines += [
            f"  v{number} = {read} + {rng.choice(made)}",
            f"  repeat {rng.choice((2, 3))} as r{number}",
            "    weight w: f32[d, d] ~ normal(0.5)",
            f"    v{number} = tanh(linear(v{number}, w))",
        ]
        made.append(f"v{number}")
    total = " + ".join(made)
    return "\n".join([*lines, f"  y = {total}", "  loss mse(y, target)"]) + "\n"


def plan_of(text: str, folder: Path, strategy: str) -> Plan:
    """A plan without interleaved execution, its repeats one after the other in model order."""
    (folder / "model.udl").write_text(text)
    plan = compile_model(Request(folder / "model.udl", devices=2, strategy=strategy)).plan
    return replace(plan.with_passes(interleaved=()), graph=in_model_order(plan))


def needs(graph: Graph) -> networkx.DiGraph:
    """Step numbers, with an edge from each step to the steps that read its results."""
    found = networkx.DiGraph()
    found.add_nodes_from(range(len(graph.steps)))
    for (before, step), (after, other) in combinations(enumerate(graph.steps), 2):
        if {value.name for value in step.makes} & {value.name for value in other.reads}:
            found.add_edge(before, after)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_repeats_of_a_set_do_not_need_each_other(seed: int, tmp_path: Path) -> None:
    """No repeat of a set reaches another, and no set reaches another. Adding a repeat of the same length would violate
    this.
    """
    plan = plan_of(random_repeats(Random(seed)), tmp_path, f"random:{seed}")
    sets, graph = independent_repeats(plan), plan.graph.graph
    assert {name for names in sets for name in names} <= interleavable_repeats(graph)
    numbers = {step.name: number for number, step in enumerate(graph.steps) if isinstance(step, Segment)}
    reach = networkx.transitive_closure(needs(graph))
    for names in sets:
        assert not any(reach.has_edge(numbers[one], numbers[other]) for one in names for other in names)
        assert len({segment.count for segment in graph.segments if segment.name in names}) == 1
    if not sets:
        return
    ordered = side_by_side(plan, sets)
    assert ordered.passes.interleaved == sets
    assert sorted(map(id, ordered.graph.steps)) == sorted(map(id, plan.graph.steps))
    made = {source.value.name for source in graph.inputs} | {weight.value.name for weight in graph.weights}
    for step in ordered.graph.graph.steps:
        assert {value.name for value in step.reads} <= made, "it comes after what it reads"
        made |= {value.name for value in step.makes}
    bodies = [step for step in ordered.graph.steps if isinstance(step, PlannedSegment)]
    together = [tuple(step.segment.name for step in same) for same in interleaved_groups(bodies, sets) if len(same) > 1]
    assert sorted(together) == sorted(sets), "those of a set come together"
    again = in_model_order(ordered)
    assert again.steps == plan.graph.steps and again.graph == plan.model.graph


def test_two_sets_that_need_each_other_crosswise_are_not_both_taken(tmp_path: Path) -> None:
    """p before s, r before q: the sets {p, q} and {r, s} cannot be ordered."""
    text = """model m[b = 4, d = 4]
  input x: f32[b, d]
  input target: f32[b, d]
"""
    for name, read, count in (("p", "x", 2), ("r", "x", 3), ("q", "r", 2), ("s", "p", 3)):
        text += f"""  {name} = sigmoid({read})
  repeat {count} as r_{name}
    weight w: f32[d, d] ~ normal(0.5)
    {name} = tanh(linear({name}, w))
"""
    plan = plan_of(text + "  loss mse(q + s, target)\n", tmp_path, "random:1")
    assert independent_repeats(plan) in {(("r_p", "r_q"),), (("r_r", "r_s"),)}
    with pytest.raises(ValueError, match="need each other"):
        side_by_side(plan, (("r_p", "r_q"), ("r_r", "r_s")))


def test_repeats_have_a_skewed_start() -> None:
    """Skewed start: the last repeat starts at once, each earlier one a turn later, in cycles."""
    found = {skew: start_delays(5, skew) for skew in (1, 2, 3, 5, 9)}
    assert found[1] == (0, 0, 0, 0, 0) and found[2] == (0, 1, 0, 1, 0) and found[3] == (1, 0, 2, 1, 0)
    assert found[5] == found[9] == (4, 3, 2, 1, 0)


@pytest.mark.parametrize("seed", range(8))
def test_stretches_are_iterations_without_conversions_between_them(seed: int, tmp_path: Path) -> None:
    """In every repeat of a set, each iteration of a stretch takes the layouts that the previous one leaves. At the
    start of the next stretch some repeat does not.
    """
    plan = plan_of(random_repeats(Random(seed)), tmp_path, f"random:{seed}")
    for names in independent_repeats(plan):
        steps = [s for s in plan.graph.steps if isinstance(s, PlannedSegment) and s.segment.name in names]
        runs = [[(n, run) for n, run in enumerate(step.runs) for _ in range(run.count)] for step in steps]
        assert [[n for n, _ in of] for of in runs] == [[run_number(s, i) for i in range(len(runs[0]))] for s in steps]
        begins = {found.start for found in stretches(steps, plan.graph)}
        for iteration in range(1, len(runs[0])):
            same = []
            for step, of in zip(steps, runs, strict=True):
                (before, run), (number, following) = of[iteration - 1], of[iteration]
                last = iteration == run.first + run.count
                taken = [following.body.values[value.name].produced for value in step.segment.entry]
                inside = [run.body.values[value.name].produced for value in step.segment.entry]
                left = list(step.leaving(before, plan.graph)) if last else inside
                same.append(left == taken)
                assert last or number == before
            assert (iteration in begins) == (not all(same))

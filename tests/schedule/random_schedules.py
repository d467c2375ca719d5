"""Random models, plans and passes by number: the results of their schedules against those of the model.

`python -m tests.schedule.random_schedules --count 1000` runs that many and reports which ones differ.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.emit.planning import mesh_of
from tests.fuzz.cases import draw, libraries
from tests.fuzz.evaluate import _Evaluation, draw_input
from tests.fuzz.plans import random_plan
from tests.program.test_chunked_products import LAYERS
from tests.program.test_interleaved_repeats import CHAINS, TOWERS
from tests.program.test_updates import AVERAGES
from unity_dsl.graph.graph import Graph, Segment, Value
from unity_dsl.graph.interleaved_repeats import independent_repeats, side_by_side
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan, gathered_once
from unity_dsl.index.library import Library
from unity_dsl.schedule.build import build_schedule
from unity_dsl.schedule.ir import Function, Instruction, Open, Placed, Updates
from unity_dsl.schedule.legality import check_schedule
from unity_dsl.search.accounting.recomputation import outermost
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .interpreter import Ranks

MESHES = ((2, 2), (2,), (4,), (2, 2), (4,))
TEXTS = (TOWERS, CHAINS, LAYERS, AVERAGES)
"""Models that passes change, which random models seldom are. Every second case uses one of them."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Case:
    """A plan with passes, and its schedule."""

    plan: Plan
    library: Library
    schedule: Function
    text: str

    @property
    def mechanisms(self) -> Counter[str]:
        """Number of instructions of each kind, including those in bodies."""
        return _mechanisms(self.schedule)


def every(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions; those nested in an instruction follow it."""
    for one in instructions:
        yield one
        if isinstance(one, Placed | Updates):
            yield from every(one.body)


def _mechanisms(function: Function) -> Counter[str]:
    found = Counter(type(one).__name__ for one in every(function.instructions))
    for one in function.instructions:
        if isinstance(one, Open):
            for body in one.loop.bodies:
                found += _mechanisms(body)
    return found


def drawn(seed: int, number: int, known: tuple[Library, Library]) -> Case:
    """Draws a case. The same seed and number draw the same case. Raises InputError if the text drawn is not a model."""
    rng, degrees = Random(f"passes {seed} {number}"), MESHES[number % len(MESHES)]
    if number % 2:
        found = draw(seed, number, degrees, known)
        text, plan, library = found.text, found.plan, found.library
    else:
        text, library = TEXTS[number // 2 % len(TEXTS)], known[0]
        model = build_model(parse_model(Source("text.udl", text)), library)
        plan = random_plan(model, mesh_of(*degrees), library, rng)
    if (sets := independent_repeats(plan)) and rng.random() < 0.7:
        plan = side_by_side(plan, sets).with_passes(skew=rng.choice([1, 2]))
    segments, loops = outermost(plan.model.graph), [step.name for step in _segments(plan.model.graph) if step.is_loop]
    free = [name for name in segments if not any(name in names for names in plan.passes.interleaved)]
    again = frozenset(name for name in free if rng.random() < 0.3)
    plan = plan.with_passes(
        deferred_gradients=rng.random() < 0.5,
        chunks=rng.choice([1, 2, 2]),
        recomputed=again,
        offloaded=frozenset(name for name in free if name in loops and name not in again and rng.random() < 0.5),
        regathered=frozenset(name for name in gathered_once(plan.graph) if rng.random() < 0.5),
    )
    return Case(plan, library, build_schedule(plan, library), text)


def stored(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Weights and buffers by their full names."""
    yield from ((prefix + one.value.name, one.value) for one in (*graph.weights, *graph.buffers))
    for segment in _segments(graph):
        for path in segment.paths:
            yield from stored(segment.body, prefix + path)


def _segments(graph: Graph) -> list[Segment]:
    return [step for step in graph.steps if isinstance(step, Segment)]


def error_of(case: Case, seed: int) -> float:
    """Largest relative difference between the results of the schedule and of the model. Raises IllegalSchedule."""
    check_schedule(case.schedule)
    rng, model = np.random.default_rng(seed), case.plan.model
    state = {name: rng.standard_normal(value.shape) for name, value in stored(model.graph)}
    inputs = {given.value.name: draw_input(given.value, rng) for given in model.graph.inputs}
    ranks = Ranks(case.plan, case.library, dict(state), seed, rng)
    values = _Evaluation(case.library, state, seed, ranks.sites).graph(model.graph, dict(inputs), "", 0)
    found = ranks.run(case.schedule, inputs)
    worst = 0.0
    for value, whole in zip(model.returned, found, strict=True):
        wanted = np.asarray(values[value.name], dtype=float)
        scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
        worst = max(worst, float(np.abs(whole - wanted).max(initial=0.0)) / scale)
    return worst


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    known, found, differ = libraries(), Counter[str](), []
    for number in range(options.count):
        case = drawn(options.seed, number, known)
        found += case.mechanisms
        try:
            error = error_of(case, number)
        except Exception as reason:
            differ.append(number)
            print(f"case {number}: {type(reason).__name__}: {reason}", flush=True)
            continue
        if not error <= TOLERANCE:
            differ.append(number)
            print(f"case {number}: {error}", flush=True)
    print(f"{options.count} cases of seed {options.seed}: {len(differ)} differ {differ[:20]}; {dict(found)}")


if __name__ == "__main__":
    main()

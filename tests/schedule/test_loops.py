"""Iterations of loops: which of them are recomputed or offloaded, and when weights of what follows are prefetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.emit.planning import mesh_of
from tests.fuzz.plans import random_plan
from tests.program.test_interleaved_repeats import TOWERS
from unity_dsl.graph.interleaved_repeats import independent_repeats, side_by_side
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.schedule.build import build_schedule
from unity_dsl.schedule.ir import Interleave, Iterate, Tensor
from unity_dsl.schedule.legality import IllegalSchedule, check_schedule
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()


def plans(count: int) -> Iterator[Plan]:
    model = build_model(parse_model(Source("text.udl", TOWERS)), LIBRARY)
    for number in range(count):
        yield random_plan(model, mesh_of(*(2, 2)[number % 2 :]), LIBRARY, Random(number))


@pytest.mark.parametrize("choice", ["recomputed", "offloaded"])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_last_iterations_are_kept(choice: str, kept: int) -> None:
    for plan in plans(6):
        loops = {step.name: step.count for step in plan.model.graph.segments}
        settings = {choice: frozenset(loops), "kept_iterations": dict.fromkeys(loops, kept)}
        function = build_schedule(plan.with_passes(**settings), LIBRARY)
        found: dict[str, int] = dict.fromkeys(loops, 0)
        for one in function.instructions:
            if isinstance(one, Iterate):
                assert not (one.offloaded if choice == "recomputed" else one.again)
                if one.offloaded if choice == "offloaded" else one.again:
                    found[one.loop.step.segment.name] += one.run.count
        assert found == {name: max(count - kept, 0) for name, count in loops.items()}


def test_only_last_interleaved_iterations_prefetch_what_follows() -> None:
    prefetched = 0
    for plan in plans(40):
        sets = independent_repeats(plan)
        if not sets:
            continue
        function = build_schedule(side_by_side(plan, sets), LIBRARY)
        for one in (one for one in function.instructions if isinstance(one, Interleave)):
            assert not one.then or one.iterations.stop == one.loops[0].count
            prefetched += bool(one.then)
    assert prefetched


def test_a_result_that_nothing_makes_is_refused() -> None:
    for plan in plans(4):
        function = build_schedule(plan, LIBRARY)
        made = function.results[0]
        unmade = Tensor(made.value, made.layout, made.dtype)
        with pytest.raises(IllegalSchedule, match="read before it is there"):
            check_schedule(replace(function, results=(unmade, *function.results[1:])))

"""Schedules of recorded plans do not change, for the simulator and for emitted programs.

`python -m tests.schedule.test_recorded_schedules DIR` writes their texts, to be compared with those of another
checkout. Then `pytest tests/schedule --update-golden` updates their digests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from unity_dsl.graph.graph import computed_from
from unity_dsl.graph.layout import invariant
from unity_dsl.graph.reused_operands import with_reused_operands
from unity_dsl.schedule.build import build_schedule
from unity_dsl.schedule.ir import Function
from unity_dsl.schedule.legality import check_schedule

from ..replay.recorded_plans import CELLS, Cell, read_plan
from ..sampling import of_the_day
from .schedule_text import ScheduleText

DIGESTS = Path(__file__).parent / "schedules.json"
LARGE = ("mixtral_8x7b-dgx-h100-64", "inception_v3-dgx-h100-8", "llama3_70b-llama3-cluster-64")
CHOSEN = [cell for cell in CELLS if cell.name not in LARGE]


def schedules(cell: Cell) -> Iterator[Function]:
    """Two schedules of a plan: with inputs in its layouts, and with whole inputs and the loss apart from
    the outputs.
    """
    plan, library, _ = read_plan(cell)
    graph = with_reused_operands(plan.graph, plan.model, plan.mesh, library, plan.passes.recomputed)
    yield build_schedule(replace(plan, graph=graph), library)
    whole = {given.value.name: invariant(plan.mesh) for given in plan.graph.graph.inputs}
    needed, _ = computed_from(plan.model.graph, plan.model.outputs)
    optional = [name for name in whole if name not in needed] if plan.model.loss and plan.model.outputs else []
    repeats = {step.name for step in plan.model.graph.segments if step.is_loop} - {*sum(plan.passes.interleaved, ())}
    if not plan.passes.recomputed:
        plan = plan.with_passes(offloaded=frozenset(repeats), kept_iterations=dict.fromkeys(repeats, 1))
    yield build_schedule(plan, library, given=whole, apart=bool(optional))


def text_of(cell: Cell) -> str:
    return "\n".join(line for function in schedules(cell) for line in ScheduleText().lines(function))


@pytest.mark.parametrize("cell", of_the_day(CHOSEN, 14), ids=lambda cell: cell.name)
def test_a_schedule_stays_as_it_was(cell: Cell, request: pytest.FixtureRequest) -> None:
    found = sha256(text_of(cell).encode()).hexdigest()[:16]
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    if request.config.getoption("--update-golden"):
        DIGESTS.write_text(json.dumps(dict(sorted({**known, cell.name: found}.items())), indent=1) + "\n")
        return
    assert found == known[cell.name], "compare the texts: `python -m tests.schedule.test_recorded_schedules DIR`"


def test_recorded_schedules_are_legal() -> None:
    for cell in CHOSEN[::6]:
        for function in schedules(cell):
            check_schedule(function)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for chosen in CHOSEN:
        (Path(sys.argv[1]) / f"{chosen.name}.txt").write_text(text_of(chosen))

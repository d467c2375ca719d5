"""Steps that list identical passes of micro-batches once, against the same steps with every pass listed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.simulation.listed_iterations import Listed, NotAlikeError
from unity_dsl.simulation.repeated_passes import RepeatedPass
from unity_dsl.simulation.task import Phase, Task

from ..sampling import of_the_day
from .listed_tasks import listed

EXAMPLES = Path(__file__).parents[2] / "examples"
PASSES = 12
CASES = [
    *product(
        ("gpt2", "llama3_8b", "vit_l16"),
        ("data_parallel", "zero", "galvatron", "nnscaler", "random:1", "random:2", "random:3"),
    )
]
CHANGES = ({}, {"deferred_gradients": True}, {"chunks": 2}, {"bucket_mib": 1}, {"bucket_mib": 0})


def planned(model: str, strategy: str) -> tuple[Plan, Machine, Library]:
    request = Request(
        EXAMPLES / f"{model}.udl",
        {"b": 4 * PASSES},
        preset="small",
        machine="dgx-h100",
        devices=4,
        strategy=strategy,
        micro_batches=PASSES,
    )
    compiled = compile_model(request)
    return compiled.plan, load_machine("dgx-h100"), compiled.library


@pytest.mark.parametrize("case", [("gpt2", "zero"), ("gpt2", "data_parallel"), *of_the_day(CASES, 3)], ids=str)
def test_copies_of_passes_are_the_tasks_that_each_would_list(case: tuple[str, str]) -> None:
    plan, machine, library = planned(*case)
    assert plan.micro_batches == PASSES
    for changes in CHANGES:
        other = plan.with_passes(**changes)
        few, found = listed(other, machine, library, Listed(once=True))
        _, wanted = listed(other, machine, library)
        assert len(few._tasks) < 0.6 * len(wanted.tasks), changes
        assert found == wanted, changes


def step(*, longer: float = 0.0, left: float = 0.0, behind: int = 0) -> tuple[list[Task], RepeatedPass]:
    """Three passes of two tasks, then a task that reads the last one. Each pass reads the first task and one of its
    own. The third pass takes `longer`, all but the first leave bytes, or the last task reads a task `behind` places
    earlier.
    """
    tasks = [Task("first", "", Phase.FORWARD, 1.0), Task("second", "", Phase.BACKWARD, 1.0, reads=(0,))]
    for number in (2, 4):
        tasks.append(Task("first", "", Phase.FORWARD, 1.0, after=(number - 1,), reads=(0,)))
        tasks.append(Task("second", "", Phase.BACKWARD, 1.0, reads=(number,)))
    tasks[4].seconds += longer
    for task in tasks[2:]:
        task.allocated += left
    tasks.append(Task("update", "", Phase.UPDATE, 1.0, reads=(5 - behind,)))
    return tasks, RepeatedPass(2, 2, 4, 6, copies=3)


def test_a_pass_is_copied_with_what_it_refers_to() -> None:
    tasks, repeated = step()
    found = repeated.with_copies(tasks)
    assert [task.name for task in found] == [*("first", "second") * 6, "update"]
    assert [task.after for task in found[4::2]] == [(3,), (5,), (7,), (9,), ()]
    assert [task.reads for task in found[4::2]] == [(0,), (0,), (0,), (0,), (11,)]
    assert [task.reads for task in found[5::2]] == [(4,), (6,), (8,), (10,)]


@pytest.mark.parametrize(
    "tasks, repeated",
    [step(longer=0.5), step(left=1.0), step(behind=2)],
    ids=["of other tasks", "that leaves more memory held", "of which a later task reads an earlier one"],
)
def test_a_pass_that_is_not_alike_is_not_copied(tasks: list[Task], repeated: RepeatedPass) -> None:
    with pytest.raises(NotAlikeError):
        repeated.with_copies(tasks)

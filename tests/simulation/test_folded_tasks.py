"""Steps that list identical iterations once, against the same steps with every iteration listed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.simulation.folded_tasks import unfolded
from unity_dsl.simulation.listed_iterations import Fold, Listed, NotAlikeError
from unity_dsl.simulation.step_tasks import as_simulated, device_tasks, step_tasks
from unity_dsl.simulation.task import Task

from ..sampling import of_the_day
from .listed_tasks import listed

EXAMPLES = Path(__file__).parents[2] / "examples"
STRATEGIES = ("data_parallel", "zero", "galvatron", "nnscaler", "random:1", "random:2")
CASES = [
    (model, strategy, recompute, micro_batches)
    for model, strategy, recompute, micro_batches in product(
        ("gpt2", "llama3_8b", "vit_l16", "bert_large"), STRATEGIES, ("none", "all"), (1, 3, 12)
    )
    if micro_batches == 1 or model != "bert_large"  # its loss is not a sum over the examples of a batch
]
SELECTED = [
    *(("gpt2", "zero", "all", 12), ("gpt2", "data_parallel", "none", 1), ("llama3_8b", "random:1", "none", 3)),
    *(("bert_large", "data_parallel", "none", 1), ("vit_l16", "zero", "none", 1)),
]


def planned(model: str, strategy: str, recompute: str, micro_batches: int) -> tuple[Plan, Machine, Library]:
    """A plan of a model with 44 layers, of 64 KiB or more each."""
    request = Request(
        EXAMPLES / f"{model}.udl",
        {"layers": 44, "d": 64, "b": 4 * max(3, micro_batches)},
        preset="small",
        machine="dgx-h100",
        devices=4,
        strategy=strategy,
        recompute=recompute,
        micro_batches=micro_batches,
    )
    compiled = compile_model(request)
    return compiled.plan, load_machine("dgx-h100"), compiled.library


def unordered(task: Task) -> Task:
    return replace(task, after=tuple(sorted(task.after)), reads=tuple(sorted(task.reads)))


@pytest.mark.parametrize("case", sorted({*of_the_day(SELECTED, 2), *of_the_day(CASES, 2)}), ids=str)
def test_copies_of_iterations_are_the_tasks_that_each_would_list(case: tuple[str, str, str, int]) -> None:
    plan, machine, library = planned(*case)
    for changes in ({}, {"deferred_gradients": True}, {"chunks": 2}, {"bucket_mib": 1}):
        other = plan.with_passes(**changes)
        found, (_, wanted) = step_tasks(other, machine, library), listed(other, machine, library)
        assert found.held == pytest.approx(wanted.held, rel=1e-12)
        assert len(found.tasks) == len(wanted.tasks), changes
        for task, one in zip(found.tasks, wanted.tasks, strict=True):
            assert unordered(task) == unordered(one), changes


@pytest.mark.parametrize("period", [1, 2])
def test_few_iterations_are_listed(period: int) -> None:
    plan, machine, library = planned("gpt2", "data_parallel", "none", 1)
    plan = plan.with_passes(bucket_mib=100)
    few, _ = listed(plan, machine, library, Listed(period=period))
    _, every = listed(plan, machine, library)
    iterations = Fold("layer", 0, 44, period).listed
    assert len(few._tasks) < (iterations + 4) / 44 * len(every.tasks)


def test_buckets_that_fill_after_many_iterations_begin_others() -> None:
    plan, machine, library = planned("gpt2", "data_parallel", "none", 1)
    plan = plan.with_passes(bucket_mib=3)
    with pytest.raises(NotAlikeError) as raised:
        listed(plan, machine, library, Listed(period=1))
    assert raised.value.cuts
    _, again = listed(plan, machine, library, Listed(period=1, cuts=raised.value.cuts))
    assert again.tasks


def test_iterations_that_differ_are_not_copied() -> None:
    plan, machine, library = planned("gpt2", "data_parallel", "none", 1)
    simulated, schedule, prices = as_simulated(plan, machine, library)
    few, _ = device_tasks(simulated, schedule, prices, {}, Listed(period=1))
    tasks, marks, freed = few._tasks, few._marks, few._freed
    third = next(mark.task for mark in marks if mark.stretch is not None and mark.stretch.position == 3)
    tasks[third].seconds *= 1.5
    with pytest.raises(NotAlikeError):
        unfolded(tasks, marks, freed)


def test_iterations_of_a_fold_are_numbered() -> None:
    for count, period in product(range(12, 60), (1, 2, 3)):
        fold = Fold("layer", 7, count, period)
        if fold.copies > 0:
            numbers = {fold.iteration(position) for position in range(fold.listed)}
            middle = filter(fold.is_middle, range(fold.listed))
            copies = {copy for position in middle for copy in fold.copied(position)}
            assert sorted(numbers | copies) == list(range(count))
            assert not numbers & copies
            for position in range(fold.listed):
                assert fold.position_of(7 + fold.iteration(position)) == position
            assert all(fold.position_of(7 + copy) is None for copy in copies)

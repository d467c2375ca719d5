"""A lower bound on a device's memory, against the memory of plans: all of small models, and those of one device."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import BatchDivision, Cost, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder
from unity_dsl.search.accounting.memory_budget import Budget
from unity_dsl.search.accounting.recomputation import outermost
from unity_dsl.search.accounting.weighed_plan import gathered_paths
from unity_dsl.search.memory_limit.least_bytes import LeastBytes
from unity_dsl.search.memory_limit.stored_bytes import StoredBytes
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..conftest import FOUR, TWO, Build
from ..random_models import random_repeat
from .test_memory_limit import MODELS, every_plan

MACHINE = load_machine("dgx-a100")


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("count", [1, 3])
def test_no_plan_of_a_small_model_holds_less(name: str, count: int, library: Library, build: Build) -> None:
    """With and without gradients of other micro-batches. All gathered weights are re-gathered."""
    model = build(MODELS[name].replace("[b = 4]", "[b = 64]"))
    division = None if count == 1 else BatchDivision("b", {}, count, (), 1)
    least = LeastBytes(StoredBytes.of(model), 2, library, division is not None).of(model)
    conversions = ConversionModel(TWO, MACHINE, library, model.gradient_bytes)
    budget, found = Budget(MACHINE, library, division), []
    for number, graph in enumerate(every_plan(model, TWO, library)):
        if number % 7 == 0:
            plan = Plan(model, TWO, MACHINE.name, "auto", graph, Cost(), conversions)
            plan = plan.with_passes(regathered=gathered_paths(plan, library))
            found.append(budget.held(plan).total)
    print(name, len(found), f"{least / min(found):.3f}")
    assert len(found) > 20 and 0.5 * min(found) < least <= min(found)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["llama3_8b", "gpt2", "mixtral_8x7b", "resnext50", "candle_uno", "lstm_lm", "vit_l16"])
def test_a_plan_of_one_device_holds_hardly_more(name: str, precision: str, library: Library) -> None:
    file = parse_model(read_source(folder("examples") / f"{name}.udl"))
    model = build_model(file, library, {"b": 64}, "small", precision)
    plan, budget = search(model, Mesh(()), MACHINE, library, "single"), Budget(MACHINE, library)
    least, ratios = LeastBytes(StoredBytes.of(model), 1, library, accumulates=False), []
    for again in ((), outermost(model.graph)):
        ratios.append(least.of(model, again) / budget.held(plan.with_passes(recomputed=frozenset(again))).total)
    print(name, precision, " ".join(f"{ratio:.3f}" for ratio in ratios))
    assert max(ratios) <= 1 and ratios[0] > 0.6


def test_plans_drawn_by_chance_hold_more(library: Library, build: Build) -> None:
    """For models with repeats, of which none, some or all are recomputed."""
    budget = Budget(MACHINE, library)
    for seed in range(12):
        rng = Random(seed)
        model = build(random_repeat(rng, 3)[0])
        again = outermost(model.graph)
        least = LeastBytes(StoredBytes.of(model), 4, library, accumulates=False).of(model, again)
        plan = search(model, FOUR, MACHINE, library, f"random:{seed}")
        for paths in ((), again, again[: rng.randint(0, len(again))]):
            assert least <= budget.held(plan.with_passes(recomputed=frozenset(paths))).total, f"seed {seed}, {paths}"


def test_numbers_of_micro_batches_that_are_left_out_do_not_fit() -> None:
    """Each number is compiled separately: if the bound excludes it, the search finds no fitting plan either."""
    path, found = Path(folder("examples") / "llama3_8b.udl"), []

    def planned(count: int, memory: int) -> Plan:
        return compile_model(Request(path, {"b": 64}, "small", devices=2, memory=memory, micro_batches=count)).plan

    held = planned(1, 10**12).cost.memory
    for part in (0.1, 0.25):
        memory = int(held.total - (1 - part) * held.activations)
        for count in (1, 4):
            plan = planned(count, memory)
            left_out = any("each holds" in note for note in plan.notes)
            assert bool(plan.warnings) or not left_out
            found.append(left_out)
    assert any(found) and not all(found)

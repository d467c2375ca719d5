"""A search that is ended at any moment returns a plan or raises SearchEnded, and its stated bound holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from random import Random
from time import monotonic

import pytest

from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes, describe_mesh
from unity_dsl.rules.process_map import process_map
from unity_dsl.rules.shipped_fusions import shipped_fusions
from unity_dsl.rules.shipped_rules import ShippedRules
from unity_dsl.search.plan_search import search
from unity_dsl.search.search_end import SearchEnd, SearchEnded, check_end, ended_by, seconds_left, why_ended
from unity_dsl.search.strategies import STRATEGIES
from unity_dsl.search.strategy_space import algebras_for
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.read import read_source

from ..sampling import SAMPLE
from .conftest import Build
from .meshes.test_mesh_search import bound, of_eight
from .random_models import random_machine, random_model

MODEL = """
model layers[b = 16, d = 64, n = 4]
  input x: f32[b, d]
  input target: f32[b, d]
  h = x
  repeat n as layer
    weight v: f32[4 * d, d] ~ normal(0.02)
    weight c: f32[4 * d] ~ zeros
    weight w: f32[d, 4 * d] ~ normal(0.02)
    h = h + linear(relu(linear(h, v) + c), w)
  loss mse(h, target)
"""


@dataclass
class Counted(SearchEnd):
    """Ends a search after it has asked `most` times."""

    most: float = inf
    asked: int = 0

    def reason(self) -> str | None:
        self.asked += 1
        return "a count" if self.asked > self.most else None


def test_at_any_moment(library: Library, build: Build) -> None:
    """A plan costs no less than the best one. No plan on the meshes that a bound covers costs less than the bound."""
    rng = Random(SAMPLE)
    outcomes = set()
    for seed in range(4):
        own = Random(seed)
        model, machine = build(random_model(own, 5, (8, 12, 16))), of_eight(random_machine(own))
        meshes = all_meshes(machine, 8)
        alone = {describe_mesh(mesh): search(model, mesh, machine, library).cost.seconds for mesh in meshes}
        whole = Counted()
        with whole.of_search():
            best = search(model, meshes, machine, library)
        assert best == search(model, meshes, machine, library) and best.ended is None, "nobody ends it"
        for most in (0, *(int(whole.asked * rng.random() ** 2) for _ in range(12)), whole.asked):
            try:
                with Counted(most=most).of_search():
                    plan = search(model, meshes, machine, library)
            except SearchEnded:
                outcomes.add("none")
                continue
            if most < whole.asked:
                assert plan.ended == "a count", f"UNITY_SAMPLE={SAMPLE}: {most} of seed {seed}"
                assert plan.cost.seconds >= best.cost.seconds * (1 - 1e-9)
                if (over := re.search(r" meshes: ([0-9 x,]+\d)", plan.notes[0])) is not None:
                    least = min(alone[mesh] for mesh in over[1].split(", "))
                    assert bound(plan) <= least * (1 + 1e-9), f"UNITY_SAMPLE={SAMPLE}: {most} of seed {seed}"
                    outcomes.add("bounded")
                outcomes.add("ended")
            else:
                assert plan == best
                outcomes.add("through")
    assert outcomes == {"none", "ended", "bounded", "through"}


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9, 0.97])
def test_while_rules_are_looked_at(part: float, library: Library, build: Build) -> None:
    model, machine = build(MODEL), load_machine("dgx-a100")
    shipped = ShippedRules((read_source(shipped_fusions()),), library, ())
    meshes = all_meshes(machine, 4)

    def found(end: SearchEnd) -> Plan:
        with end.of_search():
            return search(model, meshes, machine, library, algebras=algebras_for(model, "auto", shipped, ()))

    whole = Counted()
    best = found(whole)
    plan = found(Counted(most=int(part * whole.asked)))
    assert plan.ended == "a count" and plan.cost.seconds >= best.cost.seconds * (1 - 1e-9)
    assert any("rewritten models not searched to the end" in note for note in plan.notes)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy(strategy: str, library: Library, build: Build) -> None:
    """By then it has no plan, or a complete one."""
    model, machine = build(MODEL), load_machine("dgx-a100")
    meshes = all_meshes(machine, 4)[:1]
    whole = Counted()
    try:
        with whole.of_search():
            search(model, meshes, machine, library, strategy)
    except InputError:
        return
    for most in {whole.asked * eighth // 8 for eighth in range(8)} - {whole.asked}:
        end = Counted(most=most)
        try:
            with end.of_search():
                plan = search(model, meshes, machine, library, strategy)
        except SearchEnded:
            continue
        assert plan.ended == "a count" and plan.cost.seconds > 0 and list(plan.graph.nodes())


def test_within_a_limit_of_memory(library: Library, build: Build) -> None:
    """A plan that fits is taken, if one is known, else the plan known so far, with its warning."""
    model, machine = build(MODEL), load_machine("dgx-a100")
    meshes = all_meshes(machine, 4)
    free = search(model, meshes, machine, library)
    machine = machine.holding(int(free.cost.memory.total * 0.8))
    whole = Counted()
    with whole.of_search():
        best = search(model, meshes, machine, library)
    assert not best.warnings
    for eighth in range(1, 8):
        try:
            with Counted(most=whole.asked * eighth // 8).of_search():
                plan = search(model, meshes, machine, library)
        except SearchEnded:
            continue
        assert plan.ended == "a count"
        assert bool(plan.warnings) == (plan.cost.memory.total > machine.memory_bytes)


def test_seconds_count_from_the_beginning_of_the_search() -> None:
    end = SearchEnd(0.05)
    assert end.left() == 0.05
    with end.of_search():
        begun = monotonic()
        assert 0.01 <= seconds_left(60) <= 0.05
        with pytest.raises(SearchEnded, match=r"its time limit of 0\.05 s"):
            while monotonic() < begun + 10:
                check_end()
        assert why_ended() == "its time limit of 0.05 s"
        with ended_by(None):
            check_end()
            assert seconds_left(60) == 60 and why_ended() is None
    check_end()


def test_processes_are_not_ended_but_by_the_one_that_searches() -> None:
    """Processes ignore an interruption. The searching process ends them at once, since their results are of no use."""

    def ask(item: int) -> bool:
        check_end()
        return why_ended() is None

    end = SearchEnd()
    with end.of_search():
        end.interrupt()
        assert list(process_map(ask, range(4), 2)) == [True] * 4
        with pytest.raises(SearchEnded, match="an interruption"):
            list(process_map(ask, range(4), 2, check_end))

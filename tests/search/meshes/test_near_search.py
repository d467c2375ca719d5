"""Local search on a mesh, against the search of all its plans, and the neighbourhood of a plan among them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import all_meshes, build_mesh, reordered_axes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import Optimum, optimise
from unity_dsl.search.folded_solver.problem_part import Domains, Part, everything
from unity_dsl.search.layout_problem.problem_context import Prices, prices_on
from unity_dsl.search.layout_problem.starting_domains import near_domain, undivided_domain
from unity_dsl.search.meshes import fine_meshes, fine_search, mesh_search, near_search
from unity_dsl.search.meshes.fine_search import choices_apart
from unity_dsl.search.meshes.near_search import BestOnMesh, Task, choices_of, near_plan
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..conftest import Build
from ..random_models import random_machine, random_model
from .test_mesh_search import of_eight


def task_of(model: Model, machine: Machine, library: Library) -> Task:
    theorems = ShardingTheorems(library)
    known: dict[Mesh, Prices] = {}

    def priced(mesh: Mesh) -> Prices:
        if mesh not in known:
            known[mesh] = prices_on(mesh, machine, library, theorems)
        return known[mesh]

    return Task(model, priced, lambda mesh: Restriction())


def best_on(task: Task, mesh: Mesh) -> BestOnMesh:
    problem = task.problem(mesh)
    return BestOnMesh(problem, optimise(problem.part, everything(problem.part)))


def with_links_alike(library: Library, build: Build) -> tuple[Task, Machine]:
    """A random model on a machine that joins eight devices by identical links."""
    rng = Random(5)
    machine = of_eight(random_machine(rng))
    fast, slow = machine.levels
    machine = replace(machine, levels=(replace(fast, size=8), replace(slow, size=1)))
    return task_of(build(random_model(rng, 4, (8, 12, 16))), machine, library), machine


def test_a_plan_is_held_on_a_mesh_with_its_axes_in_another_order(library: Library, build: Build) -> None:
    """The meshes differ only in the order of identical axes: the divisions are the same, and so is the cost."""
    task, machine = with_links_alike(library, build)
    one, other = (build_mesh(machine, 8, shape) for shape in ((4, 2), (2, 4)))
    best = best_on(task, one)
    order = reordered_axes(other, one)
    assert order == (1, 0)
    turned = near_plan(task, other, choices_of(one, [best]).reordered(order), inf, rounds=1, reach=0)
    assert turned is not None and turned.best.plan is not None
    assert turned.best.cost == pytest.approx(best.best.cost, rel=1e-9)


def test_a_plan_is_held_where_axes_that_are_no_neighbours_make_up_its_own(library: Library, build: Build) -> None:
    """If all links are identical, it costs no more there. A plan does not fit a mesh of other axes."""
    task, machine = with_links_alike(library, build)
    coarse = [best_on(task, build_mesh(machine, 8, shape)) for shape in ((4, 2), (8,))]
    mesh = build_mesh(machine, 8, (2, 2, 2))
    choices = choices_apart(mesh, coarse)
    assert choices.chosen and not choices_apart(mesh, coarse[1:]).chosen
    found = near_plan(task, mesh, choices, inf, rounds=1, reach=0)
    assert found is not None and found.best.cost <= coarse[0].best.cost * (1 + 1e-9)


def test_the_mesh_is_found_next_to_plans_whose_axes_lie_apart(library: Library) -> None:
    """For 8 x 4 x 2, the mesh 16 x 4 has the best plan with the axes 8 and 2 together. Without it, the plan is 2.2 %
    dearer.
    """
    machine = load_machine("summit").holding(10**18)
    text = read_source(Path(__file__).parents[3] / "examples" / "lstm_lm.udl")
    model = build_model(parse_model(text), library)
    theorems = ShardingTheorems(library)
    found = search(model, all_meshes(machine, 64), machine, library, theorems=theorems)
    by_hand = search(model, build_mesh(machine, 64, (8, 4, 2)), machine, library, theorems=theorems)
    assert found.cost.seconds <= by_hand.cost.seconds * 1.0005


@pytest.mark.parametrize("seed", range(8))
def test_plans_next_to_some_are_those_of_the_whole_problem(seed: int, library: Library, build: Build) -> None:
    """The best plan of the neighbourhood is found, though few configurations are typed. After more rounds, nothing in
    the neighbourhood of the plan is better.
    """
    rng = Random(seed)
    machine = of_eight(random_machine(rng))
    task = task_of(build(random_model(rng, 4, (8, 12, 16))), machine, library)
    coarse, fine = (build_mesh(machine, 8, shape) for shape in ((2, 4), (2, 2, 2)))
    choices = choices_of(fine, [best_on(task, coarse)])
    whole = task.problem(fine)
    every = everything(whole.part)
    for reach in (1, 2):
        expected = optimise(whole.part, every.intersected(near_domain(whole, choices, range(3), reach)))
        found = near_plan(task, fine, choices, inf, rounds=1, reach=reach)
        assert expected.exact and found is not None and found.best.exact, seed
        assert found.best.cost == pytest.approx(expected.cost, rel=1e-9), (seed, reach)
        last = near_plan(task, fine, choices, inf, rounds=50, reach=reach)
        assert last is not None and last.best.cost <= found.best.cost * (1 + 1e-9), seed
        around = near_domain(whole, choices_of(fine, [last]), range(3), reach)
        again = optimise(whole.part, every.intersected(around))
        assert again.cost == pytest.approx(last.best.cost, rel=1e-5), (seed, reach)
    assert near_plan(task, fine, choices, last.best.cost * 0.5) is None, seed


@pytest.mark.parametrize("seed", range(4))
def test_all_that_differs_along_any_axis_is_the_whole_space(seed: int, library: Library, build: Build) -> None:
    rng = Random(100 + seed)
    machine = of_eight(random_machine(rng))
    task = task_of(build(random_model(rng, 3, (8, 16))), machine, library)
    mesh = build_mesh(machine, 8, (2, 4))
    exact = best_on(task, mesh)
    choices = choices_of(mesh, [best_on(task, build_mesh(machine, 8, (8,)))])
    found = near_plan(task, mesh, choices, inf, rounds=1, reach=2)
    assert exact.best.exact and found is not None
    assert found.best.cost == pytest.approx(exact.best.cost, rel=1e-9), seed


def test_along_one_axis_after_the_other(library: Library, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never worse than its start, if links within a unit are at least as fast as those between units."""

    def too_large(part: Part, domains: Domains, below: float | None = None, rounds: int = 1) -> Optimum:
        """Finds no plan below a cost; only whole neighbourhoods ask for one."""
        return optimise(part, domains) if below is None else Optimum(None, below, -inf, False)

    rng = Random(7)
    machine = of_eight(random_machine(rng))
    fast, slow = machine.levels
    bandwidth = max(fast.bandwidth, slow.bandwidth)
    latency = min(fast.latency, slow.latency)
    machine = replace(machine, levels=(replace(fast, bandwidth=bandwidth, latency=latency), slow))
    task = task_of(build(random_model(rng, 4, (8, 12, 16))), machine, library)
    coarse, fine = (build_mesh(machine, 8, shape) for shape in ((4, 2), (2, 2, 2)))
    start = best_on(task, coarse)
    choices = choices_of(fine, [start])
    monkeypatch.setattr(near_search, "optimise", too_large)
    found = near_plan(task, fine, choices, inf)
    assert found is not None and not found.best.exact
    assert found.best.cost <= start.best.cost * (1 + 1e-9)


def test_plans_do_not_depend_on_processes(library: Library, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_machine("dgx-a100")
    model = build(random_model(Random(11), 6, (16, 32, 64)))
    plans = []
    for processes in (1, 3):
        for shared in ("PARALLEL_FROM", "PARALLEL_BOUNDS_FROM", "PARALLEL_STEPS_FROM"):
            monkeypatch.setattr(mesh_search, shared, 0)
        monkeypatch.setattr(fine_search, "PARALLEL_FROM", 0)
        monkeypatch.setattr(fine_meshes, "processors", partial(int, processes))
        plans.append(search(model, all_meshes(machine, 64), machine, library))
    first, second = plans
    assert first.graph == second.graph and first.mesh == second.mesh and first.notes == second.notes


@pytest.mark.parametrize("many", [0, near_search.MANY])
def test_what_is_held_is_kept_where_tables_are_too_large(
    many: int, library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then some plan of a neighbourhood is found, or none, and it may cost more than the given plan."""
    rng = Random(3)
    machine = of_eight(random_machine(rng))
    task = task_of(build(random_model(rng, 4, (8, 12, 16))), machine, library)
    mesh = build_mesh(machine, 8, (2, 2, 2))
    best = best_on(task, mesh)

    def crowded(part: Part, domains: Domains, below: float = inf, rounds: int = 1) -> Optimum:
        if domains.count == domains.variables:
            return optimise(part, domains, below=below)
        dear = optimise(part, everything(part).intersected(undivided_domain(task.problem(mesh))))
        assert dear.cost > best.best.cost * 1.01
        return replace(dear, bound=0.0, exact=False)

    monkeypatch.setattr(near_search, "MANY", many)
    monkeypatch.setattr(near_search, "optimise", crowded)
    found = near_plan(task, mesh, choices_of(mesh, [best]), inf, reach=3)
    assert found is not None and found.best.cost == pytest.approx(best.best.cost, rel=1e-9)

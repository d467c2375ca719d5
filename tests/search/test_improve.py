"""The search: its incumbents, its trail under evaluation budgets, and its independence of the number of processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.search import improve
from unity_dsl.search.constants import EFFORTS, NEAR, SHORTER, WORTH
from unity_dsl.search.improve import Search
from unity_dsl.search.moves.edits import Edit, edits
from unity_dsl.search.point import Point
from unity_dsl.search.search_end import SearchEnd
from unity_dsl.simulation.step_tasks import simulate_step

from .branches.test_branch_placings import TOWERS
from .conftest import Build
from .searching import cheapest_point, found, searching

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = """
model small[n = 1]
  input x: f32[4096, 1024]
  input target: f32[4096, 1024]
  repeat 3 as layer
    weight a: f32[1024, 1024] ~ normal(0.1)
    weight b: f32[1024, 1024] ~ normal(0.1)
    x = relu(linear(relu(linear(x, a)), b))
  loss mse(x, target)
"""
TEXTS = {"repeat": MODEL, "towers": TOWERS}
MACHINES = ("dgx-h100", "summit")


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("text", TEXTS)
def test_the_plan_is_the_best_of_the_trail(text: str, name: str, build: Build, library: Library) -> None:
    """Every incumbent has a shorter step than the one before. The last one is the plan, with its simulated step."""
    machine = load_machine(name)
    search = searching(build(TEXTS[text]), all_meshes(machine, 4), machine, library)
    plan = found(search)
    best = [trial for trial in search.trail if trial.best]
    assert plan.trail == tuple(search.trail) and best
    for one, other in pairwise(best):
        assert other.seconds is not None and one.seconds is not None
        assert other.seconds < (1 - SHORTER) * one.seconds and one.evaluations <= other.evaluations
    assert plan.simulated == best[-1].seconds == simulate_step(plan, machine, library).seconds
    assert (plan.mesh.degrees, plan.micro_batches) == (best[-1].mesh, best[-1].micro_batches)
    shortest = min(trial.seconds for trial in search.trail if trial.seconds is not None)
    assert plan.simulated * (1 - SHORTER) <= shortest
    assert plan.cost.memory.total > 0 and not plan.warnings


@pytest.mark.parametrize("name", MACHINES)
def test_more_evaluations_extend_the_trail(name: str, build: Build, library: Library) -> None:
    """The trail under a budget is the beginning of the trail under a larger one, and no incumbent is worse."""
    machine = load_machine(name)
    trails, seconds = [], []
    whole = searching(build(TOWERS), all_meshes(machine, 4), machine, library)
    found(whole)
    for most in range(1, whole.evaluator.count + 2):
        search = searching(build(TOWERS), all_meshes(machine, 4), machine, library, most=most)
        plan = found(search)
        assert search.evaluator.count <= most
        trails.append([replace(trial) for trial in search.trail])
        seconds.append(plan.seconds)
    for (less, more), (before, after) in zip(pairwise(trails), pairwise(seconds), strict=True):
        assert more[: len(less)] == less and after <= before
    assert trails[-1] == whole.trail


def test_a_search_ends_early_where_another_model_is_far_better(build: Build, library: Library) -> None:
    """Its trail is then the beginning of that of the whole search. If the other model is only near, the trail is the
    whole one.
    """
    machine = load_machine("dgx-h100")
    model = build(TOWERS.replace("d = 16", "d = 1024"))
    searches = [searching(model, all_meshes(machine, 4), machine, library) for _ in range(3)]
    whole = found(searches[0])
    for search, known in zip(searches[1:], (0.5 * whole.seconds, whole.trail[0].seconds), strict=True):
        assert known is not None
        search.known = known
        found(search)
    short, same = searches[1].trail, searches[2].trail
    assert same == searches[0].trail and short == same[: len(short)] and 0 < len(short) < len(same)


def test_one_more_point_is_expanded_where_a_step_has_few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For xdl_unity on 96 V100. Without this point its step takes a third longer."""
    request = Request(EXAMPLES / "xdl_unity.udl", settings={"b": 768}, machine="summit", devices=96)
    plans = [compile_model(request).plan]
    monkeypatch.setattr(improve, "FEW", 0)
    plans.append(compile_model(request).plan)
    more, fewer = plans
    assert more.trail[: len(fewer.trail)] == fewer.trail and more.seconds < 0.75 * fewer.seconds


def test_a_search_goes_on_from_points_whose_branches_are_not_placed(build: Build, library: Library) -> None:
    """Points with placed branches have no edits but fusions. Edits of others are tried though their steps are much
    longer.
    """
    machine = load_machine("dgx-h100")
    search = searching(build(TOWERS.replace("d = 16", "d = 1024")), all_meshes(machine, 4), machine, library)
    plan = found(search)
    placed = [point for point in search.points if point.restricted.placed]
    for point in placed:
        every = edits(point, search.evaluator.timeline(point.plan), search.solver, EFFORTS["normal"])
        assert {edit.kind for edit in every} <= {"fusions"}
    first = next(number for number, trial in enumerate(search.trail) if trial.move == "branches" and trial.best)
    after = [trial for trial in search.trail[first:] if trial.move == "storage" and trial.seconds is not None]
    assert placed and plan.seconds < search.trail[first - 1].seconds  # type: ignore[operator]
    assert after and all(trial.seconds > NEAR * plan.seconds for trial in after)  # type: ignore[operator]


def test_a_search_that_is_ended_has_its_incumbent(build: Build, library: Library) -> None:
    """At whatever evaluation it is interrupted. After more evaluations its step is no longer."""
    machine, seconds = load_machine("dgx-h100"), list[float]()
    for most in (1, 4, 8, 16, 32, 64):
        end = SearchEnd()
        search = searching(build(TOWERS), all_meshes(machine, 4), machine, library)
        timeline = search.evaluator.timeline

        def counting(plan: Plan, timeline=timeline, search=search, end=end, most=most):  # type: ignore[no-untyped-def]
            if search.evaluator.count >= most:
                end.interrupt()
            return timeline(plan)

        search.evaluator.timeline = counting  # type: ignore[method-assign]
        plan = improve_in_time(search, end)
        seconds.append(plan.seconds)
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]


def improve_in_time(search: Search, end: SearchEnd) -> Plan:
    from unity_dsl.search.incumbent import found_in_time

    first = cheapest_point(search).plan
    search.incumbent.offer(replace(first, simulated=search.evaluator.seconds(first)))
    return found_in_time(lambda: found(search), search.incumbent, end)


@pytest.mark.parametrize("text", TEXTS)
def test_edits_are_the_same_by_one_process_and_by_several(
    text: str, build: Build, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the budget ends among the edits."""
    machine, model, runs = load_machine("dgx-h100"), build(TEXTS[text]), []
    for most in (1000, 12, 9):
        for processes in (1, 3):
            monkeypatch.setattr(improve, "processes_for", lambda problem, processes=processes: processes)
            search = searching(model, all_meshes(machine, 4), machine, library, most=most)
            runs.append((found(search), search.trail))
    for (one, trail), (other, same) in zip(runs[::2], runs[1::2], strict=True):
        assert trail == same and one.seconds == other.seconds and one.graph == other.graph
    assert any(trial.move in ("storage", "branches", "mesh") for trial in runs[0][1])


def test_an_edit_is_solved_where_its_bound_beats_the_incumbent(
    build: Build, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, solved = load_machine("dgx-h100"), list[str]()
    search = searching(build(MODEL), all_meshes(machine, 4), machine, library)

    def none(told: str) -> Point | None:
        solved.append(told)
        return None

    def edits(point: Point, *_: object) -> list[Edit]:
        step = search.seconds(point)
        bounds = {"hopeless": (1 - WORTH / 2) * step, "worth it": (1 - 2 * WORTH) * step}
        return [Edit("kind", told, bound, lambda told=told: none(told)) for told, bound in bounds.items()]

    monkeypatch.setattr(improve, "processes_for", lambda problem: 1)
    monkeypatch.setattr(improve, "edits", edits)
    found(search)
    assert solved and set(solved) == {"worth it"}


@pytest.mark.parametrize("wide", [1.0, float("inf")])
def test_starts_of_several_meshes_are_solved_again(
    wide: float, build: Build, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best start of each mesh, shortest steps first, for as many meshes as the effort allows. None is taken whose
    step is more than WIDE times that of the best.
    """
    machine, model, settled = load_machine("dgx-h100"), build(MODEL), list[Point]()
    meshes = all_meshes(machine, 8)
    points = [cheapest_point(searching(model, [mesh], machine, library)) for mesh in meshes]
    search = searching(model, meshes, machine, library)
    search.best = min(points, key=search.seconds)
    monkeypatch.setattr(improve, "WIDE", wide)
    monkeypatch.setattr(Search, "_starts", lambda self, expected, start: [*points, *reversed(points)])
    monkeypatch.setattr(Search, "_settle", lambda self, point: settled.append(point))
    monkeypatch.setattr(Search, "_improve", lambda self: None)
    found(search)
    first, *others = sorted(points, key=search.seconds)
    of_low = EFFORTS["low"].chains
    assert of_low == 1 and settled[0] is first and len({point.plan.mesh for point in points}) > 2
    near = [one for one in others if search.seconds(one) <= wide * search.seconds(first)]
    assert settled[1:] == [first, *near][: EFFORTS["normal"].chains]


def test_a_plan_that_does_not_fit_is_taken_where_none_does(build: Build, library: Library) -> None:
    """The plan has a warning. If a plan fits, it is preferred to one with a shorter step."""
    machine, model = load_machine("dgx-h100"), build(MODEL)
    free = found(searching(model, all_meshes(machine, 4), machine, library))
    least = int(0.95 * free.cost.memory.total)
    tight = found(searching(model, all_meshes(machine, 4), machine.holding(least), library))
    assert not tight.warnings and tight.cost.memory.total <= least and tight.seconds >= free.seconds
    none = searching(model, all_meshes(machine, 4), machine.holding(2**20), library)
    plan = found(none)
    assert [warning.code for warning in plan.warnings] == ["W301"] and len(none.trail) == 1


def test_other_strategies_have_no_choice(library: Library, build: Build) -> None:
    """Except for their passes."""
    request = Request(
        EXAMPLES / "mlp_unity.udl", preset="small", machine="dgx-h100", devices=4, strategy="data_parallel"
    )
    plan = compile_model(request).plan
    assert [trial.move for trial in plan.trail] == ["start"] and plan.strategy == "data_parallel"


def test_more_effort_is_no_worse() -> None:
    """For a model in which branches and interleaving pay: the trail of more effort extends that of less."""
    steps, trails = [], []
    for effort in EFFORTS:
        request = Request(EXAMPLES / "candle_uno.udl", machine="summit", devices=6, settings={"b": 768}, effort=effort)
        plan = compile_model(request).plan
        steps.append(plan.seconds)
        trails.append(plan.trail)
    assert steps == sorted(steps, reverse=True)
    assert all(more[: len(less)] == less for less, more in pairwise(trails)) and len(trails[0]) < len(trails[-1])


def test_towers_have_the_same_plan_by_one_process_and_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(EXAMPLES / "mlp_unity.udl", preset="small", machine="dgx-h100", devices=4)
    plans = []
    for processors in (1, 2, 4):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, count=processors: set(range(count)))
        plans.append(compile_model(request).plan)
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].notes == plans[1].notes and plans[0].trail == plans[1].trail == plans[2].trail

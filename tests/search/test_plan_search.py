"""The search against brute force over everything, and repeats against the same model written out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Plan, PlannedSegment
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import all_meshes, build_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.cheapest_plan import _plan as plan_of_model
from unity_dsl.search.constants import PROMISING
from unity_dsl.search.exact_search import bounded_search as module
from unity_dsl.search.meshes.mesh_search import Outcome
from unity_dsl.search.plan_search import search
from unity_dsl.search.search_context import SearchContext
from unity_dsl.search.search_space import SearchSpace
from unity_dsl.search.solve import solve

from .brute_force import BruteForce, TooMany
from .conftest import EQUAL, FOUR, TWO, Build
from .random_models import random_machine, random_model, random_repeat


def is_exact(plan: Plan) -> bool:
    return plan.notes[0].startswith("proved optimal")


def plans(model: Model, mesh: Mesh, machine: Machine, library: Library) -> Iterator[Plan]:
    """The plan as searched, with small domains eliminated at once, and the plan by bounds only."""
    yield search(model, mesh, machine, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 0)
        yield search(model, mesh, machine, library)


@pytest.mark.parametrize(
    ("mesh", "steps", "sizes", "wanted"), [(TWO, 3, (2, 3, 4), 25), (FOUR, 2, (2, 3), 6)], ids=["2", "2x2"]
)
def test_the_plan_is_the_cheapest_of_all(
    mesh: Mesh, steps: int, sizes: tuple[int, ...], wanted: int, library: Library, build: Build
) -> None:
    """Over configurations, storages and sets of held layouts, with at most two further layouts of a value."""
    tried = bites = 0
    for seed in range(1000):
        rng = Random(seed)
        model, machine = build(random_model(rng, steps, sizes)), random_machine(rng)
        brute = BruteForce(model, mesh, machine, library)
        try:
            cheapest = brute.least(2)
        except TooMany:
            continue
        for plan in plans(model, mesh, machine, library):
            assert plan.cost.seconds == pytest.approx(cheapest, rel=1e-6), f"seed {seed}"
            assert is_exact(plan), f"seed {seed}"
        unbounded = brute.least(None) if mesh is TWO else cheapest
        assert unbounded <= cheapest * (1 + 1e-9), f"seed {seed}"
        bites += unbounded < cheapest * (1 - 1e-6)
        tried += 1
        if tried == wanted:
            break
    print(f"{tried} models on {mesh.degrees}: in {bites} the bound of two further layouts bites")
    assert tried == wanted


def test_the_plan_is_the_cheapest_of_all_where_axes_trade_places(library: Library, build: Build) -> None:
    """Or it is at most as far from the cheapest as it reports."""
    exact = 0
    for seed in range(1000):
        rng = Random(seed)
        model, machine = build(random_model(rng, 2, (2, 3))), random_machine(rng)
        try:
            cheapest = BruteForce(model, EQUAL, machine, library).least(2)
        except TooMany:
            continue
        for plan in plans(model, EQUAL, machine, library):
            assert plan.cost.seconds >= cheapest * (1 - 1e-6), f"seed {seed}"
            if is_exact(plan):
                exact += 1
                assert plan.cost.seconds == pytest.approx(cheapest, rel=1e-6), f"seed {seed}"
            else:
                gap = float(re.search(r"within (\S+) % of the optimum", plan.notes[0])[1])
                assert plan.cost.seconds * (1 - gap / 100 * 1.1) <= cheapest * (1 + 1e-6), f"seed {seed}"
        if exact >= 12:
            return
    pytest.fail("few plans were proved optimal")


@pytest.mark.parametrize("seed", [*range(7), *range(8, 13)])  # for 7 the tables grow too large for a proof
def test_a_repeat_costs_what_its_iterations_cost(seed: int, library: Library, build: Build) -> None:
    rng = Random(seed)
    folded, written = random_repeat(rng, rng.choice((1, 2, 3, 5, 8)))
    machine, mesh = random_machine(rng), rng.choice((TWO, FOUR))
    found = [plan for text in (folded, written) for plan in plans(build(text), mesh, machine, library)]
    for plan in found:
        assert plan.cost.seconds == pytest.approx(found[0].cost.seconds, rel=1e-6)
    assert all(map(is_exact, found))


def test_runs_cover_the_iterations_and_join_equal_ones(library: Library, build: Build) -> None:
    text = """
model m[n = 1]
  input x: f32[64, 512]
  input target: f32[64, 512]
  weight w0: f32[512, 512] ~ normal(0.1)
  v = linear(x, w0)
  repeat 9 as layer
    weight w: f32[512, 512] ~ normal(0.1)
    v = relu(linear(v, w))
  loss mse(v, target)
"""
    machine = load_machine("local")
    plan = search(build(text), build_mesh(machine, 2), machine, library, "data_parallel")
    (segment,) = [step for step in plan.graph.steps if isinstance(step, PlannedSegment)]
    assert [(run.first, run.count) for run in segment.runs] == [(0, 9)]
    plan = search(build(text), build_mesh(machine, 4), machine, library)
    (segment,) = [step for step in plan.graph.steps if isinstance(step, PlannedSegment)]
    covered = [run.first + i for run in segment.runs for i in range(run.count)]
    assert covered == list(range(9))
    entries = [run.body.values["v"].produced for run in segment.runs]
    exits = [run.body.values[segment.segment.exit[0].name].produced for run in segment.runs]
    assert exits[:-1] == entries[1:]
    assert all(entry == exit_ for entry, exit_, run in zip(entries, exits, segment.runs, strict=True) if run.count > 1)
    assert entries[0] == plan.graph.values[segment.segment.initial[0].name].produced
    assert exits[-1] == plan.graph.values[segment.segment.results[0].name].produced


def test_the_same_model_gives_the_same_plan(library: Library, build: Build) -> None:
    rng = Random(5)
    text, machine = random_model(rng, 4), random_machine(rng)
    plans = [search(build(text), FOUR, machine, library) for _ in range(2)]
    assert plans[0].graph.values.keys() == plans[1].graph.values.keys()
    for name, planned in plans[0].graph.values.items():
        other = plans[1].graph.values[name]
        assert (planned.produced, planned.materialised) == (other.produced, other.materialised)


def test_repeats_in_repeats(library: Library, build: Build) -> None:
    """The inner body is solved once for the layouts of the outer one. The plan costs as much as the
    model written out.
    """
    lines = ["model m[n = 1]", "  input x: f32[4, 6]", "  input target: f32[4, 6]", "  weight w0: f32[6, 6] ~ zeros"]
    head = "\n".join([*lines, "  v = linear(x, w0)"])
    nested = (
        head
        + """
  repeat 3 as outer
    weight a: f32[6, 6] ~ zeros
    v = linear(v, a)
    repeat 4 as inner
      weight b: f32[6, 6] ~ zeros
      v = relu(linear(v, b))
  loss mse(v, target)
"""
    )
    written = head
    for i in range(3):
        written += f"\n  weight a{i}: f32[6, 6] ~ zeros\n  v = linear(v, a{i})"
        for j in range(4):
            written += f"\n  weight b{i}_{j}: f32[6, 6] ~ zeros\n  v = relu(linear(v, b{i}_{j}))"
    written += "\n  loss mse(v, target)\n"
    machine = random_machine(Random(3))
    costs = [search(build(text), TWO, machine, library).cost.seconds for text in (nested, written)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_read_is_held(seed: int, library: Library, build: Build) -> None:
    """Every operator finds the layouts that it needs, sources come first, and at most two further ones are made for
    readers.
    """
    rng = Random(100 + seed)
    model = build(random_model(rng, 6))
    plan = search(model, FOUR, random_machine(rng), library)
    for name, planned in plan.graph.values.items():
        made = [planned.produced]
        for conversion in planned.materialised:
            assert conversion.source in made
            made.append(conversion.layout)
        assert len(made) - 1 <= 2 or name in {"x", "target"}
    for step in plan.graph.steps:
        for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
            planned = plan.graph.values[value.name]
            assert layout in (planned.produced, *(made.layout for made in planned.materialised))


def test_large_fine_meshes_on_which_no_plan_costs_so_little(
    library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a price of memory, such meshes are searched only in the neighbourhood of other plans, without a bound or a
    refusal.
    """
    machine = load_machine("dgx-a100")
    model = build("model m[n = 1]\n  input x: f32[64, 64]\n  y = relu(x)\n  output y\n")
    context = SearchContext(machine, library, ShardingTheorems(library), "auto", {}, 0.0).limited(
        1e-15, frozenset(), 1.0, ""
    )
    monkeypatch.setattr("unity_dsl.search.cheapest_plan.search_meshes", lambda task, meshes, below, *_: Outcome(below))
    assert plan_of_model(model, [build_mesh(machine, 8, (2, 2, 2))], context) is None


def test_others_are_the_best_plans_of_meshes_that_cost_nearly_as_little(library: Library, build: Build) -> None:
    """Each is of another mesh, with its own cost. On equal cost, the plan with the fewest axes is taken."""
    machine = load_machine("dgx-a100")
    model = build(
        "model m[n = 1]\n  input x: f32[64, 64]\n  input target: f32[64, 64]\n  weight w: f32[64, 64] ~ normal(0.1)\n"
        "  loss mse(relu(linear(x, w)), target)\n"
    )
    meshes = all_meshes(machine, 4)
    space = SearchSpace(machine, library, ShardingTheorems(library))
    found = solve(model, meshes, space)
    assert found.plan.mesh.degrees == (4,) and found.others
    assert len({plan.mesh.degrees for plan, _ in found.others} | {(4,)}) == 1 + len(found.others)
    for plan, context in found.others:
        alone = solve(model, (plan.mesh,), space).plan
        assert plan.cost.seconds == pytest.approx(alone.cost.seconds)
        assert plan.cost.seconds <= found.plan.cost.seconds * PROMISING
        assert context.found_of(model, plan.mesh) is not None

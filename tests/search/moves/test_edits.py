"""Edits of points: uniform-sharding candidates against pins of every weight, uniform iterations,
neighbours of a mesh.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Invariant, Layout, Mesh, Shard, nest
from unity_dsl.graph.layout_typing import Configuration
from unity_dsl.graph.plan import PlannedGraph, PlannedNode, PlannedSegment, Run
from unity_dsl.index.library import Library
from unity_dsl.machine.collective_price import local_fraction
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Keeping, Restriction, storable
from unity_dsl.search.constants import DEARER, EFFORTS
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.plan_assembly import assemble
from unity_dsl.search.layout_problem.problem_context import Prices, prices_on
from unity_dsl.search.moves.iterations import iterations_alike
from unity_dsl.search.moves.meshes import neighbours
from unity_dsl.search.moves.storage import propose_storage
from unity_dsl.search.plan_search import search as searched
from unity_dsl.simulation.step_tasks import simulate_step

from ..conftest import FOUR, TWO, Build
from ..searching import cheapest_point, searching

MODEL = """
model m[n = 1]
  input x: f32[8, 8]
  input target: f32[8, 2]
  weight u: f32[8, 8] ~ normal(0.1)
  weight v: f32[8, 8] ~ normal(0.1)
  weight w: f32[2, 8] ~ normal(0.1)
  h = relu(linear(x, u))
  h = linear(linear(h, v), v)
  loss mse(linear(h, w), target)
"""
LARGE = """
model m[n = 1]
  input x: f32[262144, 512]
  input target: f32[262144, 512]
  weight u: f32[512, 512] ~ normal(0.1)
  weight v: f32[512, 512] ~ normal(0.1)
  weight w: f32[512, 512] ~ normal(0.1)
  loss mse(linear(relu(linear(relu(linear(x, u)), v)), w), target)
"""
REPEATED = """
model m[n = 1]
  input x: f32[8, 8]
  input target: f32[8, 8]
  repeat 3 as layer
    weight w: f32[8, 8] ~ normal(0.1)
    x = relu(linear(x, w))
  loss mse(x, target)
"""
WEIGHTS = ("u", "v", "w")


def cheapest(model: Model, prices: Prices, restriction: Restriction) -> tuple[float, PlannedGraph]:
    problem = build_problem(model, prices, restriction)
    best = optimise(problem.part, everything(problem.part))
    assert best.plan is not None and best.exact
    return best.cost, assemble(problem, best.plan, prices.mesh, model)


def kept(graph: PlannedGraph) -> dict[str, Layout]:
    return {name: graph.values[name].produced for name in WEIGHTS}


@pytest.mark.parametrize("mesh", [TWO, FOUR])
@pytest.mark.parametrize("machine", ["dgx-a100", "local"])
def test_the_cheapest_of_all_pins_that_keep_weights_so(
    machine: str, mesh: Mesh, build: Build, library: Library
) -> None:
    """Every combination of weight pins is searched separately. One weight has two readers."""
    model = build(MODEL)
    prices = prices_on(mesh, load_machine(machine), library, ShardingTheorems(library), model.gradient_bytes)
    pins = {
        name: [
            layout
            for kinds in product((Invariant(), Shard(0), Shard(1)), repeat=len(mesh.axes))
            if storable(layout := nest(kinds)) and _divides(layout, model, name, mesh)
        ]
        for name in WEIGHTS
    }
    ways = (Keeping.WHOLE, 1.0), (Keeping.SLICES, 1 / mesh.size), (Keeping.HYBRID, 1 / mesh.axes[-1].degree)
    for keeping, held in ways:
        cost, graph = cheapest(model, prices, Restriction(keeping=keeping))
        assert {name: local_fraction(layout, mesh) for name, layout in kept(graph).items()} == dict.fromkeys(
            WEIGHTS, held
        )
        inner = keeping is Keeping.HYBRID
        alike = (
            [
                one
                for one in pins[name]
                if local_fraction(one, mesh) == held and not (inner and Layout(one.kinds[:-1]).where(Shard))
            ]
            for name in WEIGHTS
        )
        every = [
            cheapest(model, prices, Restriction(storage=dict(zip(WEIGHTS, chosen, strict=True))))[0]
            for chosen in product(*alike)
        ]
        assert cost == pytest.approx(min(every), rel=1e-9)


def _divides(layout: Layout, model: Model, name: str, mesh: Mesh) -> bool:
    (shape,) = (weight.value.shape for path, weight in model.weights() if path == name)
    cuts = [
        prod(mesh.degrees[a] for a, k in enumerate(layout.kinds) if isinstance(k, Shard) and k.dim == dim)
        for dim in range(len(shape))
    ]
    return all(size % cut == 0 for size, cut in zip(shape, cuts, strict=True))


def test_weights_that_are_gathered_are_read_whole(build: Build, library: Library) -> None:
    """Even though a plan that reads slices costs no more."""
    model, mesh = build(MODEL), FOUR
    prices = prices_on(mesh, load_machine("dgx-a100"), library, ShardingTheorems(library), model.gradient_bytes)
    free, _ = cheapest(model, prices, Restriction(keeping=Keeping.SLICES))
    cost, graph = cheapest(model, prices, Restriction(keeping=Keeping.GATHERED))
    assert cost >= free * (1 - 1e-9)
    assert all(local_fraction(layout, mesh) == 1 / 4 for layout in kept(graph).values())
    read = [
        layout
        for step in graph.steps
        if isinstance(step, PlannedNode)
        for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True)
        if value.name in WEIGHTS
    ]
    assert len(read) == 4 and all(local_fraction(layout, mesh) == 1 for layout in read)


def test_weights_that_are_kept_as_they_are_read_are_not_gathered(build: Build, library: Library) -> None:
    """No plan with pinned weights is cheaper if the only reader of each weight reads all that is stored of it."""
    model, mesh = build(MODEL), FOUR
    for machine in ("dgx-a100", "summit"):
        prices = prices_on(mesh, load_machine(machine), library, ShardingTheorems(library), model.gradient_bytes)

        def gathered(graph: PlannedGraph) -> set[str]:
            reads = (
                (value.name, layout)
                for step in graph.steps
                if isinstance(step, PlannedNode)
                for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True)
            )
            return {
                name
                for name, layout in reads
                if name in ("u", "w") and local_fraction(layout, mesh) != local_fraction(kept(graph)[name], mesh)
            }

        cost, graph = cheapest(model, prices, Restriction(keeping=Keeping.AS_READ))
        assert not gathered(graph)
        layouts = [
            layout for kinds in product((Invariant(), Shard(0), Shard(1)), repeat=2) if storable(layout := nest(kinds))
        ]
        pins = [
            {"u": u, "w": w}
            for u in layouts
            for w in layouts
            if _divides(u, model, "u", mesh) and _divides(w, model, "w", mesh)
        ]
        found = [cheapest(model, prices, Restriction(storage=pin)) for pin in pins]
        every = [seconds for seconds, planned in found if not gathered(planned)]
        assert every and min(seconds for seconds, _ in found) - 1e-12 <= cost <= min(every) * (1 + 1e-9)


def test_an_edit_of_storage_keeps_all_weights_so(build: Build, library: Library) -> None:
    """Weights have the same fractions as in the cheapest plan with such storage. The plan comes from a local search,
    which does not find plans that cost much more than the point.
    """
    machine, model = load_machine("dgx-h100"), build(LARGE)
    search = searching(model, [FOUR], machine, library)
    point, tried = cheapest_point(search), 0
    timeline = simulate_step(point.plan, machine, library)
    for edit in propose_storage(point, timeline, search.solver, EFFORTS["normal"]):
        if (new := edit.solved()) is not None:
            tried += 1
            keeping = new.restricted.keeping
            assert keeping is not None and new.restricted.told == edit.told == f"all weights are kept {keeping.value}"
            cost, graph = cheapest(model, point.context.priced(FOUR), Restriction(keeping=keeping))
            assert cost * (1 - 1e-6) <= new.plan.cost.seconds <= DEARER * point.plan.cost.seconds
            parts = [
                {name: local_fraction(layout, FOUR) for name, layout in kept(one).items()}
                for one in (graph, new.plan.graph)
            ]
            assert keeping is Keeping.AS_READ or parts[0] == parts[1]
    assert tried >= 3


def test_the_bound_of_an_edit_is_below_its_step(build: Build, library: Library) -> None:
    """For plans with uniformly sharded weights, on two machines."""
    for name in ("dgx-h100", "summit"):
        machine = load_machine(name)
        for text in (MODEL, LARGE, REPEATED):
            search = searching(build(text), [FOUR], machine, library)
            point = cheapest_point(search)
            timeline = simulate_step(point.plan, machine, library)
            for edit in propose_storage(point, timeline, search.solver, EFFORTS["normal"]):
                if (new := edit.solved()) is not None:
                    assert simulate_step(new.plan, machine, library).seconds >= edit.bound * (1 - 1e-9), edit.told


def test_neighbours_of_a_mesh_are_as_large_and_differ_by_one_edit() -> None:
    """Neighbours are mutual, and no mesh is its own neighbour. Axes of 64 devices are joined, split, moved and
    reordered.
    """
    every = all_meshes(load_machine("dgx-h100"), 64)
    for mesh in every:
        near = neighbours(mesh, every)
        assert len({one.degrees for one in near}) == len(near) and mesh not in near
        assert all(one.size == 64 and mesh in neighbours(one, every) for one in near)
    near = [one.degrees for one in neighbours(next(one for one in every if one.degrees == (8, 4, 2)), every)]
    assert near[:3] == [(4, 8, 2), (2, 4, 8), (32, 2)], "of each kind in turn; four axes are too many"
    found = set(near)
    assert {(8, 2, 4), (32, 2), (8, 8), (2, 4, 4, 2), (4, 8, 2), (16, 2, 2), (16, 4, 1)} & found == {
        (8, 2, 4), (32, 2), (8, 8), (4, 8, 2), (16, 2, 2)
    }  # fmt: skip


def configurations(body: PlannedGraph) -> dict[str, Configuration]:
    found = (step for step in body.steps if isinstance(step, PlannedNode))
    return {f"layer.{step.node.name}": step.typed.configuration for step in found}


def test_iterations_that_differ_may_all_do_as_one_of_them(build: Build, library: Library) -> None:
    """For a plan whose first iteration divides rows and whose others divide columns of the weight."""
    model, machine = build(REPEATED), load_machine("dgx-a100")
    by_rows = searched(model, TWO, machine, library, "data_parallel").graph
    by_columns = searched(model, TWO, machine, library, pins={"layer.w": (Shard(0),)}).graph
    (repeat,) = (step for step in by_rows.steps if isinstance(step, PlannedSegment))
    (other,) = (step for step in by_columns.steps if isinstance(step, PlannedSegment))
    rows, columns = repeat.runs[0].body, other.runs[-1].body
    assert configurations(rows) != configurations(columns)
    runs = Run(0, 1, rows), Run(1, 2, columns)
    mixed = replace(by_rows, steps=[replace(s, runs=runs) if s is repeat else s for s in by_rows.steps])
    assert iterations_alike(by_rows) == []
    last, first = iterations_alike(mixed)
    assert (last.configurations, first.configurations) == (configurations(columns), configurations(rows))
    prices = prices_on(TWO, machine, library, ShardingTheorems(library), model.gradient_bytes)
    for way in (last, first):
        _, graph = cheapest(model, prices, Restriction(configurations=way.configurations))
        (found,) = (step for step in graph.steps if isinstance(step, PlannedSegment))
        assert all(configurations(run.body) == way.configurations for run in found.runs)

"""The search over meshes, against brute force over all of them and against the search on each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import pytest

from unity_dsl.graph.layout import Mesh, Shard
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import all_meshes, build_mesh, describe_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.constants import WORTH
from unity_dsl.search.exact_search.bounded_search import survey
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.problem_context import prices_on
from unity_dsl.search.layout_problem.starting_domains import KnownChoices
from unity_dsl.search.meshes import mesh_search as module
from unity_dsl.search.plan_search import meshes_for, search
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ...datasheet import by_datasheet
from ..brute_force import BruteForce, TooMany
from ..conftest import Build
from ..random_models import random_machine, random_model

WIDE = """
model wide[n = 1]
  input x: f32[16, 48, 4096]
  input target: f32[16, 48, 4096]
  weight a: f32[4096, 4096] ~ normal(0.1)
  weight b: f32[4096, 4096] ~ normal(0.1)
  h = linear(relu(linear(x, a)), b)
  loss mse(h, target)
"""


def of_eight(machine: Machine) -> Machine:
    """The machine with two units of four devices."""
    first, second = machine.levels
    return replace(machine, levels=(replace(first, size=4), replace(second, size=2)))


def bound(plan: Plan) -> float:
    """The lower bound on the cost of any plan that the plan's first note states."""
    if plan.notes[0].startswith("proved optimal"):
        return plan.cost.seconds * (1 - 1e-6)
    found = re.search(r"within (\S+) % of the optimum", plan.notes[0])
    assert found, plan.notes[0]
    return plan.cost.seconds * (1 - float(found[1]) / 100 * 1.1)


def test_the_plan_is_the_cheapest_of_all_meshes(library: Library, build: Build) -> None:
    """For four devices: in a row, or two by two."""
    tried, better = 0, set()
    for seed in range(1000):
        rng = Random(seed)
        model, machine = build(random_model(rng, 2, (2, 3, 4))), of_eight(random_machine(rng))
        try:
            cheapest = {
                mesh.degrees: BruteForce(model, mesh, machine, library).least(2) for mesh in all_meshes(machine, 4)
            }
        except TooMany:
            continue
        plan = search(model, all_meshes(machine, 4), machine, library)
        assert plan.cost.seconds == pytest.approx(min(cheapest.values()), rel=1e-6), f"seed {seed}"
        assert plan.notes[0].startswith("proved optimal under the additive cost model on "), f"seed {seed}"
        assert cheapest[plan.mesh.degrees] == pytest.approx(plan.cost.seconds, rel=1e-6), f"seed {seed}"
        better.add(plan.mesh.degrees)
        tried += 1
        if tried == 8:
            break
    assert tried == 8


@pytest.mark.parametrize("seed", range(6))
def test_no_mesh_by_itself_is_better(seed: int, library: Library, build: Build) -> None:
    """And no plan on any of them costs less than the bound in the note."""
    rng = Random(seed)
    model, machine = build(random_model(rng, 5, (8, 12, 16))), of_eight(random_machine(rng))
    plan = search(model, all_meshes(machine, 8), machine, library)
    for mesh in all_meshes(machine, 8):
        alone = search(model, mesh, machine, library)
        assert alone.mesh.degrees == mesh.degrees
        assert plan.cost.seconds <= alone.cost.seconds * (1 + 1e-6), mesh.degrees
        assert bound(plan) <= alone.cost.seconds, mesh.degrees


@pytest.mark.parametrize("of", [by_datasheet, load_machine])
def test_a_mesh_is_found_though_the_coarser_ones_are_bad(of: Callable[[str], Machine], library: Library) -> None:
    """A batch of 8 on 96 devices: the axis of 8 in 3 x 8 x 4 divides it. No axis of 24 x 4 or 3 x 32 does, and plans on
    those meshes are twice as expensive. Against the search on every mesh whose bound is below the found cost, apart
    from noise.
    """
    text = read_source(Path(__file__).parents[3] / "examples" / "bert_unity.udl")
    model, machine = build_model(parse_model(text), library), of("dgx-h100")
    meshes, theorems = all_meshes(machine, 96), ShardingTheorems(library)
    found = search(model, meshes, machine, library, theorems=theorems).cost.seconds
    for mesh in meshes:
        prices = prices_on(mesh, machine, library, theorems, model.gradient_bytes)
        part = build_problem(model, prices, Restriction()).part
        if survey(part, everything(part)).bound < found / (1 + WORTH):
            by_hand = search(model, mesh, machine, library, theorems=theorems).cost.seconds
            assert found <= by_hand * (1 + WORTH), mesh.degrees


def shapes(meshes: Sequence[Mesh]) -> set[tuple[int, ...]]:
    return {mesh.degrees for mesh in meshes}


def test_the_note_names_the_meshes(library: Library, build: Build) -> None:
    machine, model = load_machine("dgx-a100"), build(WIDE)
    plan = search(model, meshes_for(machine, 8, None, "auto"), machine, library)
    found = re.search(r"meshes: ([\dx, ]+)$", plan.notes[0])
    assert found, plan.notes[0]
    named = {tuple(map(int, text.split(" x "))) for text in found[1].rstrip(", ").split(", ")}
    assert named == {(8,), (2, 4), (4, 2), (2, 2, 2)}
    plan = search(model, meshes_for(machine, 8, (2, 4), "auto"), machine, library)
    assert plan.mesh.degrees == (2, 4)
    assert "mesh" not in plan.notes[0]


def test_ten_thousand_devices(library: Library, build: Build) -> None:
    """A plan on nodes, racks, pods and their cluster, which costs less than on the mesh of one axis."""
    machine, model = load_machine("llama3-cluster"), build(WIDE)
    plan = search(model, all_meshes(machine, 12288), machine, library)
    assert plan.mesh.size == 12288
    row = search(model, build_mesh(machine, 12288, (12288,)), machine, library)
    assert plan.cost.seconds < row.cost.seconds
    assert max(axis.level for axis in plan.mesh.axes) == 3


def test_what_is_not_searched_is_told(library: Library, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the bound is not claimed for it."""
    monkeypatch.setattr(module, "EFFORT_COARSE", 0)
    monkeypatch.setattr(module, "EFFORT_SCOUTED", 0)
    monkeypatch.setattr(module, "EFFORT_WHOLE", 0)
    monkeypatch.setattr(module, "LARGE", 0)
    machine, model = load_machine("dgx-a100"), build(WIDE)
    plan = search(model, all_meshes(machine, 64), machine, library)
    searched = re.search(r"meshes: ([\dx, ]+)$", plan.notes[0])
    assert searched, plan.notes[0]
    assert len(searched[1].rstrip(", ").split(", ")) == 2, "one of one axis and one of two"
    told = " ".join(plan.notes[1:3])
    counts = re.fullmatch(
        r"searched only in the neighbourhood of plans of other meshes: (?:(\d+) mesh|the mesh).*"
        r" not searched, being less promising: (\d+) meshes.*",
        told,
    )
    assert counts, told
    assert int(counts[1] or 1) + int(counts[2]) == len(all_meshes(machine, 64)) - 2


def test_fine_meshes_are_searched_as_a_whole_where_they_are_small(
    library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole search proves the plan of a local search, and finds the same cost."""
    machine, model, plans = load_machine("dgx-a100"), build(WIDE), list[Plan]()
    for effort in (10**9, 0):
        monkeypatch.setattr(module, "EFFORT_WHOLE", effort)
        plans.append(search(model, all_meshes(machine, 16), machine, library))
    proved, others = plans
    assert others.cost.seconds == pytest.approx(proved.cost.seconds, rel=1e-6)
    three = [re.findall(r"\d+ x \d+ x \d+", plan.notes[0]) for plan in plans]
    fine = [describe_mesh(mesh) for mesh in all_meshes(machine, 16) if len(mesh.axes) > 2]
    assert sorted(three[0]) == sorted(fine) and not three[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_best_coarse_mesh_is_found_by_its_bound(
    seed: int, library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first mesh of two axes is searched before any is bounded."""
    rng = Random(seed)
    machine = load_machine(rng.choice(("summit", "dgx-a100")))
    model = build(random_model(rng, 4, (8, 12, 16)))
    meshes = [mesh for mesh in all_meshes(machine, 48) if len(mesh.axes) <= 2]
    by_hand = min(search(model, mesh, machine, library).cost.seconds for mesh in meshes)
    monkeypatch.setattr(module, "EFFORT_COARSE", 0)
    monkeypatch.setattr(module, "EFFORT_SCOUTED", 10**9)
    monkeypatch.setattr(module, "SCOUTED", len(meshes))
    found = search(model, meshes, machine, library).cost.seconds
    assert found == pytest.approx(by_hand, rel=1e-6), seed


@pytest.mark.parametrize(
    ("machine", "devices", "told"),
    [
        ("dgx-a100", 8, ""),
        ("dgx-a100", 16, ""),
        ("dgx-a100", 7, "7 devices on a node of 8 GPUs: 1 stay unused"),
        ("dgx-a100", 12, "12 devices on 2 nodes of 8 GPUs: 4 stay unused"),
        ("summit", 12, ""),
        ("summit", 9, "9 devices on 2 nodes of 6 GPUs: 3 stay unused"),
        ("local", 2, ""),
    ],
)
def test_unused_devices_are_told(machine: str, devices: int, told: str, library: Library, build: Build) -> None:
    found = load_machine(machine)
    for strategy in ("auto", "single"):
        plan = search(build(WIDE), meshes_for(found, devices, None, strategy), found, library, strategy)
        assert [note for note in plan.notes if "unused" in note] == ([told] if told else [])


def test_pins_leave_the_meshes_with_as_many_axes(library: Library, build: Build) -> None:
    machine, model = load_machine("dgx-a100"), build(WIDE)
    meshes = all_meshes(machine, 8)
    for pin in [(Shard(0),), (Shard(0), Shard(1)), (Shard(1), Shard(0), Shard(0))]:
        plan = search(model, meshes, machine, library, pins={"a": pin})
        assert len(pin) in (1, len(plan.mesh.axes))
        kinds = [type(kind).__name__ + str(kind) for kind in plan.graph.values["a"].produced.kinds]
        assert kinds == [f"Shard{kind}" for kind in pin * (len(plan.mesh.axes) if len(pin) == 1 else 1)]
    with pytest.raises(InputError) as raised:
        search(model, meshes, machine, library, pins={"a": (Shard(0),) * 4})
    assert raised.value.diagnostic.code == "E305"
    with pytest.raises(InputError) as raised:
        search(model, meshes, machine, library, pins={"a": (Shard(0),) * 2, "b": (Shard(0),) * 3})
    assert raised.value.diagnostic.code == "E305"


def test_pins_leave_the_meshes_that_divide_the_size(library: Library, build: Build) -> None:
    """48 is divisible by 16 but not by 32: of the meshes with two axes, only those remain whose pinned axis has up to
    16 devices.
    """
    machine, model = load_machine("dgx-a100"), build(WIDE)
    plan = search(model, all_meshes(machine, 64), machine, library, pins={"h": (Shard(1), Shard(0))})
    outer, inner = plan.mesh.degrees
    assert 48 % outer == 0
    assert 16 % inner == 0
    with pytest.raises(InputError) as raised:
        search(model, all_meshes(machine, 64), machine, library, pins={"h": (Shard(1), Shard(1))})
    assert raised.value.diagnostic.code == "E307"


def test_one_mesh_starts_from_coarser_ones(library: Library, build: Build) -> None:
    """A mesh that splits the axes of a coarse one has its plans, at no higher cost."""
    machine, model = load_machine("dgx-a100"), build(WIDE)
    fine = search(model, build_mesh(machine, 16, (2, 4, 2)), machine, library)
    for coarse in [(16,), (8, 2), (2, 8)]:
        found = search(model, build_mesh(machine, 16, coarse), machine, library)
        assert fine.cost.seconds <= found.cost.seconds * (1 + 1e-6)


def test_a_search_below_a_known_cost_misses_no_plan_that_it_finds_otherwise(library: Library) -> None:
    """For a problem whose tables are too large for a proof: a recurrence on summit, two by four."""
    text = read_source(Path(__file__).parents[3] / "examples" / "lstm_lm.udl")
    model, machine = build_model(parse_model(text), library), load_machine("summit")
    mesh = build_mesh(machine, 8, (2, 4))
    prices = prices_on(mesh, machine, library, ShardingTheorems(library), model.gradient_bytes)
    problem = build_problem(model, prices, Restriction())
    known = survey(problem.part, everything(problem.part))
    best = module._best(problem, known, KnownChoices(), inf)
    assert not best.exact
    below = module._best(problem, known, KnownChoices(), best.cost * 1.2)
    assert below.plan is not None
    assert below.cost <= best.cost * (1 + 1e-9)

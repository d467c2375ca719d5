"""The joint search equals the exhaustive one: every extraction of the e-graphs, each with its own best layouts.

The best layouts of a model are found by the search of that model alone, and for the smallest models by trying all
plans.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Exposure
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.rules.shipped_rules import ShippedRules, shipped_sources
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import Optimum, optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.joint.extracted_model import Algebra, Algebras, Chosen, extracted
from unity_dsl.search.joint.joint_search import JointOptimum, search_joint
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.problem_context import Prices, prices_on
from unity_dsl.search.meshes import mesh_search
from unity_dsl.search.meshes.near_search import BestOnMesh
from unity_dsl.search.plan_search import search
from unity_dsl.search.search_space import SearchSpace
from unity_dsl.search.solve import solve

from ...sampling import of_the_day
from ..brute_force import BruteForce, TooMany
from ..conftest import EQUAL, FOUR, TWO, Build
from ..random_models import random_machine

SEEDS = of_the_day(range(300), 24)
BIASED = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight b: f32[4] ~ normal(0.1)
  loss mse(linear(x, w) + b, target)
"""
PEAK = dict.fromkeys(("f64", "f32", "bf16", "f16"), 1e9)
SLOW_HOST = Machine("slow host", "cpu", PEAK, 1e9, 1e9, 1.0, 1.0, 1.0, ())
"""A launch takes a second."""
MOST = 400
"""Number of extractions of a model that are tried one by one, at most."""


@pytest.fixture(scope="module")
def algebras(library: Library) -> Algebras:
    return Algebras(ShippedRules(shipped_sources(), library))


def random_model(rng: Random) -> str:
    """A few matrix operators of kinds that rules match, some of them in a repeat."""
    rows, columns = rng.choice((2, 4)), rng.choice((2, 4))
    weights: list[str] = []

    def steps(count: int, indent: str) -> list[str]:
        lines = []
        for _ in range(count):
            kind = rng.choice(("linear", "biased", "siblings", "relu", "twice", "add", "scale"))
            square, row = f"{columns}, {columns}", f"{columns}"
            shapes = {"linear": [square], "biased": [square, row], "siblings": [square, square]}.get(kind, [])
            names = [f"w{len(weights) + number}" for number in range(len(shapes))]
            declared = zip(names, shapes, strict=True)
            lines += [f"{indent}weight {name}: f32[{shape}] ~ normal(0.1)" for name, shape in declared]
            weights.extend(names)
            expression = {
                "linear": "linear(v, {0})",
                "biased": "linear(v, {0}) + {1}",
                "siblings": "linear(v, {0}) * linear(v, {1})",
                "relu": "relu(v)",
                "twice": "relu(relu(v))",
                "add": "v + v",
                "scale": "v * 0.5",
            }[kind]
            lines.append(f"{indent}v = {expression.format(*names)}")
        return lines

    body = [f"  weight first: f32[{columns}, {columns}] ~ normal(0.1)", "  v = linear(x, first)"]
    if rng.random() < 0.4:
        body += [f"  repeat {rng.choice((1, 2, 3, 5))} as layer", *steps(rng.choice((1, 2)), "    ")]
    body += steps(rng.choice((0, 1, 2)), "  ")
    head = [f"  input {name}: f32[{rows}, {columns}]" for name in ("x", "target")]
    return "\n".join(["model random[n = 1]", *head, *body, "  loss mse(v, target)"]) + "\n"


def least(model: Model, prices: Prices) -> Optimum:
    """The optimal layouts of one model."""
    part = build_problem(model, prices, Restriction()).part
    return optimise(part, everything(part))


def joint(algebra: Algebra, prices: Prices, own: Optimum) -> JointOptimum:
    """The best extraction that costs less than the model as written."""
    problem = build_problem(algebra.model, prices, Restriction(), algebra=algebra.graphs)
    return search_joint(problem, algebra, own.cost)


def every_extraction(algebra: Algebra) -> list[Chosen]:
    spaces = [list(product(*(range(group.extractions) for group in graph.groups))) for graph in algebra.graphs.values()]
    return [dict(zip(algebra.graphs, numbers, strict=True)) for numbers in product(*spaces)]


def drawn(rng: Random, build: Build, algebras: Algebras, machine: Machine, most: int, repeats: bool) -> Algebra:
    """A random model's algebra with few enough extractions."""
    while True:
        text = random_model(rng)
        if repeats or "repeat" not in text:
            algebra = algebras.of(build(text), machine)
            if 1 < algebra.extractions <= most:
                return algebra


@pytest.mark.parametrize("seed", SEEDS)
def test_joint_equals_every_extraction_with_its_best_layouts(
    seed: int, build: Build, library: Library, algebras: Algebras
) -> None:
    rng = Random(seed)
    machine = random_machine(rng)
    algebra = drawn(rng, build, algebras, machine, MOST, repeats=True)
    model = algebra.model
    prices = prices_on(rng.choice((TWO, FOUR, EQUAL)), machine, library, ShardingTheorems(library))
    own = least(model, prices)
    variants = [extracted(algebra, chosen) for chosen in every_extraction(algebra)]
    every = [least(variant.model, prices) for variant in variants if variant is not None]
    found, cheapest = joint(algebra, prices, own), min(one.cost for one in every)
    # Ties between extractions are broken by a price per rule, which is less than this.
    assert found.bound <= cheapest + 1e-8
    assert min(found.cost, own.cost) >= min(one.bound for one in every) - 1e-8, f"seed {seed}"
    if found.exact and all(one.exact for one in every):
        assert min(found.cost, own.cost) == pytest.approx(cheapest, rel=1e-9, abs=1e-8), f"seed {seed}"


def test_small_problems_are_searched_exactly(build: Build, library: Library, algebras: Algebras) -> None:
    """Larger ones get a bound: those with too many combinations of a repeat's layouts and its algebra."""
    for seed in range(10):
        rng = Random(seed)
        machine = random_machine(rng)
        algebra = drawn(rng, build, algebras, machine, MOST, repeats=True)
        prices = prices_on(rng.choice((TWO, FOUR, EQUAL)), machine, library, ShardingTheorems(library))
        own = least(algebra.model, prices)
        assert own.exact and joint(algebra, prices, own).exact, f"seed {seed}"


@pytest.mark.parametrize("seed", of_the_day(range(60), 6))
def test_joint_equals_all_plans_of_every_extraction(
    seed: int, build: Build, library: Library, algebras: Algebras
) -> None:
    rng = Random(f"all plans {seed}")
    machine = random_machine(rng)
    costs: list[float] = []
    while not costs:
        algebra = drawn(rng, build, algebras, machine, 8, repeats=False)
        model = algebra.model
        prices = prices_on(TWO, machine, library, ShardingTheorems(library), model.gradient_bytes)
        variants = [extracted(algebra, chosen) for chosen in every_extraction(algebra)]
        with suppress(TooMany):
            costs = [BruteForce(v.model, TWO, machine, library).least(2) for v in variants if v is not None]
    problem = build_problem(model, prices, Restriction(), algebra=algebra.graphs)
    found = search_joint(problem, algebra, np.inf)
    assert found.exact
    assert found.cost == pytest.approx(min(costs), rel=1e-9, abs=1e-8), f"seed {seed}"


def test_the_plan_is_of_the_model_that_rules_made(build: Build, library: Library, algebras: Algebras) -> None:
    """A launch costs a second: a bias added within `linear` saves one forward, and nothing becomes more expensive."""
    model = build(BIASED)
    plain = search(model, Mesh(()), SLOW_HOST, library)
    plan = search(model, Mesh(()), SLOW_HOST, library, algebras=algebras)
    assert [used.rule for used in plan.rules] == ["linear_with_bias"]
    assert plan.cost.seconds < plain.cost.seconds
    assert any(note.startswith("rules applied: `linear_with_bias`") for note in plan.notes)


def test_the_model_as_it_is_written_is_another_plan(build: Build, library: Library, algebras: Algebras) -> None:
    """It is on the mesh of the plan that rules made. The search tries whether its step is shorter."""
    model, own = build(BIASED), replace(algebras, found={}, chosen={})
    space = SearchSpace(SLOW_HOST, library, ShardingTheorems(library), algebras=own)
    found = solve(model, (Mesh(()),), space)
    ((other, _),) = found.others
    assert [used.rule for used in found.plan.rules] == ["linear_with_bias"] and not other.rules
    assert other.model is model and other.mesh == found.plan.mesh and other.cost.seconds > found.plan.cost.seconds


def test_another_search_begins_with_the_plan_of_a_large_problem(
    build: Build, library: Library, algebras: Algebras, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under other prices, on the plan's mesh: it finds what a search of the whole mesh finds here, and reports that no
    bound is known. A problem that is small enough for a proof is searched as a whole.
    """
    machine, model = load_machine("dgx-h100"), build(BIASED.replace("4", "64"))
    mesh, known = build_mesh(machine, 8, (2, 2, 2)), dict[Mesh, BestOnMesh]()
    chosen = search(model, mesh, machine, library, algebras=algebras, known=known)
    told = []
    for large in (10**9, 0):
        monkeypatch.setattr(mesh_search, "LARGE", large)
        given = {"algebras": algebras, "chosen": chosen, "known": dict(known)}
        again = search(model, mesh, machine.exposing(Exposure(0.5, 0.5, 0.5)), library, **given)
        told.append((again.cost.seconds, again.notes[0]))
    (whole, proof), (near, note) = told
    assert near == pytest.approx(whole, rel=1e-9)
    assert proof.startswith("proved optimal") and note.endswith(
        "only the neighbourhood of an earlier plan was searched"
    )


def test_another_search_keeps_the_operators_of_a_plan(build: Build, library: Library, algebras: Algebras) -> None:
    """The second search has other prices: without launch costs, no rule would make the model cheaper."""
    text = """model m[n = 1]
  input x: f32[8, 4]
  input target: f32[8, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight b: f32[4] ~ normal(0.1)
  loss mse(linear(x, w) + b, target)
"""
    quick = replace(SLOW_HOST, launch_seconds=0.0)
    model = build(text)
    chosen = search(model, Mesh(()), SLOW_HOST, library, algebras=algebras)
    again = search(model, Mesh(()), quick, library, algebras=algebras, chosen=chosen)
    alone = search(chosen.model, Mesh(()), quick, library)
    assert again.rules == chosen.rules and again.model is chosen.model
    assert again.graph == alone.graph and again.cost == alone.cost
    assert [note for note in again.notes if note.startswith("rules applied")] == [
        note for note in chosen.notes if note.startswith("rules applied")
    ]

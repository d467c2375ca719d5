"""Dynamic programmes of the literature: exact minima of their spaces, by trying all choices of small models."""

from __future__ import annotations

from itertools import product

import pytest

from unity_dsl.graph.layout import Invariant
from unity_dsl.graph.layout_typing import Along, Uniformly
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.folded_solver.problem_part import Domains
from unity_dsl.search.layout_problem.model_problem import Problem
from unity_dsl.search.plan_search import search
from unity_dsl.search.strategies.communication import communication_costs, with_costs
from unity_dsl.search.strategies.data_parallel import data_parallel
from unity_dsl.search.strategies.expert import expert_meshes
from unity_dsl.search.strategies.galvatron import galvatron, galvatron_meshes
from unity_dsl.search.strategies.kept_storage import KeptAsRead, SlicedAlong, kept
from unity_dsl.search.strategies.nnscaler import nnscaler
from unity_dsl.search.strategies.operator_sites import Assignments, allowed_domains, chosen_at, sites_of
from unity_dsl.search.strategies.strategy import Space
from unity_dsl.search.strategies.tofu import tofu
from unity_dsl.search.strategies.unity import PART, is_view, parts_of, unity
from unity_dsl.syntax.diagnostic import InputError

from ..conftest import FOUR, Build
from .conftest import CHAIN, CONVOLUTIONS, TABLES, TRANSFORMER, MakeSpace

MACHINE = "dgx-a100"


def least(problem: Problem, domains: Domains) -> float:
    """The least cost over all choices of operators."""
    assignments = Assignments(problem, domains)
    paths = [site.path for site in sites_of(problem)]
    every = product(*(assignments.left[path] for path in paths))
    return min(assignments.cost(dict(zip(paths, options, strict=True))) for options in every)


def seconds(space: Space, strategy: str) -> float:
    return search(space.model, FOUR, space.machine, space.library, strategy).cost.seconds


# ---------------------------------------------------------------------------------------------- unity


def test_unity_has_the_best_views(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "unity", (2, 2))
    mesh = found.meshes[0]
    problem = found.problem(model, mesh, held=KeptAsRead())
    batch = data_parallel(model, mesh, found.library).configurations
    domains = allowed_domains(problem, lambda site, typed: is_view(site, typed, mesh, batch.get(site.path)))
    assert unity(found).cost == pytest.approx(least(problem, domains))


@pytest.mark.parametrize("text", [TRANSFORMER, CONVOLUTIONS])
def test_unity_divides_one_axis_over_neighbours(text: str, build: Build, space: MakeSpace) -> None:
    model = build(text)
    found = space(model, "unity", (2, 2))
    chosen = unity(found)
    assert chosen.cost <= seconds(found, "data_parallel") * (1 + 1e-9)
    for planned in chosen.graph.nodes():
        divided = planned.typed.divided
        assert len(divided) <= 1 and all(axes in ((0, 1), (1,)) for axes in divided.values())


def test_parts_have_every_operator_once(build: Build) -> None:
    model = build(TRANSFORMER)
    parts = list(parts_of(model))
    names = [place for part in parts for place in part]
    assert len(names) == len(set(names)) == len(list(model.graph.nodes()))
    assert any(len(part) >= PART for part in parts)


# ---------------------------------------------------------------------------------------------- nnscaler, tofu


def test_nnscaler_is_exact(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "nnscaler", (4,))
    chosen = nnscaler(found)
    problem = found.problem(model, found.meshes[0], held=KeptAsRead())
    whole = Uniformly(Invariant())
    domains = allowed_domains(
        problem, lambda _, typed: all(role == whole or isinstance(role, Along) for role in typed.configuration)
    )
    assert chosen.cost == pytest.approx(least(problem, domains))


@pytest.mark.parametrize("text", [CHAIN, TRANSFORMER, TABLES])
def test_nnscaler_is_no_worse_than_data_parallelism(text: str, build: Build, space: MakeSpace) -> None:
    found = space(build(text), "nnscaler", meshes=expert_meshes(load_machine(MACHINE), 4))
    assert nnscaler(found).cost <= seconds(found, "data_parallel") * (1 + 1e-9)


def test_tofu_splits_every_operator_and_weight(build: Build, space: MakeSpace) -> None:
    for text in (CHAIN, TRANSFORMER):
        found = space(build(text), "tofu", (2, 2))
        chosen = tofu(found)
        for planned in chosen.graph.nodes():
            assert sorted(axis for axes in planned.typed.divided.values() for axis in axes) == [0, 1]
        for value in chosen.graph.graph.weights:
            assert "I" not in str(chosen.graph.values[value.value.name].produced)


def test_the_first_step_of_tofu_has_the_least_communication(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "tofu", (2,))
    problem = found.problem(model, found.meshes[0], held=SlicedAlong([0]))
    domains = allowed_domains(problem, lambda site, typed: bool(typed.divided))
    cheap = Problem(
        with_costs(problem.part, communication_costs(found, problem)), problem.meaning, problem.spaces, problem.prices
    )
    chosen = tofu(found)
    assert Assignments(cheap, domains).cost(chosen_at(problem, chosen.plan)) == pytest.approx(least(cheap, domains))


def test_tofu_has_powers_of_two(build: Build, space: MakeSpace) -> None:
    with pytest.raises(InputError) as raised:
        tofu(space(build(CHAIN), "tofu", (3,)))
    assert raised.value.diagnostic.code == "E318"


# ---------------------------------------------------------------------------------------------- galvatron, storage


def test_galvatron_is_no_worse_than_one_strategy_for_all(build: Build, space: MakeSpace) -> None:
    found = space(build(TRANSFORMER), "galvatron", meshes=galvatron_meshes(load_machine(MACHINE), 4))
    chosen = galvatron(found)
    assert chosen.cost <= min(seconds(found, "data_parallel"), seconds(found, "zero")) * (1 + 1e-6)
    assert "around: " in chosen.notes[0] and "layer: " in chosen.notes[0]


def test_a_model_without_layers_has_one_hybrid(build: Build, space: MakeSpace) -> None:
    found = galvatron(space(build(CHAIN), "galvatron", (2,)))
    assert found.notes[0].startswith("around: ") and ";" not in found.notes[0]


def test_what_is_kept_as_it_is_read(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "unity", (2, 2))
    problem = found.problem(model, found.meshes[0])
    layouts = problem.spaces.of(model.graph.weights[0].value).layouts
    allowed = kept(layouts, range(2))
    for i, stored in enumerate(layouts):
        for j, read in enumerate(layouts):
            pairs = zip(stored.kinds, read.kinds, strict=True)
            assert allowed[i, j] == all(str(kind) == "I" or kind == other for kind, other in pairs)

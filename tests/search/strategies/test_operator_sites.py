"""Costs of choices for all operators equal those of the exact solver, and so do differences between two choices."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from unity_dsl.search.folded_solver.exact_minimum import Solver
from unity_dsl.search.folded_solver.problem_part import everything, no_limits
from unity_dsl.search.strategies.operator_sites import Assignments, allowed_domains, chosen_at, first_plan, sites_of

from ..conftest import Build
from .conftest import CHAIN, TABLES, TRANSFORMER, MakeSpace


@pytest.mark.parametrize("text", [CHAIN, TRANSFORMER, TABLES])
def test_differences_are_those_of_whole_plans(text: str, build: Build, space: MakeSpace) -> None:
    model = build(text)
    found = space(model, "flexflow", (2, 2))
    problem = found.problem(model, found.meshes[0])
    assignments = Assignments(problem, everything(problem.part))
    first = first_plan(problem, assignments.domains, {})
    assert first.plan is not None
    now, rng = chosen_at(problem, first.plan), Random(1)
    compared = 0
    for _ in range(120):
        site = rng.choice(assignments.sites)
        option = rng.choice(assignments.left[site.path])
        more = assignments.difference(now, site, option)
        changed = {**now, site.path: option}
        before, after = assignments.cost(now), assignments.cost(changed)
        if after == inf:
            assert more == inf
            continue
        assert more == pytest.approx(after - before, abs=1e-12)
        compared += 1
        if more < before / 10:
            now = changed
    assert compared > 60


@pytest.mark.parametrize("text", [CHAIN, TABLES])
def test_the_cost_of_a_choice_is_that_of_its_plan(text: str, build: Build, space: MakeSpace) -> None:
    model = build(text)
    found = space(model, "flexflow", (4,))
    problem = found.problem(model, found.meshes[0])
    exact = Solver(problem.part, everything(problem.part), no_limits(problem.part))
    choice = chosen_at(problem, exact.solution())
    assert Assignments(problem, everything(problem.part)).cost(choice) == pytest.approx(float(exact.table))


def test_what_is_allowed_is_left(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "flexflow", (2,))
    problem = found.problem(model, found.meshes[0])
    domains = allowed_domains(problem, lambda site, typed: not typed.divided)
    for site in sites_of(problem):
        left = [typed for typed, keep in zip(site.options.typed, domains.masks[site.variable], strict=True) if keep]
        assert left and not any(typed.divided for typed in left)
    none = allowed_domains(problem, lambda site, typed: False)
    assert all((a == b).all() for a, b in zip(none.masks, everything(problem.part).masks, strict=True))

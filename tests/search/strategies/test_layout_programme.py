"""The integer linear programme has the exact minimum of its space. Alpa and autoparallel build on it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from unity_dsl.machine.machine import load_machine
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.exact_minimum import Solver
from unity_dsl.search.folded_solver.problem_part import Part, everything, no_limits
from unity_dsl.search.plan_search import search
from unity_dsl.search.strategies.alpa_intra import alpa_intra
from unity_dsl.search.strategies.autoparallel import autoparallel, two_axes
from unity_dsl.search.strategies.layout_programme import GAP, solve_programme
from unity_dsl.search.strategies.operator_sites import Assignments, sites_of

from ..conftest import FOUR, Build
from .conftest import CHAIN, CONVOLUTIONS, TABLES, TRANSFORMER, MakeSpace


def apart(part: Part) -> Part:
    """The part in which every reader pays its own conversion."""
    tensors = [replace(tensor, reads=(read,), fixed=()) for tensor in part.tensors for read in tensor.reads]
    tensors += [replace(tensor, reads=(), fixed=(layout,)) for tensor in part.tensors for layout in tensor.fixed]
    repeats = tuple(replace(repeat, body=apart(repeat.body)) for repeat in part.repeats)
    return replace(part, tensors=tuple(tensors), repeats=repeats)


@pytest.mark.parametrize(("text", "shape"), list(product([CHAIN, TABLES, CONVOLUTIONS], [(2,), (2, 2)])))
def test_it_is_the_exact_minimum(text: str, shape: tuple[int, ...], build: Build, space: MakeSpace) -> None:
    model = build(text)
    found = space(model, "autoparallel", shape)
    problem = found.problem(model, found.meshes[0])
    solution = solve_programme(problem, everything(problem.part), 60)
    part = apart(problem.part)
    exact = optimise(part, everything(part))
    assert solution is not None and solution.proved and exact.exact
    assert solution.cost == pytest.approx(exact.cost, rel=2 * GAP)


def test_it_is_no_more_than_the_minimum_of_equal_iterations(build: Build, space: MakeSpace) -> None:
    """The entry of the first iteration may be converted once for all that read it there, which may cost less. The cost
    is not less than with conversions shared by all readers.
    """
    model = build(TRANSFORMER)
    found = space(model, "autoparallel", (4,))
    problem = found.problem(model, found.meshes[0])
    solution = solve_programme(problem, everything(problem.part), 60)
    part = apart(problem.part)
    steady = Solver(part, everything(part), no_limits(part), steadily=True)
    assert solution is not None
    assert solution.cost <= float(steady.table) * (1 + 2 * GAP)
    least = optimise(problem.part, everything(problem.part))
    assert solution.cost >= least.bound * (1 - 2 * GAP)


def test_other_costs_are_minimised(build: Build, space: MakeSpace) -> None:
    model = build(CHAIN)
    found = space(model, "alpa_intra", (2,))
    problem = found.problem(model, found.meshes[0])
    (site, *_) = sites_of(problem)
    wanted = len(site.options) - 1
    costs = problem.part.costs[site.variable].copy()
    costs[[number for number in range(len(costs)) if number != wanted]] += 1e3
    solution = solve_programme(problem, everything(problem.part), 60, {((), site.variable): costs})
    assert solution is not None and solution.choice[site.path] == wanted


@pytest.mark.parametrize("text", [CHAIN, TRANSFORMER, CONVOLUTIONS, TABLES])
def test_autoparallel_is_no_worse_than_data_parallelism(text: str, build: Build, space: MakeSpace) -> None:
    machine = load_machine("dgx-a100")
    model = build(text)
    found = space(model, "autoparallel", meshes=two_axes(machine, 4))
    chosen = autoparallel(found)
    other = search(model, FOUR, machine, found.library, "data_parallel")
    assert chosen.cost <= other.cost.seconds * (1 + 1e-6)
    assert chosen.graph == autoparallel(found).graph


@pytest.mark.parametrize("text", [CHAIN, TRANSFORMER])
def test_alpa_divides_every_product_along_every_axis(text: str, build: Build, space: MakeSpace) -> None:
    model = build(text)
    found = space(model, "alpa_intra", meshes=two_axes(load_machine("dgx-a100"), 4))
    products = [node for node in alpa_intra(found).graph.nodes() if node.node.instance.name in ("linear", "matmul")]
    assert products
    for planned in products:
        axes = [axis for axes in planned.typed.divided.values() for axis in axes]
        assert sorted(axes) == list(range(len(planned.typed.configuration)))


def test_what_the_programme_chose_is_planned(build: Build, space: MakeSpace) -> None:
    model = build(TABLES)
    found = space(model, "autoparallel", (2, 2))
    problem = found.problem(model, found.meshes[0])
    solution = solve_programme(problem, everything(problem.part), 60)
    assert solution is not None
    plan, cost = Assignments(problem, everything(problem.part)).best(solution.choice)
    # Conversions are shared here. The programme pays for each reader.
    assert plan is not None and cost <= solution.cost * (1 + 2 * GAP)

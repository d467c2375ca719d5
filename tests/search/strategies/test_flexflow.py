"""The random walk: reproducible for its seed, never worse than its start, within its authors' configurations."""

from __future__ import annotations

from itertools import product

import pytest

from unity_dsl.graph.layout import Partial
from unity_dsl.graph.layout_typing import Along
from unity_dsl.machine.conversion_model import TIE
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.plan_search import search
from unity_dsl.search.strategies.data_parallel import data_parallel
from unity_dsl.search.strategies.flexflow import divides_outputs, flexflow
from unity_dsl.search.strategies.operator_sites import Assignments, allowed_domains, sites_of

from ..conftest import FOUR, Build
from .conftest import CHAIN, TRANSFORMER, MakeSpace


@pytest.mark.parametrize("text", [CHAIN, TRANSFORMER])
def test_the_walk_is_the_same_again_and_no_worse_than_data_parallelism(
    text: str, build: Build, space: MakeSpace
) -> None:
    model = build(text)
    found = space(model, "flexflow", (2, 2))
    first, again = flexflow(found), flexflow(found)
    assert first.graph == again.graph and first.cost == again.cost
    machine = load_machine("dgx-a100")
    start = search(model, FOUR, machine, found.library, "data_parallel")
    assert first.cost <= start.cost.seconds * (1 + 1e-9) + 10 * TIE


def test_it_divides_outputs_alone_or_the_batch(build: Build, space: MakeSpace) -> None:
    model = build(TRANSFORMER)
    found = space(model, "flexflow", (2, 2))
    batch = data_parallel(model, found.meshes[0], found.library).configurations
    for planned in flexflow(found).graph.nodes():
        path = next(path for path in batch if path.endswith(planned.node.name))
        if planned.typed.configuration != batch[path]:
            assert not any(layout.where(Partial) for layout in planned.typed.results)
            assert all(isinstance(role, Along) or "I" in str(role) for role in planned.typed.configuration)


def test_it_finds_the_best_of_few(build: Build, space: MakeSpace) -> None:
    """For a model so small that all choices can be tried."""
    model = build(CHAIN)
    found = space(model, "flexflow", (4,))
    chosen = flexflow(found)
    problem = chosen.problem
    start = data_parallel(model, found.meshes[0], found.library).configurations

    domains = allowed_domains(problem, lambda site, typed: divides_outputs(site, typed, start.get(site.path)))
    assignments = Assignments(problem, domains)
    paths = [site.path for site in sites_of(problem)]
    every = product(*(assignments.left[path] for path in paths))
    least = min(assignments.cost(dict(zip(paths, options, strict=True))) for options in every)
    assert chosen.cost == pytest.approx(least)

"""Bounds of meshes that several processes find, against those that one process finds."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from unity_dsl.graph.layout import Mesh
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search import bounded_search
from unity_dsl.search.exact_search.bounded_search import search, survey
from unity_dsl.search.folded_solver.exact_minimum import Solver
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.folded_solver.reduced_cost_filtering import Bounded
from unity_dsl.search.layout_problem.problem_context import prices_on
from unity_dsl.search.layout_problem.variable_meaning import Impossible
from unity_dsl.search.meshes.mesh_surveys import Surveys
from unity_dsl.search.meshes.near_search import Task

from ..conftest import Build
from ..random_models import random_model

TEXT = """
model deep[n = 64]
  input x: f32[n, 96]
  input target: f32[n, 96]
  repeat 3 as layer
    weight a: f32[96, 96] ~ normal(0.1)
    weight b: f32[96, 96] ~ normal(0.1)
    u = relu(linear(x, a))
    x = linear(u, b) + linear(u, a) + x + u
  loss mse(x, target)
"""


def task_of(text: str, library: Library, build: Build, refused: Mesh | None = None) -> Task:
    machine, theorems = load_machine("dgx-a100"), ShardingTheorems(library)

    def allowed(mesh: Mesh) -> Restriction:
        if mesh == refused:
            raise Impossible("x", None, None)
        return Restriction()

    return Task(build(text), lambda mesh: prices_on(mesh, machine, library, theorems), allowed)


@pytest.mark.parametrize("few", [0, 1000])
def test_bounds_do_not_depend_on_who_finds_them(
    few: int, library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the plans that are searched from them, for problems that are bounded and for those that are solved at
    once.
    """
    monkeypatch.setattr(bounded_search, "_FEW", few)
    meshes = [mesh for mesh in all_meshes(load_machine("dgx-a100"), 16) if len(mesh.axes) <= 2]
    kinds = set()
    for text in (TEXT, random_model(Random(3), 4, (8, 12, 16))):
        task = task_of(text, library, build, meshes[-1])
        surveys, alone = Surveys(task), Surveys(task)
        surveys.look_at(meshes, 2)
        assert surveys.of(meshes[-1]) is None
        assert surveys.least(meshes[-1]) == inf
        for mesh in meshes[:-1]:
            found, expected = surveys.of(mesh), alone.of(mesh)
            assert found is not None
            assert expected is not None
            problem, known = found
            part = problem.part
            assert surveys.least(mesh) == known.bound == survey(part, everything(part)).bound == alone.least(mesh)
            assert search(known).cost == search(expected[1]).cost
            kinds.add(type(known.found))
    assert (Solver if few else Bounded) in kinds

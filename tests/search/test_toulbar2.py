"""Optima of exported problems against toulbar2, a solver of cost function networks that shares no code with ours."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

from unity_dsl.graph.layout import Mesh
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.resources import folder
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import Part, Port, Tensor, everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.problem_context import prices_on

from .conftest import FOUR, TWO, Build
from .random_models import random_machine, random_model

toulbar2 = pytest.importorskip("pytoulbar2", reason="the independent solver is not installed: pip install pytoulbar2")

FORBIDDEN = 1e6
DECIMALS = 9
"""Decimals of costs, as a fraction of the optimum's size: toulbar2 computes in whole numbers."""


class Exported:
    """A problem without repeats for toulbar2: a function per table, and a variable per tensor, over its sets of
    layouts.
    """

    def __init__(self, part: Part, unit: float) -> None:
        assert not part.repeats
        self.unit = unit
        self.problem = toulbar2.CFN(FORBIDDEN, resolution=DECIMALS)
        self.names = [f"v{number}" for number in range(len(part.costs))]
        for name, cost in zip(self.names, part.costs, strict=True):
            self.problem.AddVariable(name, range(len(cost)))
            self._add([name], cost)
        for number, tensor in enumerate(part.tensors):
            self._add_tensor(number, tensor)

    def optimum(self) -> float:
        found = self.problem.Solve()
        assert found, "toulbar2 found no solution"
        return float(found[1]) * self.unit

    def _add(self, scope: list[str], costs: np.ndarray) -> None:
        scaled = np.where(np.isfinite(costs), costs / self.unit, FORBIDDEN)
        if scaled.any():
            self.problem.AddFunction(scope, scaled.ravel().tolist())

    def _add_tensor(self, number: int, tensor: Tensor) -> None:
        """A tensor exists in the produced layout and in at most two more, each made from another of them. Only layouts
        that a reader asks for matter, because no path of conversions costs less than the direct conversion.
        """
        asked = sorted({*tensor.fixed, *(int(layout) for read in tensor.reads for layout in read.layouts)})
        sets, costs = [], []
        for root in sorted(set(tensor.produced.layouts.tolist())):
            others = [layout for layout in asked if layout != root]
            for size in range(3):
                for extra in combinations(others, size):
                    if {*tensor.fixed} <= {root, *extra}:
                        sets.append((root, *extra))
                        costs.append(self._made(tensor.prices, root, extra))
        name = f"t{number}"
        self.problem.AddVariable(name, range(len(sets)))
        self._add([name], np.array(costs))
        self._belong(name, [{chosen[0]} for chosen in sets], tensor.produced)
        for read in tensor.reads:
            self._belong(name, [set(chosen) for chosen in sets], read)

    def _made(self, direct: np.ndarray, root: int, extra: tuple[int, ...]) -> float:
        match extra:
            case ():
                return 0.0
            case (one,):
                return float(direct[root, one])
            case (one, two):
                beside = direct[root, one] + direct[root, two]
                behind = min(direct[root, one] + direct[one, two], direct[root, two] + direct[two, one])
                return float(min(beside, behind))
        raise AssertionError(extra)

    def _belong(self, name: str, sets: list[set[int]], port: Port) -> None:
        allowed = [[0.0 if int(layout) in chosen else np.inf for layout in port.layouts] for chosen in sets]
        self._add([name, self.names[port.variable]], np.array(allowed))


def assert_same_optimum(text: str, mesh: Mesh, machine: Machine, library: Library, build: Build) -> None:
    prices = prices_on(mesh, machine, library, ShardingTheorems(library))
    problem = build_problem(build(text), prices, Restriction())
    ours = optimise(problem.part, everything(problem.part))
    assert ours.exact
    theirs = Exported(problem.part, ours.cost).optimum()
    assert theirs == pytest.approx(ours.cost, rel=1e-6)


@pytest.mark.parametrize("seed", range(14))
def test_random_models(seed: int, library: Library, build: Build) -> None:
    rng = Random(seed)
    mesh, steps = (FOUR, 4) if seed % 2 else (TWO, 12)
    assert_same_optimum(random_model(rng, steps, (4, 6, 8)), mesh, random_machine(rng), library, build)


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("example", ["digits", "dlrm_unity", "xdl_unity"])
def test_examples(example: str, devices: int, library: Library, build: Build) -> None:
    machine = load_machine("dgx-a100")
    text = (folder("examples") / f"{example}.udl").read_text()
    assert_same_optimum(text, build_mesh(machine, devices, (devices,)), machine, library, build)

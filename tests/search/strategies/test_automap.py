"""Propagation of tilings, and the tree search over them."""

from __future__ import annotations

from unity_dsl.graph.layout_typing import Along
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.plan_search import search
from unity_dsl.search.strategies.automap import Propagation, automap
from unity_dsl.search.strategies.autoparallel import two_axes
from unity_dsl.search.strategies.data_parallel import data_parallel

from ..conftest import FOUR, TWO, Build
from .conftest import CHAIN, TRANSFORMER, MakeSpace
from .test_expert import weights


def test_a_tiled_weight_divides_what_follows(build: Build, library: Library) -> None:
    """With the columns of the first matrix tiled, the activation is divided, and the second product sums over the
    devices.
    """
    model = build(CHAIN)
    found = Propagation(TWO, library, {"up": 0})
    found.graph(model.graph, "", {})
    steps = {step.name: step for step in model.graph.steps}
    first, second, third = (steps[path] for path in found.roles)
    assert [step.instance.name for step in (first, second, third)] == ["linear", "relu", "linear"]  # type: ignore[union-attr]
    role = found.roles[third.name]
    assert isinstance(role, Along)
    assert role.axis not in {axis for output in third.instance.outputs for axis in output.axes}  # type: ignore[union-attr]


def test_a_tiled_batch_is_data_parallelism(build: Build, library: Library) -> None:
    model = build(TRANSFORMER)
    found = Propagation(TWO, library, {"tokens": 0, "target": 0})
    found.graph(model.graph, "", {})
    batch = data_parallel(model, TWO, library).configurations
    assert {path: (role,) for path, role in found.roles.items()} == dict(batch)


def test_the_search_is_the_same_again_and_no_worse_than_data_parallelism(build: Build, space: MakeSpace) -> None:
    machine = load_machine("dgx-a100")
    for text in (CHAIN, TRANSFORMER):
        model = build(text)
        found = space(model, "automap", meshes=two_axes(machine, 4))
        first = automap(found)
        assert first.graph == automap(found).graph
        other = search(model, FOUR, machine, found.library, "data_parallel")
        assert first.cost <= other.cost.seconds * (1 + 1e-6)


def test_it_recovers_tensor_parallelism(build: Build, space: MakeSpace) -> None:
    """For a model whose batch is not divided, and whose weights are most of its memory."""
    model = build(CHAIN.replace("b = 64, d = 512, h = 2048", "b = 1, d = 4096, h = 16384"))
    chosen = automap(space(model, "automap", (4,)))
    assert weights(chosen.graph) == {"up": "S0", "down": "S1"}

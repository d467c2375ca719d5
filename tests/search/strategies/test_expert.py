"""Layouts written by hand: for Megatron's layers, for dense layers behind convolutions, and for tables."""

from __future__ import annotations

import pytest

from unity_dsl.graph.layout import Mesh, MeshAxis, Shard
from unity_dsl.graph.plan import PlannedGraph, PlannedSegment
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.strategies.expert import expert, expert_meshes
from unity_dsl.search.strategies.tensor_parallel import tensor_roles
from unity_dsl.search.strategies.zero import sliced
from unity_dsl.syntax.diagnostic import InputError

from ..conftest import TWO, Build
from .conftest import CHAIN, CONVOLUTIONS, TABLES, TRANSFORMER, MakeSpace


def weights(graph: PlannedGraph, prefix: str = "") -> dict[str, str]:
    found = {
        prefix + weight.value.name: str(graph.values[weight.value.name].produced) for weight in graph.graph.weights
    }
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                found |= weights(run.body, f"{prefix}{step.segment.name}.")
    return found


def test_a_decoder_is_divided_as_in_megatron(build: Build, library: Library) -> None:
    roles = tensor_roles(build(TRANSFORMER).graph, TWO, library)
    assert roles is not None
    model = build(TRANSFORMER)
    (layer,) = (step for step in model.graph.steps if hasattr(step, "body"))
    named = {}
    for step in layer.body.steps:  # type: ignore[union-attr]
        for value in getattr(step, "arguments", ()):
            if value.is_weight and f"layer.{step.name}" in roles:
                operand = step.instance.inputs[step.arguments.index(value)]
                role = roles[f"layer.{step.name}"]
                named[value.name] = next(dim for dim, of in enumerate(operand.dims) if role.axis in of)
    # Heads of the fused weight, columns of the first matrices, rows of the second ones.
    assert named == {"qkv": 1, "out": 1, "up": 0, "down": 1}


def test_heads_that_are_not_divided_have_no_tensor_parallelism(build: Build, library: Library) -> None:
    three = Mesh((MeshAxis("a", 3),))
    assert tensor_roles(build(TRANSFORMER).graph, three, library) is None


def test_the_plan_stores_weights_so(build: Build, space: MakeSpace) -> None:
    model = build(TRANSFORMER.replace("b = 8", "b = 1"))  # only tensors are left to be divided
    found = expert(space(model, "expert", meshes=expert_meshes(load_machine("dgx-a100"), 4)))
    assert found.mesh.degrees == (4,)
    stored = weights(found.graph)
    assert stored["layer.qkv"] == "S1" and stored["layer.up"] == "S0"
    assert stored["layer.out"] == stored["layer.down"] == "S1"


def test_a_weird_trick(build: Build, space: MakeSpace) -> None:
    model = build(CONVOLUTIONS)
    found = expert(space(model, "expert", (4,)))
    stored = weights(found.graph)
    assert stored == {"first": "I", "dense": "S0", "head": "S0"}


def test_tables_are_divided_by_columns_or_else_by_rows(build: Build, space: MakeSpace) -> None:
    stored = weights(expert(space(build(TABLES), "expert", (4,))).graph)
    assert stored == {"table1": "S1", "table2": "S1", "top": "I"}
    stored = weights(expert(space(build(TABLES.replace("d = 16", "d = 7")), "expert", (4,))).graph)
    assert stored["table1"] == stored["table2"] == "S0"


def test_seven_devices_have_no_recipe(build: Build, space: MakeSpace) -> None:
    with pytest.raises(InputError) as raised:
        expert(space(build(CHAIN), "expert", meshes=expert_meshes(load_machine("dgx-a100"), 7)))
    assert raised.value.diagnostic.code == "E318"


def test_meshes_have_powers_of_two_within_a_node() -> None:
    machine = load_machine("dgx-a100")
    assert [mesh.degrees for mesh in expert_meshes(machine, 24)] == [(24,), (12, 2), (6, 4), (3, 8)]
    assert [mesh.degrees for mesh in expert_meshes(machine, 1)] == [()]


def test_storage_in_slices(build: Build) -> None:
    mesh = Mesh((MeshAxis("a", 3), MeshAxis("b", 4)))
    model = build(CHAIN)
    value = model.graph.weights[0].value  # 2048 x 512
    assert str(sliced(value, mesh)) == "I,S0"
    assert sliced(value, Mesh((MeshAxis("a", 4), MeshAxis("b", 2)))).where(Shard) == (0, 1)

"""Configurations typed in bulk against configurations typed one by one, for an instance without cached results."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import TypedOperator, Typing, Uniformly
from unity_dsl.graph.typed_configurations import typed_configurations
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

LIBRARY = load_library()
MESHES = [
    Mesh(tuple(MeshAxis(name, degree) for name, degree in zip("abc", degrees, strict=False)))
    for degrees in ((), (4,), (2, 4), (4, 2), (2, 2, 2))
]
CASES = {
    "linear": ([(8, 4), (8, 4)], {}),
    "softmax": ([(4, 8)], {}),
    "conv2d": ([(4, 8, 8, 8), (8, 4, 3, 3)], {"pad_h": 1, "pad_w": 1, "groups": 2}),
    "batch_norm": ([(4, 8, 8, 8), (8,), (8,), (8,), (8,)], {}),
}


def at(name: str, attributes: dict[str, int] | None = None) -> Instance:
    shapes, given = CASES[name]
    made = instantiate(LIBRARY.operators[name], list(map(Shape, shapes)), given)
    return made if attributes is None else replace(made, attributes={**made.attributes, **attributes})


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_one_by_one(name: str) -> None:
    compared = 0
    for number, mesh in enumerate(MESHES):
        typing = Typing(at(name), mesh, LIBRARY)
        inputs = len(typing.instance.inputs)
        by_axis = [typing.roles(axis, [True] * inputs, [False] * inputs) for axis in range(len(mesh.axes))]
        found = typed_configurations(typing, by_axis)
        wanted = []
        for count, choice in enumerate(product(*by_axis)):
            alone = Typing(at(name, {f"~{number}": count}), mesh, LIBRARY)
            if isinstance(typed := alone.type(choice), TypedOperator):
                wanted.append(typed)
        assert list(found) == wanted
        compared += len(wanted)
        some = np.arange(len(wanted))[::3]
        assert list(found.chosen(some)) == wanted[::3]
        for column in found.chosen(some).columns:
            used = [column.layouts[place] for place in column.index]
            assert column.layouts == tuple(dict.fromkeys(used))
        assert found.invariant.tolist() == [set(one.configuration) <= {Uniformly(Invariant())} for one in wanted]
        rows = found.rows[some]
        assert list(typed_configurations(typing, by_axis, rows)) == wanted[::3]
    assert compared > 50

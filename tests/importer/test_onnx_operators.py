"""Every ONNX operator against the cases of the standard: equal, or reported as not supported, but never wrong."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from unity_dsl.importer.onnx_graph import OnnxGraph, ignored
from unity_dsl.importer.onnx_operators import OPERATORS

pytest.importorskip("onnx", reason="the package onnx is not installed")
KINDS = "fiub"
"""NumPy's kinds of numbers that torch has."""
RARE = ("uint16", "uint32", "uint64", "bfloat16", "float8", "float16")
UNLIKE = {"Dropout"}
"""Operators whose random cases no other implementation reproduces."""


def cases() -> list[Any]:
    """The cases of a single node, whose operator is supported."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = {case.name: case for case in collect_testcases(None) if case.model is not None}
    alone = [case for case in every.values() if len(case.model.graph.node) == 1]
    return [case for case in alone if case.model.graph.node[0].op_type in OPERATORS.keys() - UNLIKE]


def outcome(case: Any) -> str:
    """The outcome of a case. The first input and all float inputs are tensors, as in a model; others are constants."""
    (node,), (inputs, outputs) = case.model.graph.node, case.data_sets[0]
    arrays = [np.asarray(one) for one in inputs]
    if any(one.dtype.kind not in KINDS or str(one.dtype) in RARE for one in (*arrays, *map(np.asarray, outputs))):
        return "of another type"
    module = OnnxGraph(case.model, None).eval()
    values: dict[str, Any] = {
        given.name: torch.from_numpy(array.copy()) if place == 0 or array.dtype.kind == "f" else array
        for place, (given, array) in enumerate(zip(case.model.graph.input, arrays, strict=True))
    }
    try:
        if [*ignored(node, module.call(node, values))]:
            return "told"
    except (RuntimeError, ValueError, KeyError, IndexError):
        return "told"
    named = [name for name in node.output if name]
    if any(name not in values for name in named):
        return "told"
    made = [np.asarray(torch.as_tensor(values[name])) for name in named]
    alike = all(
        one.shape == np.shape(other) and np.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)
        for one, other in zip(made, outputs, strict=True)
    )
    return "equal" if alike else "something else"


def test_no_case_of_the_standard_is_something_else() -> None:
    found = {case.name: outcome(case) for case in cases()}
    assert [name for name, one in found.items() if one == "something else"] == []
    counted = Counter(found.values())
    assert counted["equal"] > 450 and counted["told"] < 150, counted

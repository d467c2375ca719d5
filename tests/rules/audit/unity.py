"""Small rules in Unity's format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Op = tuple[str, Sequence[tuple[int, int]], Mapping[str, int]]


def operator(made: Op) -> dict[str, Any]:
    kind, inputs, parameters = made
    return {
        "_t": "Operator",
        "type": kind,
        "input": [{"_t": "Tensor", "opId": number, "tsId": output} for number, output in inputs],
        "para": [{"_t": "Parameter", "key": key, "value": value} for key, value in parameters.items()],
    }


def rule(
    name: str, source: Sequence[Op], target: Sequence[Op], outputs: Sequence[tuple[int, int, int, int]]
) -> dict[str, Any]:
    """A rule in Unity's format. `outputs` are (source operator, its result, target operator, its result)."""
    keys = ("srcOpId", "srcTsId", "dstOpId", "dstTsId")
    return {
        "_t": "Rule",
        "name": name,
        "srcOp": [operator(made) for made in source],
        "dstOp": [operator(made) for made in target],
        "mappedOutput": [{"_t": "MapOutput", **dict(zip(keys, numbers, strict=True))} for numbers in outputs],
    }


def text(*rules: dict[str, Any]) -> str:
    return json.dumps({"_t": "RuleCollection", "rule": rules})


def parallel(dim: int) -> dict[str, int]:
    return {"PM_PARALLEL_DIM": dim, "PM_PARALLEL_DEGREE": 2}


def joined(axis: int) -> dict[str, int]:
    return {"PM_NUM_INPUTS": 2, "PM_AXIS": axis, "PM_NUMDIM": 3}


X, Y, V, W = (-1, 0), (-2, 0), (-4, 0), (-5, 0)
LINEAR = {"PM_ACTI": 0}
DATA_PARALLEL = rule(
    "data_parallel",
    [("OP_PARTITION", [X], parallel(1)), ("OP_REPLICATE", [V], parallel(0)), ("OP_LINEAR", [(0, 0), (1, 0)], LINEAR)],
    [("OP_LINEAR", [X, V], LINEAR), ("OP_PARTITION", [(0, 0)], parallel(1))],
    [(2, 0, 1, 0)],
)
SUM_OF_REPLICAS = rule(
    "sum_of_replicas",
    [("OP_EW_ADD", [X, Y], {})],
    [("OP_CONCAT", [X, Y], joined(0)), ("OP_REDUCE", [(0, 0)], parallel(0))],
    [(0, 0, 1, 0)],
)
SUM_OF_LINEARS = rule(
    "sum_of_linears",
    [("OP_LINEAR", [X, V], LINEAR), ("OP_LINEAR", [Y, V], LINEAR), ("OP_EW_ADD", [(0, 0), (1, 0)], {})],
    [("OP_CONCAT", [X, Y], joined(0)), ("OP_REDUCE", [(0, 0)], parallel(0)), ("OP_LINEAR", [(1, 0), V], LINEAR)],
    [(2, 0, 2, 0)],
)
"""True if both operands have equally many replicas."""
HALVES_OF_JOINED = rule(
    "halves_of_joined",
    [("OP_REDUCE", [X], parallel(2)), ("OP_REDUCE", [Y], parallel(2)), ("OP_CONCAT", [(0, 0), (1, 0)], joined(2))],
    [("OP_CONCAT", [X, Y], joined(2)), ("OP_REDUCE", [(0, 0)], parallel(2))],
    [(2, 0, 1, 0)],
)
"""False: the halves of the concatenated tensor are not the halves of its parts."""
UNBOUND = rule(
    "unbound",
    [("OP_LINEAR", [X, V], LINEAR)],
    [("OP_CONCAT", [V, W], joined(0)), ("OP_LINEAR", [X, (0, 0)], LINEAR)],
    [(0, 0, 1, 0)],
)
PARTS = rule(
    "parts",
    [("OP_RELU", [X], {}), ("OP_RELU", [Y], {})],
    [
        ("OP_CONCAT", [X, Y], joined(1)),
        ("OP_RELU", [(0, 0)], {}),
        ("OP_SPLIT", [(1, 0)], {"PM_NUM_OUTPUTS": 2, "PM_AXIS": 1}),
    ],
    [(0, 0, 2, 0), (1, 0, 2, 1)],
)
WITHOUT_READING = rule("without_reading", [("OP_SOFTMAX", [X], {})], [("OP_SOFTMAX", [X], {})], [(0, 0, 0, 0)])

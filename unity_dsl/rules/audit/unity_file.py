"""Unity's format: JSON objects with a field `_t`, operators and parameters by name (substitution_loader)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...syntax.diagnostic import fail, suggest
from ...syntax.read import decode
from ...syntax.span import Span
from .file_rules import FileOperator, FileRule, Replaced, RuleFile, TensorRef, damaged

OPERATORS: Mapping[str, str] = {
    "OP_PARTITION": "partition",
    "OP_COMBINE": "combine",
    "OP_REPLICATE": "replicate",
    "OP_REDUCE": "reduce",
    "OP_LINEAR": "linear",
    "OP_CONCAT": "concat",
    "OP_SPLIT": "split",
    "OP_RELU": "relu",
    "OP_EW_ADD": "add",
    "OP_EW_MUL": "mul",
    "OP_CONV2D": "conv2d",
    "OP_DROPOUT": "dropout",
    "OP_POOL2D_MAX": "max_pool",
    "OP_POOL2D_AVG": "avg_pool",
    "OP_SIGMOID": "sigmoid",
    "OP_TANH": "tanh",
    "OP_BATCHNORM": "batch_norm",
    "OP_RESHAPE": "reshape",
    "OP_TRANSPOSE": "transpose",
    "OP_MATMUL": "matmul",
    "OP_MUL": "scalar_mul",
    "OP_EMBEDDING": "embedding",
    "OP_SOFTMAX": "softmax",
    "OP_MULTIHEAD_ATTENTION": "attention",
}
"""Operators of the loader, including those that the published file does not use."""
PARAMETERS: Mapping[str, str] = {
    "PM_PARALLEL_DIM": "axis",
    "PM_PARALLEL_DEGREE": "degree",
    "PM_AXIS": "axis",
    "PM_NUMDIM": "rank",
    "PM_NUM_INPUTS": "inputs",
    "PM_NUM_OUTPUTS": "outputs",
    "PM_ACTI": "activation",
    "PM_GROUP": "groups",
    "PM_KERNEL_H": "kernel_h",
    "PM_KERNEL_W": "kernel_w",
    "PM_STRIDE_H": "stride_h",
    "PM_STRIDE_W": "stride_w",
    "PM_PAD": "padding",
    "PM_PERM": "permutation",
    "PM_OUTSHUFFLE": "shuffle",
    "PM_MERGE_GCONV_COUNT": "count",
    "PM_OP_TYPE": "type",
}


def parse_unity(data: bytes, name: str) -> RuleFile:
    """The rules of a JSON text, with their names.

    Raises E002 and E003 if it is not text, and E551 if it is not JSON or not a collection of rules. Raises E552 for
    fields that are missing or have another type, E553 for unknown operators and parameters, and E555 if it is nested
    too deep.
    """
    source = decode(name, data)
    try:
        document = json.loads(source.text)
    except json.JSONDecodeError as error:
        place = Span(source, min(error.pos, len(source.text) - 1), min(error.pos + 1, len(source.text)))
        raise fail("E551", f"this is no JSON: {error.msg[0].lower()}{error.msg[1:]}", place) from None
    except RecursionError:
        raise fail("E555", f"`{name}` is nested too deep", help="rules are five levels deep") from None
    except ValueError:
        raise fail("E551", f"`{name}` has a number of thousands of digits") from None
    if not isinstance(document, dict) or "rule" not in document:
        raise fail("E551", f"`{name}` has no rules", help="a file of Unity is an object with a list `rule`")
    return RuleFile("unity", tuple(_rule(made, place) for place, made in _each(document, "rule", "")))


def _rule(made: Mapping[str, Any], place: str) -> FileRule:
    sides = [tuple(_operator(one, at) for at, one in _each(made, side, place)) for side in ("srcOp", "dstOp")]
    outputs = tuple(_replaced(one, at) for at, one in _each(made, "mappedOutput", place))
    name = made.get("name")
    if not isinstance(name, str) or not name:
        raise damaged(place, "the field `name` is no text" if "name" in made else "the field `name` is missing")
    return FileRule(name, place, sides[0], sides[1], outputs)


def _operator(made: Mapping[str, Any], place: str) -> FileOperator:
    kind = made.get("type")
    if not isinstance(kind, str):
        raise damaged(place, "the field `type` is no text" if "type" in made else "the field `type` is missing")
    if kind not in OPERATORS:
        raise fail("E553", f"{place}: there is no operator `{kind}`", help=suggest(kind, OPERATORS))
    inputs = tuple(
        TensorRef(_number(one, "opId", at), _number(one, "tsId", at)) for at, one in _each(made, "input", place)
    )
    parameters: dict[str, int] = {}
    for at, one in _each(made, "para", place):
        key = one.get("key")
        if not isinstance(key, str):
            raise damaged(at, "the field `key` is no text" if "key" in one else "the field `key` is missing")
        if key not in PARAMETERS:
            raise fail("E553", f"{at}: there is no parameter `{key}`", help=suggest(key, PARAMETERS))
        if PARAMETERS[key] in parameters:
            raise damaged(at, f"the parameter `{key}` is given twice")
        parameters[PARAMETERS[key]] = _number(one, "value", at)
    return FileOperator(OPERATORS[kind], inputs, parameters)


def _replaced(made: Mapping[str, Any], place: str) -> Replaced:
    numbers = [_number(made, name, place) for name in ("srcOpId", "srcTsId", "dstOpId", "dstTsId")]
    return Replaced(TensorRef(*numbers[:2]), TensorRef(*numbers[2:]))


def _each(made: Mapping[str, Any], name: str, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list with their places."""
    inside = f"{place}.{name}" if place else name
    found = made.get(name)
    if not isinstance(found, list):
        raise damaged(place or "the file", f"the field `{name}` is {'no list' if name in made else 'missing'}")
    for number, one in enumerate(found):
        if not isinstance(one, dict):
            raise damaged(f"{inside}[{number}]", "this is no object")
        yield f"{inside}[{number}]", one


def _number(made: Mapping[str, Any], name: str, place: str) -> int:
    found = made.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise damaged(place, f"the field `{name}` is {'no whole number' if name in made else 'missing'}")
    if abs(found) >= 2**31:
        raise damaged(place, f"the field `{name}` is beyond 32 bits")
    return found

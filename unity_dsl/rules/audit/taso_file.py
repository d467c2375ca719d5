"""TASO's format: protobuf messages of `package GraphSubst`, proto2, all numbers int32 (src/core/rules.proto)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...syntax.diagnostic import fail
from .file_rules import FileOperator, FileRule, Replaced, RuleFile, TensorRef, damaged

if TYPE_CHECKING:
    from google.protobuf.message import Message

PACKAGE = "GraphSubst"
MESSAGES: dict[str, tuple[tuple[str, str | None], ...]] = {
    "RuleCollection": (("rule", "Rule"),),
    "Rule": (("srcOp", "Operator"), ("dstOp", "Operator"), ("mappedOutput", "MapOutput")),
    "Operator": (("type", None), ("input", "Tensor"), ("para", "Parameter")),
    "Tensor": (("opId", None), ("tsId", None)),
    "Parameter": (("key", None), ("value", None)),
    "MapOutput": (("srcOpId", None), ("dstOpId", None), ("srcTsId", None), ("dstTsId", None)),
}
"""Fields by number from 1: int32, or repeated messages of the given type."""
OPERATORS = (
    "input", "weight", "any", "conv2d", "dropout", "linear", "max_pool", "avg_pool", "relu", "sigmoid", "tanh",
    "batch_norm", "concat", "split", "reshape", "transpose", "add", "mul", "matmul", "scalar_mul", "enlarge",
    "merge_grouped_conv", "constant_identity_matrix", "constant_identity_conv", "constant_one", "constant_pool",
)  # fmt: skip
"""Operators by number."""
PARAMETERS = (
    "type", "inputs", "outputs", "groups", "kernel_h", "kernel_w", "stride_h", "stride_w", "padding", "activation",
    "rank", "axis", "permutation", "shuffle", "count",
)  # fmt: skip
"""Parameters by number."""


def parse_taso(data: bytes, name: str) -> RuleFile:
    """The rules of serialized bytes, named `rule_0`, `rule_1`, …

    Raises E551 if they are not such a message, E552 for missing fields, E553 for unknown operators and parameters.
    """
    from google.protobuf.message import DecodeError

    collection: Any = _message_type()()
    try:
        collection.ParseFromString(data)
    except DecodeError:
        help = "it is cut short, damaged, or a file of another kind; TASO writes `graph_subst.pb`"
        raise fail("E551", f"`{name}` is no protobuf message of rules", help=help) from None
    if not collection.rule:
        raise fail("E551", f"`{name}` has no rules", help="is it a file of another kind?")
    return RuleFile("taso", tuple(_rule(made, number) for number, made in enumerate(collection.rule)))


@lru_cache(maxsize=1)
def _message_type() -> type[Message]:
    """The class of `RuleCollection`, from the descriptors that `MESSAGES` lists."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="rules.proto", package=PACKAGE, syntax="proto2")
    for message, fields in MESSAGES.items():
        declared = file.message_type.add(name=message)
        for number, (name, kind) in enumerate(fields, 1):
            made = declared.field.add(name=name, number=number)
            made.label = Field.LABEL_OPTIONAL if kind is None else Field.LABEL_REPEATED
            made.type = Field.TYPE_INT32 if kind is None else Field.TYPE_MESSAGE
            if kind is not None:
                made.type_name = f".{PACKAGE}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.RuleCollection"))
    return found


def _rule(made: Any, number: int) -> FileRule:
    place = f"rule[{number}]"
    sides = [
        tuple(_operator(one, f"{place}.{side}[{position}]") for position, one in enumerate(operators))
        for side, operators in (("srcOp", made.srcOp), ("dstOp", made.dstOp))
    ]
    outputs = tuple(_replaced(one, f"{place}.mappedOutput[{at}]") for at, one in enumerate(made.mappedOutput))
    return FileRule(f"rule_{number}", place, sides[0], sides[1], outputs)


def _operator(made: Any, place: str) -> FileOperator:
    inputs = tuple(
        TensorRef(_field(one, "opId", f"{place}.input[{at}]"), _field(one, "tsId", f"{place}.input[{at}]"))
        for at, one in enumerate(made.input)
    )
    parameters: dict[str, int] = {}
    for at, one in enumerate(made.para):
        key = _named(PARAMETERS, _field(one, "key", f"{place}.para[{at}]"), "parameter", place)
        if key in parameters:
            raise damaged(place, f"the parameter {PARAMETERS.index(key)} ({key}) is given twice")
        parameters[key] = _field(one, "value", f"{place}.para[{at}]")
    return FileOperator(_named(OPERATORS, _field(made, "type", place), "operator", place), inputs, parameters)


def _replaced(made: Any, place: str) -> Replaced:
    numbers = [_field(made, name, place) for name in ("srcOpId", "srcTsId", "dstOpId", "dstTsId")]
    return Replaced(TensorRef(*numbers[:2]), TensorRef(*numbers[2:]))


def _field(made: Any, name: str, place: str) -> int:
    if not made.HasField(name):
        raise damaged(place, f"the field `{name}` is missing")
    return int(getattr(made, name))


def _named(names: tuple[str, ...], number: int, what: str, place: str) -> str:
    if not 0 <= number < len(names):
        raise fail(
            "E553", f"{place}: there is no {what} {number}", help=f"TASO numbers them from 0 to {len(names) - 1}"
        )
    return names[number]

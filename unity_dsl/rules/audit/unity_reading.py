"""Readings of Unity's operators: activations [r, n, c] and weights [r, o, c], where r is the axis of replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...prove.normal_form.polynomial import ONE, number
from .file_rules import FileOperator
from .reading import SHARED_MEANINGS, Format, shared_meaning
from .typed_terms import Call, Dim, NoReading, Typed, Typing, axis_of

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "partition": {"value": "the same value, elsewhere"},
    "combine": {"value": "the same value, elsewhere"},
    "replicate": {
        "tile": "the tensor twice, one copy after the other along the axis",
        "repeat": "every element twice in a row along the axis",
    },
    "reduce": {
        "halves": "the sum of the two halves along the axis",
        "neighbours": "the sums of pairs of neighbours along the axis",
    },
    "linear": {"first": "sum over c of x[0, n, c] * w[0, o, c], of replicas the first, then the activation: [1, n, o]"},
    **SHARED_MEANINGS,
}
FIRST_WEIGHT = -4
"""External tensors with this number or a lower one stand for weights, though a rule may use any tensor anywhere."""
DOUBLING = {"tile": "tile_twice", "repeat": "repeat_twice"}
HALVING = {"halves": "add_halves", "neighbours": "add_neighbours"}


def _axes(external: int, rank: int) -> Sequence[str]:
    return ("r", "o", "c") if external <= FIRST_WEIGHT else ("r", "n", "c")


def _meaning(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> tuple[Typed, ...]:
    match made.kind:
        case "partition" | "combine":
            _check_degree(made, operands[0])
            return (operands[0],)
        case "replicate" | "reduce":
            return (_resized(made, operands[0], typing),)
        case "linear":
            return (_linear(made, operands, typing),)
        case _:
            return shared_meaning(made, operands, typing)


def _check_degree(made: FileOperator, operand: Typed) -> int:
    degree = made.parameters.get("degree")
    if degree != 2:
        raise NoReading(f"`{made.kind}` of degree {degree}")
    return axis_of(made, operand)


def _resized(made: FileOperator, operand: Typed, typing: Typing) -> Typed:
    """The operand with twice or half its size along an axis."""
    axis = _check_degree(made, operand)
    size = operand.dims[axis].size
    if made.kind == "replicate":
        name, found = DOUBLING[typing.choices["replicate"]], size.scaled(2)
    else:
        name, found = HALVING[typing.choices["reduce"]], typing.sizes.fresh("e")
        typing.sizes.equal(size, found.scaled(2))
    call = Call(name, (operand.term,), (("dim", number(axis)),))
    return Typed(call, operand.with_dim(axis, Dim(found)))


def _linear(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> Typed:
    features, weight = operands
    typing.equal(features.dims[2], weight.dims[2])
    call = Call("linear_of_first", (features.term, weight.term))
    return typing.activated(Typed(call, (Dim(ONE), features.dims[1], weight.dims[1])), made)


UNITY = Format(
    "unity",
    MEANINGS,
    lambda _: 3,
    lambda _: 3,
    _axes,
    _meaning,
    operators=Path(__file__).with_suffix(".uop"),
    definitions=Path(__file__).with_suffix(".rules"),
)

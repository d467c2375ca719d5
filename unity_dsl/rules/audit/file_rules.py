"""Rules as a file of another system states them: two operator graphs, and pairs of results that replace one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from ...syntax.diagnostic import InputError, fail

MAX_RULES = 20_000
MAX_OPERATORS = 8
MAX_EXTERNALS = 16
MAX_INPUTS = 8
"""Limits: rules of a file, operators of one side, external tensors of a rule, and operands of one operator. Eight
concatenations of a tensor with itself give a sum of 256 terms, for which the prover needs a second.
"""


@dataclass(frozen=True)
class TensorRef:
    """Result `output` of operator `operator` on the same side. A negative `operator` is the number of an external
    tensor.
    """

    operator: int
    output: int


@dataclass(frozen=True)
class FileOperator:
    """An operator by its name in the file, its operands, and its parameters by name."""

    kind: str
    inputs: tuple[TensorRef, ...]
    parameters: Mapping[str, int]


@dataclass(frozen=True)
class Replaced:
    """A result of the source and the result of the target that replaces it."""

    source: TensorRef
    target: TensorRef


@dataclass(frozen=True)
class FileRule:
    """A rule that rewrites `source` to `target`, result by result; `place` is its place in the file."""

    name: str
    place: str
    source: tuple[FileOperator, ...]
    target: tuple[FileOperator, ...]
    outputs: tuple[Replaced, ...]

    @property
    def externals(self) -> tuple[int, ...]:
        """The external tensors of both sides, −1 first."""
        sides = (*self.source, *self.target)
        return tuple(sorted({ref.operator for made in sides for ref in made.inputs if ref.operator < 0}, reverse=True))

    @cached_property
    def unbound(self) -> tuple[int, ...]:
        """The external tensors that the target reads and the source does not."""
        read = [{ref.operator for made in side for ref in made.inputs} for side in (self.source, self.target)]
        return tuple(sorted((number for number in read[1] - read[0] if number < 0), reverse=True))


@dataclass(frozen=True)
class RuleFile:
    """The rules of a file, in order. `format` is the name of the format."""

    format: str
    rules: tuple[FileRule, ...]


def damaged(place: str, message: str, help: str = "") -> InputError:
    """E552 at a place in a file, such as `rule[3].srcOp[0]`."""
    return fail("E552", f"{place}: {message}", help=help)


def check_rule_graphs(rule: FileRule) -> None:
    """Raises E552 for operands and results that do not exist, E554 for a cycle, E555 for a rule that is too large."""
    for side, operators in (("srcOp", rule.source), ("dstOp", rule.target)):
        place = f"{rule.place}.{side}"
        if not operators:
            raise damaged(place, "there is no operator")
        if len(operators) > MAX_OPERATORS:
            raise fail("E555", f"{place}: {len(operators):,} operators, a side has {MAX_OPERATORS} at most")
        for number, made in enumerate(operators):
            if len(made.inputs) > MAX_INPUTS:
                raise fail("E555", f"{place}[{number}]: {len(made.inputs):,} operands, {MAX_INPUTS} at most")
            for ref in made.inputs:
                _check_ref(ref, operators, f"{place}[{number}]")
        operator_order(operators, place)
    if len(rule.externals) > MAX_EXTERNALS:
        raise fail("E555", f"{rule.place}: {len(rule.externals):,} external tensors, {MAX_EXTERNALS} at most")
    if not rule.outputs:
        raise damaged(rule.place, "`mappedOutput` is empty: the rule replaces nothing")
    for number, pair in enumerate(rule.outputs):
        for ref, operators in ((pair.source, rule.source), (pair.target, rule.target)):
            _check_ref(ref, operators, f"{rule.place}.mappedOutput[{number}]")


def _check_ref(ref: TensorRef, operators: Sequence[FileOperator], place: str) -> None:
    if ref.operator >= len(operators):
        raise damaged(place, f"operator {ref.operator} does not exist: the side has {len(operators)}, counted from 0")
    outputs = operators[ref.operator].parameters.get("outputs", 1) if ref.operator >= 0 else 1
    if not 0 <= ref.output < outputs:
        raise damaged(place, f"result {ref.output} of operator {ref.operator} does not exist: it has {outputs}")


def operator_order(operators: Sequence[FileOperator], place: str) -> tuple[int, ...]:
    """The operators of a side, each after its operands. Raises E554."""
    graph = {
        number: [ref.operator for ref in made.inputs if ref.operator >= 0] for number, made in enumerate(operators)
    }
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " <- ".join(map(str, error.args[1]))
        raise fail("E554", f"{place}: operators {circle} are made of one another") from None

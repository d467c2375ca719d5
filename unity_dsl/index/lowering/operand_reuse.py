"""Results that reuse the memory of an operand: the calls that allow this, and the rewritten lowerings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..evaluation.native_calls import TORCH_CALLS
from .operator_lowering import Lowering
from .torch_term import Argument, Term, Variable
from .value_lowering import Statement
from .views import VIEWS


@dataclass(frozen=True)
class Reuse:
    """How results reuse the memory of operands.

    `states` has results that are a buffer's new value, each with the operand that is the buffer, which a native call
    changes in place. `over` is the operand in whose memory the only result is made.
    """

    states: tuple[tuple[int, int], ...] = ()
    over: int | None = None


NO_REUSE = Reuse()

_OF_THE_FIRST = (
    "torch.sub", "torch.neg", "torch.relu", "torch.sigmoid", "torch.tanh", "torch.exp", "torch.sqrt", "torch.rsqrt"
)  # fmt: skip

OVER: Mapping[str, tuple[int, ...]] = {"torch.add": (0, 1), **dict.fromkeys(_OF_THE_FIRST, (0,))}
"""Elementwise calls whose backward pass reads no operand, with the operands whose memory the result may reuse."""

IN_PLACE: Mapping[str, str] = {f".{call.removeprefix('torch.')}_": call for call in OVER}
"""The in-place methods, and the calls of which they are the in-place versions."""

_MAKE_THEIR_OWN = (TORCH_CALLS - VIEWS) | {"+", "-", "*", "/"}


def makes_its_own(term: Term) -> bool:
    """Whether the value of a statement is a new tensor, for autograd too: neither a view nor an operand.

    `F.linear` with a bias multiplies matrices, and a result with more dimensions is a view of that product.
    """
    is_view = term.operation == "F.linear" and len(term.arguments) > 2 and len(term.axes) != 2
    return term.operation in _MAKE_THEIR_OWN and not is_view


def copied_operand(lowering: Lowering, result: int) -> int | None:
    """The number of the operand whose copy a native call's result starts from; None if there is none."""
    made = _statement(lowering, lowering.results[result])
    match made.value if made else None:
        case Term("torch.clone", (Term("torch.detach", (Term("name", (Variable(number),)),)),)):
            return number
        case Term("torch.clone", (Term("name", (Variable(number),)),)):
            return number
    return None


def reusing(lowering: Lowering, reuse: Reuse) -> Lowering:
    """The lowering with results that reuse the memory of operands."""
    for result, operand in reuse.states:
        lowering = _changing(lowering, result, Variable(operand))
    return lowering if reuse.over is None else _over(lowering, reuse.over)


def _statement(lowering: Lowering, variable: Variable) -> Statement | None:
    return next((found for found in lowering.statements if variable in found.variables), None)


def _changing(lowering: Lowering, result: int, operand: Variable) -> Lowering:
    """Drops the copy of an operand: the result is the operand itself, which later calls change."""
    copy = lowering.results[result]
    statements = tuple(
        replace(found, value=_renamed(found.value, copy, operand))
        for found in lowering.statements
        if copy not in found.variables
    )
    results = tuple(operand if variable == copy else variable for variable in lowering.results)
    return replace(lowering, statements=statements, results=results)


def _renamed(term: Term, old: Variable, new: Variable) -> Term:
    def argument(given: Argument) -> Argument:
        match given:
            case Variable():
                return new if given == old else given
            case Term():
                return _renamed(given, old, new)
        return given

    return term.mapped(argument)


def _over(lowering: Lowering, operand: int) -> Lowering:
    """The lowering with its only call as an in-place method of one of its operands."""
    (made,) = lowering.statements
    call = made.value
    place = next(place for place, given in enumerate(call.arguments) if _number(given) == operand)
    others = (*call.arguments[:place], *call.arguments[place + 1 :])
    name = f".{call.operation.removeprefix('torch.')}_"
    value = replace(call, operation=name, arguments=(call.arguments[place], *others))
    return replace(lowering, statements=(replace(made, value=value),))


def _number(argument: Argument) -> int | None:
    match argument:
        case Term("name", (Variable(number),)):
            return number
    return None

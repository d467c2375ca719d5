"""Intermediates on which the outputs do not depend: softmax's maximum, which cancels. They carry no gradient."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ..syntax.ast import Apply, Expr, Number, Read, ReductionKind, Select
from .instance import Equation, Instance
from .term import children

Response = frozenset[tuple[str, Fraction]]
"""How a term answers m -> m + d: ("shift", k) adds k * d, ("scale", k) multiplies by exp(k * d). Several may hold."""

_NONE = Fraction(0)
_CONSTANT: Response = frozenset({("shift", _NONE), ("scale", _NONE)})
_UNKNOWN: Response = frozenset()


def gradient_free(instance: Instance) -> frozenset[str]:
    """Intermediates of which every output is independent.

    Sound, not complete: a term whose response is not tracked counts as dependent.
    """
    outputs = {output.name for output in instance.outputs}
    names = [e.target.name for e in instance.equations if e.target.name not in outputs]
    return frozenset(name for name in names if _cancels(instance, name))


def _cancels(instance: Instance, name: str) -> bool:
    responses = {operand.name: _CONSTANT for operand in instance.inputs}
    for equation in instance.equations:
        if equation.target.name == name:
            responses[name] = frozenset({("shift", Fraction(1))})
        else:
            responses[equation.target.name] = _reduced(equation, _response(equation.value, responses))
    return all(_is_constant(responses[output.name]) for output in instance.outputs)


def _is_constant(response: Response) -> bool:
    return any(amount == 0 for _, amount in response)


def _reduced(equation: Equation, response: Response) -> Response:
    if equation.kind is None or _is_constant(response):
        return response
    match equation.kind:
        case ReductionKind.SUM:
            return frozenset(answer for answer in response if answer[0] == "scale")
        case ReductionKind.MAX | ReductionKind.MIN:
            return response
    return _UNKNOWN


def _response(expr: Expr, known: Mapping[str, Response]) -> Response:
    match expr:
        case Read(tensor=tensor, fill=None):
            return known[tensor]
        case Apply(function="exp", arguments=(argument,)):
            return _closed({("scale", k) for kind, k in _response(argument, known) if kind == "shift"})
        case Apply(function="log", arguments=(argument,)):
            return _closed({("shift", k) for kind, k in _response(argument, known) if kind == "scale"})
        case Apply(function="neg", arguments=(argument,)):
            return _closed({(kind, -k if kind == "shift" else k) for kind, k in _response(argument, known)})
        case Apply(function="+" | "-" as function, arguments=(left, right)):
            return _sum(_response(left, known), _response(right, known), 1 if function == "+" else -1)
        case Apply(function="*" | "/" as function, arguments=(left, right)):
            return _product(left, right, known, 1 if function == "*" else -1)
        case Select(condition=condition, then=then, otherwise=otherwise):
            if _is_constant(_response(condition, known)):
                return _response(then, known) & _response(otherwise, known)
            return _UNKNOWN
    constant = all(_is_constant(_response(child, known)) for child in children(expr))
    return _CONSTANT if constant else _UNKNOWN


def _closed(answers: set[tuple[str, Fraction]]) -> Response:
    """Adding nothing and multiplying by one are the same."""
    return _CONSTANT if any(k == 0 for _, k in answers) else frozenset(answers)


def _sum(left: Response, right: Response, sign: int) -> Response:
    shifts = {("shift", a + sign * b) for x, a in left for y, b in right if x == y == "shift"}
    scales = {("scale", a) for x, a in left if x == "scale" and ("scale", a) in right}
    return _closed(shifts | scales)


def _product(left: Expr, right: Expr, known: Mapping[str, Response], sign: int) -> Response:
    a, b = _response(left, known), _response(right, known)
    scales = {("scale", k + sign * j) for x, k in a for y, j in b if x == y == "scale"}
    shifts = set()
    if isinstance(right, Number) and right.value:
        factor = Fraction(right.value) ** sign
        shifts |= {("shift", k * factor) for x, k in a if x == "shift"}
    if isinstance(left, Number) and sign == 1:
        shifts |= {("shift", k * Fraction(left.value)) for x, k in b if x == "shift"}
    return _closed(scales | shifts)

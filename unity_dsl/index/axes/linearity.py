"""Finds the sets of operands in which an operator is jointly homogeneous-linear."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations

from ...syntax.ast import Apply, Expr, Number, Read, ReductionKind, Select
from ..equations.instance import Equation, Instance, Kind
from ..equations.term import children

Degrees = frozenset[int]
"""Degrees of homogeneity of a term in the set: {0} independent, {1} linear, {0, 1} zero, {} neither."""

_INDEPENDENT: Degrees = frozenset({0})
_ZERO: Degrees = frozenset({0, 1})
_NEITHER: Degrees = frozenset()


def linear_operands(instance: Instance) -> tuple[tuple[int, ...], ...]:
    """Every non-empty set of float inputs, by position, in which all outputs are jointly homogeneous-linear.

    Integers are never terms of a sum.
    """
    return _linear_operands(instance.kind)


@lru_cache(maxsize=4096)
def _linear_operands(kind: Kind) -> tuple[tuple[int, ...], ...]:
    instance = kind.instance
    if instance.whole:
        return ()
    floats = [i for i, operand in enumerate(instance.inputs) if operand.integer_range is None]
    sets = (chosen for size in range(1, len(floats) + 1) for chosen in combinations(floats, size))
    return tuple(chosen for chosen in sets if _is_linear(instance, chosen))


def _is_linear(instance: Instance, chosen: tuple[int, ...]) -> bool:
    for equations in filter(None, (instance.equations, instance.evaluation)):
        degrees = {operand.name: frozenset({int(i in chosen)}) for i, operand in enumerate(instance.inputs)}
        for equation in equations:
            degrees[equation.target.name] = _reduced(equation, _degrees(equation.value, degrees))
        if not all(1 in degrees[output.name] and degrees[output.name] != _ZERO for output in instance.outputs):
            return False
    return True


def _reduced(equation: Equation, degrees: Degrees) -> Degrees:
    return degrees if equation.kind in (None, ReductionKind.SUM) else degrees & _INDEPENDENT


def _degrees(expr: Expr, known: Mapping[str, Degrees]) -> Degrees:
    match expr:
        case Number(value=value):
            return _ZERO if value == 0 else _INDEPENDENT
        case Read(tensor=tensor, fill=fill):
            return known[tensor] if fill is None else known[tensor] & _degrees(fill, known)
        case Select(condition=condition, then=then, otherwise=otherwise):
            if 0 not in _degrees(condition, known):
                return _NEITHER
            return _degrees(then, known) & _degrees(otherwise, known)
        case Apply(function="+" | "-", arguments=(left, right)):
            return _degrees(left, known) & _degrees(right, known)
        case Apply(function="neg", arguments=(argument,)):
            return _degrees(argument, known)
        case Apply(function="*", arguments=(left, right)):
            products = {a + b for a in _degrees(left, known) for b in _degrees(right, known)}
            return frozenset(products & {0, 1})
        case Apply(function="/", arguments=(left, right)):
            return _degrees(left, known) if 0 in _degrees(right, known) else _NEITHER
    independent = all(0 in _degrees(child, known) for child in children(expr))
    return _INDEPENDENT if independent else _NEITHER

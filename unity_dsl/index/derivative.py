"""Derivatives of scalar terms by a tensor element that they read, and where gradients flow at all."""

from __future__ import annotations

from collections.abc import Iterator

from ..syntax.ast import Apply, Expr, Read, Select
from .instance import Instance
from .library import Library
from .simplify import ONE, ZERO, simplify
from .term import COMPARISONS, call, substitute

_CONSTANT = COMPARISONS | {"//"}
"""Functions that are constant wherever they have a derivative."""


def smooth_reads(expr: Expr) -> Iterator[Read]:
    """The reads through which a derivative flows: none in conditions, comparisons and indices."""
    match expr:
        case Read():
            yield expr
        case Apply(function, arguments) if function not in _CONSTANT:
            for argument in arguments:
                yield from smooth_reads(argument)
        case Select(_, then, otherwise):
            yield from smooth_reads(then)
            yield from smooth_reads(otherwise)


def dependents(instance: Instance, sources: frozenset[str]) -> frozenset[str]:
    """The targets of equations whose value varies smoothly with one of these tensors."""
    found: set[str] = set()
    for equation in instance.equations:
        if any(read.tensor in sources or read.tensor in found for read in smooth_reads(equation.value)):
            found.add(equation.target.name)
    return frozenset(found)


def derivative(expr: Expr, by: Read, library: Library) -> Expr:
    """The derivative of a term by one element, every other element held fixed; simplified.

    Declared derivatives of element functions are used as they stand, at kinks too.
    """
    return simplify(_derivative(expr, by, library))


def _derivative(expr: Expr, by: Read, library: Library) -> Expr:
    if expr == by:
        return ONE
    if not any(read == by for read in smooth_reads(expr)):
        return ZERO
    match expr:
        case Select(condition, then, otherwise):
            return Select(condition, _derivative(then, by, library), _derivative(otherwise, by, library))
        case Apply(function, arguments):
            inner = [simplify(_derivative(argument, by, library)) for argument in arguments]
            total: Expr = ZERO
            for position, factor in enumerate(inner):
                if factor != ZERO:
                    total = call("+", total, call("*", _outer(function, arguments, position, library), factor))
            return simplify(total)
    raise TypeError(f"{type(expr).__name__} in the value of an equation")


def _outer(function: str, arguments: tuple[Expr, ...], position: int, library: Library) -> Expr:
    """The derivative of a function by its argument at `position`."""
    match function, position:
        case ("+", _) | ("-", 0) | ("%", 0):
            return ONE
        case ("-", 1) | ("neg", 0):
            return call("neg", ONE)
        case ("*", _):
            return arguments[1 - position]
        case ("/", 0):
            return call("/", ONE, arguments[1])
        case ("/", 1):
            return call("neg", call("/", arguments[0], call("*", arguments[1], arguments[1])))
        case ("%", 1):
            return call("neg", call("//", *arguments))
    declared = library.functions[function]
    given = dict(declared.derivatives)
    return substitute(given[declared.parameters[position]], dict(zip(declared.parameters, arguments, strict=True)))

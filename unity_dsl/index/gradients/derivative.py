"""Symbolic derivatives of scalar terms by a tensor element, and where gradients flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from ...syntax.ast import Apply, Expr, Read, Select
from ..equations.instance import Instance
from ..equations.rewriting import ONE, ZERO, simplify
from ..equations.term import COMPARISONS, call, substitute
from ..library import LIBRARIES, Library

Slope = Callable[[str, tuple[Expr, ...], int], Expr]
"""Maps an element function, its arguments and the position of one to the derivative by that argument."""

CONSTANT = COMPARISONS | {"//"}
"""Functions that are constant wherever they have a derivative."""


def smooth_reads(expr: Expr) -> Iterator[Read]:
    """The reads through which gradients flow: none in conditions, comparisons and indices."""
    match expr:
        case Read():
            yield expr
        case Apply(function, arguments) if function not in CONSTANT:
            for argument in arguments:
                yield from smooth_reads(argument)
        case Select(_, then, otherwise):
            yield from smooth_reads(then)
            yield from smooth_reads(otherwise)


def dependents(instance: Instance, sources: frozenset[str]) -> frozenset[str]:
    """The targets of equations with a derivative by one of these tensors."""
    found: set[str] = set()
    for equation in instance.equations:
        if any(read.tensor in sources or read.tensor in found for read in smooth_reads(equation.value)):
            found.add(equation.target.name)
    return frozenset(found)


@lru_cache(maxsize=LIBRARIES)
def declared_slopes(library: Library) -> Slope:
    """The declared derivatives of element functions, kinks included."""

    def slope(function: str, arguments: tuple[Expr, ...], position: int) -> Expr:
        declared = library.functions[function]
        given = dict(zip(declared.parameters, arguments, strict=True))
        return substitute(dict(declared.derivatives)[declared.parameters[position]], given)

    return slope


def derivative(expr: Expr, by: Read, slope: Slope) -> Expr:
    """The partial derivative of a term by one element, simplified."""
    return simplify(_derivative(expr, by, slope))


def _derivative(expr: Expr, by: Read, slope: Slope) -> Expr:
    if expr == by:
        return ONE
    if not any(read == by for read in smooth_reads(expr)):
        return ZERO
    match expr:
        case Select(condition, then, otherwise):
            return Select(condition, _derivative(then, by, slope), _derivative(otherwise, by, slope))
        case Apply(function, arguments):
            inner = [simplify(_derivative(argument, by, slope)) for argument in arguments]
            total: Expr = ZERO
            for position, factor in enumerate(inner):
                if factor != ZERO:
                    total = call("+", total, call("*", _outer(function, arguments, position, slope), factor))
            return simplify(total)
    raise TypeError(f"{type(expr).__name__} in the value of an equation")


def _outer(function: str, arguments: tuple[Expr, ...], position: int, slope: Slope) -> Expr:
    """The derivative of arithmetic or of an element function by its argument at `position`."""
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
    return slope(function, arguments, position)

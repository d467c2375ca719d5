"""Sizes of terms with definitions of element functions inlined, computed without inlining them.

A call is replaced by its function's definition with arguments for parameters, so the size is linear in the sizes of the
arguments, and each function is measured once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from ...syntax.ast import Apply, Expr, FunctionDecl, Name
from ...syntax.diagnostic import fail
from ...syntax.span import Span
from ..equations.term import children

LARGEST = 10_000
"""Limit of the nodes of a term."""
DEEPEST = 32
"""Limit of the nesting of definitions."""

Functions = Mapping[str, FunctionDecl]


@dataclass(frozen=True)
class Extent:
    """Nodes of a term without its parameters, the number of uses of each parameter, and the nesting depth."""

    nodes: int
    uses: Mapping[str, int]
    depth: int


def check_definition(function: FunctionDecl, functions: Functions) -> None:
    """Raises E111 for a recursive function, E115 for one whose inlined definition is too large or too deep."""
    _extent(function, functions, (), {})


def check_size(expr: Expr, functions: Functions) -> None:
    """Raises E115 for a term that is too large or too deep when inlined."""
    _measure(expr, functions, (), {}, expr.span)


def _extent(
    function: FunctionDecl, functions: Functions, above: tuple[str, ...], known: dict[str, Extent | None]
) -> Extent | None:
    """The size of a definition; None for a primitive."""
    if function.name in above:
        way = " -> ".join((*above[above.index(function.name) :], function.name))
        raise fail("E111", f"`{function.name}` is defined by itself: {way}", function.span)
    if len(above) > DEEPEST:
        _refuse(f"definitions are nested more than {DEEPEST} deep: {' -> '.join(above[:3])} -> …", function.span)
    if function.name not in known:
        definition, names = function.definition, (*above, function.name)
        known[function.name] = (
            None if definition is None else _measure(definition, functions, names, known, function.span)
        )
    return known[function.name]


def _measure(
    expr: Expr, functions: Functions, above: tuple[str, ...], known: dict[str, Extent | None], span: Span | None
) -> Extent:
    if isinstance(expr, Name):
        return Extent(0, {expr.name: 1}, 0)
    parts = [_measure(part, functions, above, known, span) for part in children(expr)]
    times, nodes, depth = [1] * len(parts), 1, max((part.depth for part in parts), default=0)
    if isinstance(expr, Apply) and expr.function in functions:
        function = functions[expr.function]
        if (called := _extent(function, functions, above, known)) is not None:
            times = [called.uses.get(parameter, 0) for parameter in function.parameters]
            nodes, depth = called.nodes, max(depth, called.depth + 1)
    uses: dict[str, int] = {}
    for part, count in zip(parts, times, strict=True):
        nodes += count * part.nodes
        for name, more in part.uses.items():
            uses[name] = uses.get(name, 0) + count * more
    if nodes + sum(uses.values()) > LARGEST:
        _refuse(f"a term has more than {LARGEST} parts with all definitions written out", span)
    if depth > DEEPEST:
        _refuse(f"definitions are nested more than {DEEPEST} deep", span)
    return Extent(nodes, uses, depth)


def _refuse(message: str, span: Span | None) -> NoReturn:
    raise fail("E115", message, span, help="give a function a `torch:` and a `numpy:` line for a definition")

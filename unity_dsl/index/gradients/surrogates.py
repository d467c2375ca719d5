"""Functions with a declared gradient other than their own, and inputs of operators that get no gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ...syntax.ast import Apply, Expr, FunctionDecl, Read, Select
from ..equations.instance import Instance, Kind
from ..equations.rewriting import ZERO
from ..equations.term import walk
from ..library import LIBRARIES, Library
from .derivative import CONSTANT


@lru_cache(maxsize=LIBRARIES)
def surrogate_functions(library: Library) -> frozenset[str]:
    """The functions with a surrogate, and those whose definitions call one, directly or through others.

    Equal values of such functions may have different gradients: writing out a definition would lose the declared one.
    """
    return steered(library.functions)


def steered(functions: Mapping[str, FunctionDecl]) -> frozenset[str]:
    """`surrogate_functions` of functions by name."""
    callers: dict[str, list[str]] = {}
    for name, decl in functions.items():
        for node in walk(decl.definition) if decl.definition is not None else ():
            if isinstance(node, Apply):
                callers.setdefault(node.function, []).append(name)
    pending = [name for name, decl in functions.items() if decl.surrogates]
    found = set(pending)
    while pending:
        new = [name for name in callers.get(pending.pop(), ()) if name not in found]
        found.update(new)
        pending += new
    return frozenset(found)


def stopped_inputs(instance: Instance, library: Library) -> frozenset[int]:
    """The float inputs, by position, that get no gradient from any output.

    Each path meets a derivative that is declared to be 0, or a function that is constant wherever it has a derivative.
    """
    return _stopped_inputs(instance.kind, library)


@lru_cache(maxsize=4096)
def _stopped_inputs(kind: Kind, library: Library) -> frozenset[int]:
    instance = kind.instance
    if instance.whole or instance.extern:
        return frozenset()
    reached = {output.name for output in instance.outputs}
    for equation in reversed(instance.equations):
        if equation.target.name in reached:
            reached |= {read.tensor for read in _flowing(equation.value, library)}
    floats = (place for place, operand in enumerate(instance.inputs) if operand.integer_range is None)
    return frozenset(place for place in floats if instance.inputs[place].name not in reached)


def _flowing(expr: Expr, library: Library) -> Iterator[Read]:
    """The reads by which a term has a derivative, unless that is declared to be 0."""
    match expr:
        case Read():
            yield expr
        case Apply(function, arguments) if function not in CONSTANT:
            decl = library.functions.get(function)
            slopes = {} if decl is None else dict(decl.derivatives)
            for place, argument in enumerate(arguments):
                if decl is None or slopes[decl.parameters[place]] != ZERO:
                    yield from _flowing(argument, library)
        case Select(_, then, otherwise):
            yield from _flowing(then, library)
            yield from _flowing(otherwise, library)

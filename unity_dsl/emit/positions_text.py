"""Python functions of declared cuts: the positions, on the cut dimension, of the elements that a device holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..graph.declared_slices import cut_index
from ..index.lowering.torch_term import Term, integer, number, word
from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, ParallelDecl, Size
from .program_names import Names
from .torch_text import term_text


@dataclass(frozen=True)
class PositionsFunction:
    """A declared cut as a function of the device's index, the local positions and the sizes that it names.

    `sizes` pairs the declaration's names of sizes with those of the arguments. `words` is the declaration's comment.
    """

    name: str
    sizes: tuple[tuple[str, str], ...]
    code: str
    words: str


def positions_function(name: str, declaration: ParallelDecl) -> PositionsFunction:
    """The function of a declaration's index map, for all sizes."""
    index, local = cut_index(declaration)
    names = Names(("device", "local"))
    sizes = {size: names.fresh(size) for size in dict.fromkeys(_sizes(index, local))}
    terms = {size: word(argument) for size, argument in sizes.items()}
    code = term_text(_term(index, local, terms), str)
    return PositionsFunction(name, tuple(sizes.items()), code, declaration.doc)


def _sizes(expr: Expr, local: str) -> Iterator[str]:
    match expr:
        case Size(name=name):
            yield name
        case Name(name=name) if name != local:
            yield name
        case Apply(arguments=arguments):
            for argument in arguments:
                yield from _sizes(argument, local)


def _term(expr: Expr, local: str, sizes: Mapping[str, Term]) -> Term:
    match expr:
        case Number(value=value):
            return number(value)
        case DeviceName():
            return word("device")
        case Name(name=name) if name == local:
            return word("local")
        case Name(name=name) | Size(name=name):
            return sizes[name]
        case Apply(function=function, arguments=arguments):
            return integer(function, [_term(argument, local, sizes) for argument in arguments])
    raise TypeError(f"{type(expr).__name__} in the index of a parallel op")

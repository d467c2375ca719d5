"""Signatures of operators that a table does not name, from their declarations alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from ...index.equations.where_conditions import keys, mentions_rank
from ...index.instantiation.call_frame import integer_attributes
from ...index.instantiation.view_call import takes_pattern
from ...index.library import Library
from ...syntax.ast import OperatorDecl, TensorDecl
from ...syntax.diagnostic import InputError, fail, suggest
from .context import LETTERS
from .dimensions import TensorType
from .signature import read_signature
from .signature_table import SignatureTable, Theme

RANKS = (1, 2)
"""How many axes a rest stands for."""
OPERATORS = 3
"""The most operators on a side of a new operator's substitutions."""
USUAL_NUMBER = 2
"""The value of a whole-number attribute without default."""


def with_operators(table: SignatureTable, library: Library, names: Iterable[str]) -> SignatureTable:
    """The table with a theme for each operator that it does not name: its own signatures, and those of the themes that
    accompany new operators whose tensors have its ranks. Raises E102 for an unknown operator, E509 for one of which no
    signature can be made.
    """
    known = {text for theme in table.themes for text in theme.signatures}
    new = [name for name in sorted(names) if not any(f" {name}(" in text or f" {name}[" in text for text in known)]
    return replace(table, themes=(*table.themes, *(_theme(name, table, library) for name in new)))


def _theme(name: str, table: SignatureTable, library: Library) -> Theme:
    own = declared_signatures(name, library)
    if not own:
        help = f'write one into a table: `"(x: [m, n]) {name}(x)"`'
        raise fail("E509", f"no signature of `{name}` can be made from its declaration", help=help)
    ranks = {len(tensor.dims) for text in own for tensor in _tensors(text, library)}
    usual = dict.fromkeys(text for theme in table.themes if theme.accompanies for text in theme.signatures)
    near = [text for text in usual if {len(tensor.dims) for tensor in _tensors(text, library)} <= ranks]
    about = f"`{name}`, at the ranks that its declaration allows, with operators on tensors of these ranks"
    return Theme(name, OPERATORS, (*own, *near), numbers=("c",), about=about)


def _tensors(text: str, library: Library) -> tuple[TensorType, ...]:
    signature = read_signature(text, library)
    return (*signature.operands, *signature.types)


def declared_signatures(name: str, library: Library) -> tuple[str, ...]:
    """Signatures of an operator: its rests at one and at two axes, attributes at their defaults, a dimension that is
    counted at every place. Raises E102.
    """
    if name not in library.operators:
        raise fail("E102", f"unknown operator `{name}`", help=suggest(name, library.operators))
    decl = library.operators[name]
    found = dict.fromkeys(_texts(decl))
    return tuple(text for text in found if _is_signature(text, library))


def _is_signature(text: str, library: Library) -> bool:
    try:
        read_signature(text, library)
    except InputError:
        return False
    return True


def _texts(decl: OperatorDecl) -> Iterator[str]:
    pattern = takes_pattern(decl)
    if pattern is not None:
        _, reduced = pattern
        yield f"(x: [m, n]) {decl.name}(x[m, n] -> [{'m' if reduced else 'n, m'}])"
        return
    rests = list(dict.fromkeys(dim.name for tensor in decl.inputs for dim in tensor.dims if dim.rest))
    for ranks in product(RANKS, repeat=len(rests)):
        letters: dict[str, str] = {}
        operands = [_operand(tensor, dict(zip(rests, ranks, strict=True)), letters) for tensor in decl.inputs]
        for attributes in _attributes(decl, sum(ranks) + len(decl.inputs[0].dimensions)):
            arguments = ", ".join(f"x{place}" for place in range(len(operands)))
            given = ", ".join(f"{key}={value}" for key, value in attributes.items())
            inputs = ", ".join(f"x{place}: {text}" for place, text in enumerate(operands))
            yield f"({inputs}) {decl.name}({arguments}{'; ' if given else ''}{given})"


def _operand(tensor: TensorDecl, ranks: Mapping[str, int], letters: dict[str, str]) -> str:
    def letter(axis: str) -> str:
        return letters.setdefault(axis, LETTERS[len(letters)])

    dims: list[str] = []
    for axes in tensor.dimensions:
        if axes[0].rest:
            dims += [letter(f"{axes[0].name}.{place}") for place in range(ranks[axes[0].name])]
        else:
            dims.append(" * ".join(letter(axis.name) for axis in axes))
    integers = "" if tensor.integer_range is None else f"int<{letter(tensor.integer_range)}>"
    return f"{integers}[{', '.join(dims)}]"


def _attributes(decl: OperatorDecl, rank: int) -> Iterator[dict[str, object]]:
    """Values of the attributes without default: every dimension, the number 2, or any real number."""
    counted = {name for condition in decl.conditions if mentions_rank(condition) for name in keys(condition)}
    whole = integer_attributes(decl)
    choices: list[list[tuple[str, object]]] = []
    for attribute in decl.attributes:
        if attribute.default is not None:
            continue
        if attribute.name in counted:
            choices.append([(attribute.name, place) for place in range(rank)])
        else:
            choices.append([(attribute.name, USUAL_NUMBER if attribute.name in whole else "c")])
    for chosen in product(*choices):
        yield dict(chosen)

"""A side of a rule as a tree of operators whose words name their axes: `concat_last`, `transpose_01`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...index.equations.term_text import expression_text
from ...index.equations.where_conditions import keys, mentions_rank
from ...index.library import Library
from ...prove.translation.rule_forms import call_pattern, declaration
from ...syntax.ast import Expr, Name, Number, OperatorDecl, ParallelDecl
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView

Pattern: TypeAlias = "tuple[tuple[str | int, ...], ...]"


@dataclass(frozen=True)
class Tree:
    """An operator with its operands, or an input, whose word is empty.

    `names` are the names of the declared operands, `attributes` the texts of the attributes.
    """

    word: str
    operands: tuple[Tree, ...] = ()
    names: tuple[str, ...] = ()
    input: str = ""
    attributes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its operators, outermost first, operands from left to right."""
        return tuple(self._words())

    def _words(self) -> Iterator[str]:
        if self.word:
            yield self.word
        for operand in self.operands:
            yield from operand._words()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that it reads, from left to right."""
        return (self.input,) if self.input else tuple(name for part in self.operands for name in part.inputs)


def tree_of(expr: GraphExpr, library: Library) -> Tree:
    """The tree of a graph without local names."""
    match expr:
        case Name(name):
            return Tree("", input=name)
        case GraphView(operand, source, target):
            return Tree(_view_word(source, target), (tree_of(operand, library),), ("x",))
        case GraphCall():
            return _call_tree(expr, library)
    raise TypeError(f"{expr} is no graph")


def counting_attributes(decl: OperatorDecl | ParallelDecl) -> frozenset[str]:
    """The attributes that address a dimension by its number."""
    return frozenset(key for condition in decl.conditions if mentions_rank(condition) for key in keys(condition))


def _call_tree(call: GraphCall, library: Library) -> Tree:
    decl = declaration(call, library)
    names = tuple(one.name for one in decl.inputs)
    pattern = call_pattern(call, decl)
    # If all axes are one group, the view is an ordinary operand.
    if pattern is not None and len(decl.inputs[0].dims) > 1:
        axes = _axes_word(pattern.source, pattern.target)
        return Tree(f"{call.name}_{axes}", (tree_of(pattern.operand, library),), names)
    word = "_".join((call.name, *_settings(call, counting_attributes(decl))))
    attributes = tuple(f"{name}={expression_text(value)}" for name, value in call.attributes)
    return Tree(word, tuple(tree_of(one, library) for one in call.arguments), names, attributes=attributes)


def _settings(call: GraphCall, counting: frozenset[str]) -> Iterator[str]:
    """The words of attributes with a value: dimensions, integers, and whether a slice is the head or the tail."""
    for name, value in call.attributes:
        if name in counting:
            yield _dimension_word(value)
        elif name == "start":
            yield "head" if value == Number(0) else "tail"
        elif isinstance(value, Number) and isinstance(value.value, int):
            yield f"{name}{value.value}".replace("-", "minus")


def _dimension_word(value: Expr) -> str:
    match value:
        case Number(0):
            return "first"
        case Number(-1):
            return "last"
        case Number(number):
            return f"axis{number}"
    return "axis"


def _axes_word(source: Pattern, target: Pattern) -> str:
    """The axes that a reduction removes."""
    kept = {name for names in target for name in names}
    gone = [place for place, names in enumerate(source) if not kept.issuperset(names)]
    if len(gone) == len(source):
        return "all"
    if gone == [0]:
        return "first"
    return "last" if gone == [len(source) - 1] else f"axis{''.join(map(str, gone))}"


def _view_word(source: Pattern, target: Pattern) -> str:
    """`transpose`, or a word with numbers of axes: `transpose_01` swaps two, `merge_01` merges two, `split_0` splits
    one.
    """
    if any(isinstance(name, int) for names in (*source, *target) for name in names):
        return "reshape"
    places = {name: place for place, names in enumerate(source) for name in names}
    split = [str(place) for place, names in enumerate(source) if len(names) > 1]
    merged = ["".join(str(places[name]) for name in names) for names in target if len(names) > 1]
    order = [places[name] for names in target for name in names]
    if split and not merged and order == sorted(order):
        return f"split_{''.join(split)}"
    if merged and not split and order == sorted(order):
        return f"merge_{'_'.join(merged)}"
    if split or merged or len(order) != len(source):
        return "reshape"
    if len(order) == 2:
        return "transpose"
    moved = [place for place, axis in enumerate(order) if place != axis]
    return f"transpose_{''.join(map(str, moved if len(moved) == 2 else order))}"

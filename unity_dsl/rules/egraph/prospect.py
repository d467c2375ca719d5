"""A cheap necessary condition for a match, checked before a rule is prepared for matching, which takes longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...graph.graph import Node
from ...index.library import Library
from ...prove.translation.rule_forms import call_pattern
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ..graph_identity import is_identity
from ..substitution import Substitution, outlined

VIEW = "rearrange"
Join = tuple[str, str]
"""An operator, and an operator whose result it reads."""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A rule that is prepared for matching only when a graph may contain its left side."""

    rule: RuleDecl
    library: Library

    @cached_property
    def prepared(self) -> Substitution | None:
        """The prepared rule; None if it applies to no model. The check of its sizes is left out."""
        found = outlined(self.rule, self.library)
        return found if isinstance(found, Substitution) else None


@dataclass(frozen=True)
class Skeleton:
    """The names of operators, and pairs of names in which the first reads a result of the second."""

    operators: frozenset[str]
    joins: frozenset[Join]

    def within(self, other: Skeleton) -> bool:
        return self.operators <= other.operators and self.joins <= other.joins


def skeleton_of(nodes: Sequence[Node]) -> Skeleton:
    """The skeleton of operators, several of which may make one value. Operators that return their input unchanged also
    link their neighbours.
    """
    makers: dict[str, list[Node]] = {}
    for node in nodes:
        for value in node.results:
            makers.setdefault(value.name, []).append(node)
    reached: dict[str, frozenset[str]] = {}

    def made_by(value: str) -> frozenset[str]:
        """The operators that make a value, also through operators that return their input unchanged."""
        if value not in reached:
            reached[value] = frozenset()  # a cycle adds nothing
            own = makers.get(value, ())
            before = (made_by(node.arguments[0].name) for node in own if is_identity(node.instance))
            reached[value] = frozenset(node.instance.name for node in own).union(*before)
        return reached[value]

    joins = {(node.instance.name, maker) for node in nodes for value in node.arguments for maker in made_by(value.name)}
    return Skeleton(frozenset(node.instance.name for node in nodes), frozenset(joins))


@lru_cache(maxsize=4096)
def left_skeleton(rule: RuleDecl, library: Library) -> Skeleton:
    """The skeleton that a graph must contain for a rule to match. Raises InputError for unknown operators."""
    operators, joins = set[str](), set[Join]()
    for side in rule.left:
        for reader, made in _calls(side, dict(rule.definitions), library):
            operators.add(made)
            if reader is not None:
                joins.add((reader, made))
    return Skeleton(frozenset(operators), frozenset(joins))


def _calls(
    expr: GraphExpr, definitions: Mapping[str, GraphExpr], library: Library, reader: str | None = None
) -> Iterator[tuple[str | None, str]]:
    """Every call of an expression, with the operator that reads it if there is one."""
    while isinstance(expr, Name) and expr.name in definitions:
        expr = definitions[expr.name]
    inner: Iterable[GraphExpr] = ()
    match expr:
        case GraphView(operand=operand):
            name, inner = VIEW, (operand,)
        case GraphCall(name=name, degrees=None, arguments=arguments) if name in library.operators:
            pattern = call_pattern(expr, library.operators[name])
            if pattern is not None:
                # In a model this is one operator, or a view and an operator; the links are therefore left open.
                yield from _calls(pattern.operand, definitions, library)
            else:
                inner = arguments
        case _:
            return
    yield reader, name
    for part in inner:
        yield from _calls(part, definitions, library, name)

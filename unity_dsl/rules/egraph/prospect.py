"""What a graph must have for a rule to fit: looked at before the rule is prepared for matching, which takes longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...graph.graph import Node
from ...index.library import Library
from ...prove.translation.rule_forms import call_pattern
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ..graph_identity import leaves_as_is
from ..substitution import Substitution, outlined

VIEW = "rearrange"
Join = tuple[str, str]
"""An operator, and one of which it reads a result."""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A rule that is prepared for matching when a graph may have its left side."""

    rule: RuleDecl
    library: Library

    @cached_property
    def prepared(self) -> Substitution | None:
        """None for a rule that applies to no model, as far as is known before its sizes are looked at."""
        found = outlined(self.rule, self.library)
        return found if isinstance(found, Substitution) else None


@dataclass(frozen=True)
class Skeleton:
    """Operators, by name, and which read results of which."""

    operators: frozenset[str]
    joins: frozenset[Join]

    def within(self, other: Skeleton) -> bool:
        return self.operators <= other.operators and self.joins <= other.joins


def skeleton_of(nodes: Sequence[Node]) -> Skeleton:
    """Of operators of which several may make one value. What leaves a value as it is joins its neighbours, too."""
    makers: dict[str, list[Node]] = {}
    for node in nodes:
        for value in node.results:
            makers.setdefault(value.name, []).append(node)
    reached: dict[str, frozenset[str]] = {}

    def made_by(value: str) -> frozenset[str]:
        """The operators that make a value, and those before what leaves it as it is."""
        if value not in reached:
            reached[value] = frozenset()  # of itself: nothing more
            own = makers.get(value, ())
            before = (made_by(node.arguments[0].name) for node in own if leaves_as_is(node.instance))
            reached[value] = frozenset(node.instance.name for node in own).union(*before)
        return reached[value]

    joins = {(node.instance.name, maker) for node in nodes for value in node.arguments for maker in made_by(value.name)}
    return Skeleton(frozenset(node.instance.name for node in nodes), frozenset(joins))


@lru_cache(maxsize=4096)
def left_skeleton(rule: RuleDecl, library: Library) -> Skeleton:
    """What every graph has that a rule fits. Raises InputError for unknown operators."""
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
    """Every call of an expression, with the operator that reads it, if there is one."""
    while isinstance(expr, Name) and expr.name in definitions:
        expr = definitions[expr.name]
    inner: Iterable[GraphExpr] = ()
    match expr:
        case GraphView(operand=operand):
            name, inner = VIEW, (operand,)
        case GraphCall(name=name, degrees=None, arguments=arguments) if name in library.operators:
            pattern = call_pattern(expr, library.operators[name])
            if pattern is not None:
                # One operator in a model, or a view and an operator: what is read by which is left open.
                yield from _calls(pattern.operand, definitions, library)
            else:
                inner = arguments
        case _:
            return
    yield reader, name
    for part in inner:
        yield from _calls(part, definitions, library, name)

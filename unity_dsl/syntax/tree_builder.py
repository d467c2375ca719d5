"""Base of the builders that turn parse trees into syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from lark import Token, Tree

from .ast import Apply, Expr, Name, Number
from .ast.expressions import LARGEST_INTEGER
from .diagnostic import Label, fail
from .grammar import Node
from .rational import Rational, exact_number
from .span import Source, Span
from .token_lines import Layout, is_word, token_span

T = TypeVar("T")
LEAST_EXPONENT = -5000
"""The least exponent of a decimal literal, because its exact fraction has that many digits."""


class Builder:
    """One method per rule of the grammar, named after it; `build` dispatches. Trees keep brackets and keywords."""

    def __init__(self, layout: Layout) -> None:
        self.source: Source = layout.source
        self.docs = _doc_comments(layout)

    def build(self, node: Node) -> Any:
        """The syntax tree of a parse tree."""
        method: Callable[[Node], Any] = getattr(self, node.data)
        return method(node)

    def build_all(self, parts: Iterable[Node | Token | None]) -> list[Any]:
        """The syntax trees of the subtrees among these; tokens are skipped."""
        return [self.build(part) for part in parts if isinstance(part, Tree)]

    def span(self, node: Node) -> Span:
        """From the first character of a tree to its last, without the newline that ends a statement."""
        first, last = _first_token(node), _last_token(node)
        assert first is not None and last is not None, node.data
        return Span(self.source, first.start_pos or 0, last.end_pos or 0)

    def at(self, token: Token) -> Span:
        return token_span(self.source, token)

    def doc(self, node: Node) -> str:
        """The `##` lines directly above a declaration."""
        first = _first_token(node)
        return "" if first is None else self.docs.get(first.line or 0, "")

    def literal(self, token: Token, negative: bool = False) -> Rational:
        """The value of a number token. Raises E019 if it has none."""
        if token == "inf":
            return float("-inf") if negative else float("inf")
        if len(token) > 100:
            raise fail("E019", "a number of more than 100 characters", self.at(token))
        value: Rational = int(token) if token.isdigit() else float(token)
        if abs(value) == float("inf"):
            raise fail("E019", f"`{token}` is too large", self.at(token), help="infinity is written `inf`")
        if isinstance(value, float):
            if int(token.lower().partition("e")[2] or 0) < LEAST_EXPONENT:
                raise fail("E019", f"`{token}` is too small", self.at(token))
            exact = Fraction(str(token))
            value = value if exact_number(value) == exact else exact
        if isinstance(value, int) and value > LARGEST_INTEGER:
            help = f"as a real number it is written `{float(value)!r}`"
            raise fail("E019", f"`{token}` does not fit 64 bits", self.at(token), help=help)
        return -value if negative else value

    def distinct(self, names: Iterable[Token], what: str) -> None:
        """Raises E024 where a name is given twice in one list."""
        first: dict[str, Token] = {}
        for name in names:
            if name in first:
                note = Label(self.at(first[name]), "first here")
                raise fail("E024", f"{what} `{name}` is given twice", self.at(name), notes=[note])
            first[str(name)] = name

    # ---------------------------------------------------------------- rules of all grammars

    def number_literal(self, node: Node) -> Number:
        token = token_at(node, 0)
        return Number(self.literal(token), span=self.at(token))

    def name(self, node: Node) -> Name:
        token = token_at(node, 0)
        return Name(str(token), span=self.at(token))

    def group(self, node: Node) -> Any:
        """Parentheses leave no node, but the span of the enclosed expression includes them."""
        return replace(self.build(tree_at(node, 1)), span=self.span(node))

    def arithmetic(self, node: Node) -> Apply:
        left: Expr = self.build(tree_at(node, 0))
        right: Expr = self.build(tree_at(node, 2))
        return Apply(str(token_at(node, 1)), (left, right), span=self.span(node))

    def negation(self, node: Node) -> Expr:
        """A minus before a literal is part of the literal."""
        inner: Expr = self.build(tree_at(node, 1))
        if isinstance(inner, Number):
            return Number(-inner.value, span=self.span(node))
        return Apply("neg", (inner,), span=self.span(node))


def token_at(node: Node, position: int) -> Token:
    """A child that is a token."""
    child = node.children[position]
    assert isinstance(child, Token), (node.data, position)
    return child


def tree_at(node: Node, position: int) -> Node:
    """A child that is a subtree."""
    child = node.children[position]
    assert isinstance(child, Tree), (node.data, position)
    return child


def tokens_of(node: Node, kind: str) -> list[Token]:
    """The direct children that are tokens of a kind."""
    return [child for child in node.children if isinstance(child, Token) and child.type == kind]


def trees_of(node: Node, *rules: str) -> list[Node]:
    """The direct children that are subtrees of one of these rules."""
    return [child for child in node.children if isinstance(child, Tree) and child.data in rules]


def tree_of(node: Node, rule: str) -> Node | None:
    """The first direct child that is a subtree of a rule; None if there is none."""
    found = trees_of(node, rule)
    return found[0] if found else None


def _first_token(node: Node) -> Token | None:
    """The leftmost token that stands for text, not for layout; None for an empty rule."""
    for child in node.children:
        token = _first_token(child) if isinstance(child, Tree) else child
        if token is not None and is_word(token):
            return token
    return None


def _last_token(node: Node) -> Token | None:
    """The rightmost token that stands for text."""
    for child in reversed(node.children):
        token = _last_token(child) if isinstance(child, Tree) else child
        if token is not None and is_word(token):
            return token
    return None


def _doc_comments(layout: Layout) -> dict[int, str]:
    """The text of the unbroken run of `##` lines directly above a declaration, by the declaration's line number."""
    text = layout.source.text
    own_line = {
        comment.line or 0: str(comment)
        for comment in layout.comments
        if comment.startswith("##")
        and not text[(comment.start_pos or 0) - (comment.column or 1) + 1 : comment.start_pos].strip()
    }
    docs: dict[int, str] = {}
    run: list[str] = []
    for line in sorted(own_line):
        run = [*run, own_line[line]] if line - 1 in own_line else [own_line[line]]
        docs[line + 1] = "\n".join(part.removeprefix("##").removeprefix(" ").rstrip() for part in run)
    return docs

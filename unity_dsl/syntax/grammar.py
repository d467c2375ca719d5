"""The grammars of `grammar/*.lark`, built once per process, and the parsing of laid out text with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken

from ..resources import folder
from .tables import TABLES, build, load
from .token_lines import Layout

Node: TypeAlias = Tree[Token]


@dataclass(frozen=True)
class Refusal:
    """The place where a parse stopped: the token at `position`, the parser's states, and the terminals that it accepts
    there.
    """

    position: int
    token: Token
    states: tuple[int, ...]
    accepts: frozenset[str]


@cache
def grammar(language: str) -> Lark:
    """The parser of a language (`uop`, `udl`, `rules`)."""
    text = grammar_text(language)
    found = load(text, TABLES / f"{language}.json") or build(text)
    # `Lark.lex` uses this lexer; without it, it makes one for every text, and compiles its regular expressions.
    found.lexer = found._build_lexer()
    return found


def grammar_text(language: str) -> str:
    """The text of `grammar/<language>.lark`."""
    return (folder("grammar") / f"{language}.lark").read_text(encoding="utf-8")


def parse_tree(layout: Layout, language: str) -> Node | Refusal:
    """The concrete tree with every token, or the place where the grammar does not allow the text."""
    parser = grammar(language).parse_interactive("")
    end = len(layout.source.text)
    last = Token("$END", "", end, end_pos=end)
    for position, token in enumerate((*layout.tokens, last)):
        try:
            result: Node = parser.feed_token(token)
        except UnexpectedToken:  # the parser has already reduced, and is in the state that refuses the token
            states = tuple(parser.parser_state.state_stack)
            accepts: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
            return Refusal(position, token, states, frozenset(accepts))
    return result

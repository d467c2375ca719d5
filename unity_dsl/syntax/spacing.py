"""Spacing between the tokens of one logical line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lark import Token

REDUCTIONS = frozenset({"sum", "prod", "max", "min"})
TIGHT_BEFORE = frozenset({")", "]", ",", ";", ":", "..", "..~"})
TIGHT_AFTER = frozenset({"(", "[", "@"})
# After these a minus is a sign, and an opening bracket begins a value.
OPENING = frozenset(
    {"(", "[", ",", ";", ":", "=", "+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "->", "=>", "~"}
)


def space_tokens(tokens: Sequence[Token], language: str) -> list[int]:
    """For every token the number of spaces in front of it, 0 or 1."""
    first = tokens[0] if tokens else ""
    calls = first in ("torch", "numpy") if language == "uop" else first not in ("model", "block")
    state = _State(calls)
    return [state.step(token) for token in tokens]


@dataclass
class _State:
    """The meaning of the tokens so far. `value_next` says that a value is expected, so that `-` is a sign and `|`
    opens.
    """

    calls: bool  # `=` inside brackets gives an argument; otherwise it declares a default
    previous: Token | None = None
    brackets: list[bool] = field(default_factory=list)  # for every open one, whether it lists axes to reduce
    value_next: bool = True
    sign: bool = False  # the previous token was a sign
    bar: bool = False  # between the bars of a size
    angle: bool = False  # between the angles of int<n>
    angle_closed: bool = False  # the previous token was the second angle
    reduced: bool = False  # the previous token closed the axes of a reduction

    def step(self, token: Token) -> int:
        space = self._space(token)
        self._advance(token)
        return space

    def _space(self, token: Token) -> int:
        previous = self.previous
        if previous is None or self.sign or previous in TIGHT_AFTER or token in TIGHT_BEFORE:
            return 0
        if "=" in (token, previous):
            return int(not self._tight_equals())
        if token == "|" or previous == "|":
            return int(not self.bar)
        if self._is_angle(token) or (previous in ("<", ">") and (self.angle or self.angle_closed)):
            return 0
        if token in ("(", "["):
            return int(not self._attaches(token))
        return 1

    def _advance(self, token: Token) -> None:
        self.sign = token == "-" and self.value_next
        self.angle_closed = token == ">" and self.angle
        if self._is_angle(token):
            self.angle = not self.angle
        if token == "|":
            self.bar = not self.bar
        closes_reduction = False
        if token in ("(", "["):
            self.brackets.append(self._reduces())
        elif token in (")", "]"):
            closes_reduction = self.brackets.pop()
        self.reduced = closes_reduction
        keyword = token.type not in ("NAME", "DOTTED", "NUMBER") and token.isalpha() and token != "inf"
        self.value_next = token in OPENING or closes_reduction or keyword or (token == "|" and self.bar)
        self.previous = token

    def _tight_equals(self) -> bool:
        """`dim=1` in a call and in a pattern; `p = 0.1` where something is declared or assigned."""
        return self.calls and bool(self.brackets)

    def _is_angle(self, token: Token) -> bool:
        return (token == "<" and self.previous == "int") or (token == ">" and self.angle)

    def _attaches(self, bracket: Token) -> bool:
        """Whether a bracket belongs to the word in front of it: a call, a read, a pattern, a shape."""
        previous = self.previous
        assert previous is not None
        if previous.type in ("NAME", "DOTTED") or previous in ("uniform", "select") or previous in REDUCTIONS:
            return True
        return previous in (")", "]") and not self.reduced

    def _reduces(self) -> bool:
        """Whether the word before is the keyword of a reduction. In the other languages these are plain names."""
        return self.previous is not None and self.previous.type != "NAME" and self.previous in REDUCTIONS

"""Parses lines of an imported model: what each makes and reads, its settings, and its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .formulas import Formula, number, tokens


@dataclass(frozen=True)
class Quantity:
    """A number of a text, written as such or as a formula of sizes."""

    value: float
    text: str


Token = str | Quantity
DECLARING = ("weight", "buffer")


@dataclass(frozen=True)
class Line:
    """One line: its first `word` unless it is an assignment, the names that it makes, and the `body` after them. For a
    call, `operator` is what is called, `body` its operands, and `settings` its numbers by name.

    `path` is the module of a statement, or the first layer of a repeat. `scope` is the number of the repeat that
    contains the line, or 0.
    """

    word: str
    targets: tuple[str, ...]
    body: tuple[Token, ...]
    path: tuple[str, ...] = ()
    scope: int = 0
    operator: str = ""
    settings: Mapping[str, tuple[Token, ...]] = field(default_factory=dict)

    @property
    def is_statement(self) -> bool:
        return self.word in ("", "update") and bool(self.body or self.operator)

    @property
    def is_empty(self) -> bool:
        return not (self.word or self.targets or self.body or self.operator)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names that its body reads, in order."""
        if self.word not in ("", "update", "loss", "output"):
            return ()
        return tuple(str(self.body[place]) for place in _places(self.body))

    def reading(self, names: Mapping[str, str]) -> Line:
        """The line with other names for what it reads."""
        return replace(self, body=renamed(self.body, names)) if {*self.reads} & {*names} else self

    def text(self, usual: Mapping[str, Mapping[str, str]]) -> str:
        """The line as text, without settings that are `usual` for the block that it calls."""
        body = joined(self.body)
        if self.operator:
            known = usual.get(self.operator)
            texts = {key: joined(value) for key, value in self.settings.items()}
            told = ", ".join(f"{key}={text}" for key, text in texts.items() if (known or {}).get(key) != text)
            if known is None:
                body = f"{self.operator}({body}{f'; {told}' if told else ''})"
            else:
                body = f"{self.operator}{f'[{told}]' if told else ''}({body})"
        made = ", ".join(self.targets)
        start = made if self.word in (*DECLARING, "input") else f"{made} = " if made else ""
        return ("  " if self.scope else "") + (f"{self.word} " if self.word else "") + start + body


def renamed(body: Sequence[Token], names: Mapping[str, str]) -> tuple[Token, ...]:
    """A body with other names for what it reads."""
    read = set(_places(body))
    return tuple(
        names.get(token, token) if place in read and isinstance(token, str) else token
        for place, token in enumerate(body)
    )


def _places(body: Sequence[Token]) -> Iterator[int]:
    """The positions of tensor names in a body: words that are not called, outside brackets, which hold axes. It stops
    at `as`.
    """
    depth = 0
    for place, token in enumerate(body):
        if token == "as":
            return
        depth += (token == "[") - (token == "]")
        called = place + 1 < len(body) and body[place + 1] == "("
        if isinstance(token, str) and depth == 0 and token.isidentifier() and not called:
            yield place


def joined(body: Sequence[Token]) -> str:
    """The text of a body, with formulas in parentheses where they are operands of another."""
    texts = [token if isinstance(token, str) else token.text for token in body]
    for place, token in enumerate(body):
        if isinstance(token, Quantity) and number(token.text) is None and not token.text.isidentifier():
            before, after = "".join(texts[:place]).rstrip()[-1:], "".join(texts[place + 1 :]).lstrip()[:1]
            if {before, after} & {*"+-*/"}:
                texts[place] = f"({token.text})"
    return "".join(texts)


def lines_of(
    texts: Sequence[str], paths: Sequence[tuple[str, ...]], formulas: Mapping[tuple[int, int], Formula]
) -> list[Line]:
    """The lines of a model's text with their module paths, and with formulas by line and token."""
    found: list[Line] = []
    scopes = 0
    for row, (text, path) in enumerate(zip(texts, paths, strict=True)):
        parts: list[Token] = []
        for place, token in enumerate(tokens(text)):
            value, formula = number(token), formulas.get((row, place))
            parts.append(token if value is None else Quantity(value, formula.text("/") if formula else token))
        inside = bool(parts) and isinstance(parts[0], str) and parts[0].isspace()
        line = _line(parts[1:] if inside else parts, path, scopes if inside else 0)
        scopes += line.word == "repeat"
        found.append(line)
    return found


def _line(parts: Sequence[Token], path: tuple[str, ...], scope: int) -> Line:
    word = parts[0] if parts and isinstance(parts[0], str) else ""
    if word in (*DECLARING, "input"):
        return Line(word, (str(parts[2]),), tuple(parts[3:]), path, scope)
    if word in ("update", "loss", "output", "repeat"):
        return Line(word, (), tuple(parts[2:]), path, scope)
    if "=" not in parts:
        return Line("", (), tuple(parts), path, scope)
    equals = parts.index("=")
    targets = tuple(part for part in parts[:equals] if isinstance(part, str) and part.isidentifier())
    body = tuple(parts[equals + 2 :])
    if len(body) < 3 or body[-1] != ")" or not isinstance(body[0], str):
        return Line("", targets, body, path, scope)
    if body[1] == "(":
        operands, *told = _divided(body[2:-1], ";")
        settings = dict(_setting(part) for part in _divided(told[0], ",")) if told else {}
        return Line("", targets, operands, path, scope, body[0], settings)
    close = body.index("]") if body[1] == "[" else 0
    if close and body[close + 1] == "(":
        settings = dict(_setting(part) for part in _divided(body[2:close], ","))
        return Line("", targets, body[close + 2 : -1], path, scope, body[0], settings)
    return Line("", targets, body, path, scope)


def _divided(parts: Sequence[Token], mark: str) -> list[tuple[Token, ...]]:
    """The tokens between marks outside brackets."""
    found, depth = [list[Token]()], 0
    for part in parts:
        depth += (part in ("(", "[")) - (part in (")", "]"))
        if part == mark and depth == 0:
            found.append([])
        else:
            found[-1].append(part)
    return [tuple(some) for some in found]


def _setting(parts: Sequence[Token]) -> tuple[str, tuple[Token, ...]]:
    bare = [part for part in parts if not (isinstance(part, str) and part.isspace())]
    start = parts.index(bare[0])
    return str(bare[0]), tuple(parts[start + 2 :])

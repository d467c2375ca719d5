"""Parse tables of the grammars as data, which load faster than the grammars can be built.

`parse_tables/*.json` hold lark's tables for `grammar/*.lark`, with the hash of the grammar and the version of lark. If
either differs, the grammar is built from its text: a stale table costs time but is never used. A test keeps them
fresh; `pytest tests/syntax --update-golden` writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token
from lark.grammar import Rule
from lark.lark import PostLex
from lark.lexer import TerminalDef

_SHIFT = 0  # lark's number for this action; the other action, 1, is the reduction by a rule
TABLES = Path(__file__).resolve().parent / "parse_tables"


class _KeepLayout(PostLex):
    """Keeps the terminals that only `layout` uses; lark drops those that no rule mentions."""

    always_accept = ("NEWLINE", "COMMENT")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def build(text: str, *, strict: bool = False) -> Lark:
    """The parser of a grammar's text. With `strict`, conflicts are errors (needs the package interegular)."""
    return Lark(
        text, start="file", parser="lalr", lexer="basic", keep_all_tokens=True, postlex=_KeepLayout(), strict=strict
    )


def dump(text: str) -> str:
    """The table of a grammar's text, as JSON. The same text always gives the same table."""
    data, memo = build(text).memo_serialize([TerminalDef, Rule])
    data["options"]["postlex"] = None
    _renumber(data["parser"]["parser"])
    content = {"key": key(text), "data": data, "memo": memo}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True) + "\n"


def _renumber(parser: dict[str, Any]) -> None:
    """Orders symbols alphabetically, and states as they are reached from the start: lark's own numbers vary between
    runs.
    """
    symbols: list[str] = sorted(parser["tokens"].values())
    rows: dict[int, dict[str, tuple[int, Any]]] = {
        state: {parser["tokens"][symbol]: action for symbol, action in row.items()}
        for state, row in parser["states"].items()
    }
    order = list(parser["start_states"].values())
    met = set(order)
    for state in order:  # grows while it is walked
        for _, (kind, target) in sorted(rows[state].items(), key=itemgetter(0)):
            if kind == _SHIFT and target not in met:
                met.add(target)
                order.append(target)
    number = {state: position for position, state in enumerate(order)}
    parser["tokens"] = dict(enumerate(symbols))
    parser["states"] = {
        number[state]: {
            symbols.index(name): (kind, number[target] if kind == _SHIFT else target)
            for name, (kind, target) in sorted(rows[state].items(), key=itemgetter(0))
        }
        for state in order
    }
    for ends in ("start_states", "end_states"):
        parser[ends] = {rule: number[state] for rule, state in parser[ends].items()}


def load(text: str, table: Path) -> Lark | None:
    """The parser of a table; None if the table was not made from this text by this version of lark."""
    if not table.is_file():
        return None
    content = json.loads(table.read_text(encoding="utf-8"))
    if content["key"] != key(text):
        return None
    # JSON has no whole numbers as keys.
    parser = content["data"]["parser"]["parser"]
    parser["states"] = {int(state): actions for state, actions in parser["states"].items()}
    memo = {int(number): item for number, item in content["memo"].items()}
    return Lark.__new__(Lark)._load({"data": content["data"], "memo": memo}, postlex=_KeepLayout())


def key(text: str) -> str:
    """The version of lark and the hash of the text, which a table depends on."""
    return f"lark {lark.__version__} {hashlib.sha256(text.encode()).hexdigest()}"

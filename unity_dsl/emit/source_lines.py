"""Lines of emitted code: comments placed, long statements broken at brackets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .program_names import comment_text

WIDTH = 100
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def statement(code: str, comment: str = "", indent: str = "") -> list[str]:
    """One statement with its comment: on the same line if both fit, else above."""
    note = f"# {comment_text(comment)}" if comment else ""
    beside = f"{indent}{code}  {note}" if note else f"{indent}{code}"
    if len(beside) <= WIDTH:
        return [beside]
    return [*above(comment, indent), *broken(code, indent)]


def above(comment: str, indent: str = "") -> list[str]:
    """A comment on lines of its own."""
    text = comment_text(comment)
    if len(indent) + len(text) + 2 <= WIDTH:
        return [f"{indent}# {text}"] if text else []
    lines: list[str] = []
    current = ""
    for word in text.split():
        if current and len(indent) + len(current) + len(word) + 3 > WIDTH:
            lines.append(f"{indent}# {current}")
            current = ""
        current = f"{current} {word}".strip()
    return [*lines, f"{indent}# {current}"]


def block(lines: Sequence[str], comment: str, indent: str = "") -> list[str]:
    """Several statements under one comment, or a single one with the comment on its line."""
    if len(lines) == 1:
        return statement(lines[0], comment, indent)
    found = above(comment, indent)
    for line in lines:
        code = line.lstrip(" ")
        found += broken(code, indent + " " * (len(line) - len(code)))
    return found


def returning(lines: Sequence[str], results: Sequence[str]) -> list[str]:
    """The lines of a function that returns these variables. If the last statement makes a single one, its value is
    returned.
    """
    start = max((place for place, line in enumerate(lines) if line[:1].isidentifier()), default=0)
    target = f"{results[0]} = "
    if len(results) > 1 or not lines or not lines[start].startswith(target):
        return [*lines, *statement(f"return {', '.join(results)}")]
    first = f"return {lines[start].removeprefix(target)}"
    if len(first) <= WIDTH:
        return [*lines[:start], first, *lines[start + 1 :]]
    code, _, comment = first.partition("  # ")
    return [*lines[:start], *statement(code, comment), *lines[start + 1 :]]


def broken(code: str, indent: str = "") -> list[str]:
    """A statement in lines no longer than WIDTH where brackets allow it: arguments on lines of their own."""
    if len(indent) + len(code) <= WIDTH:
        return [indent + code]
    bracket = _outermost(code)
    if bracket is None:
        return [indent + code]
    start, stop = bracket
    inner = indent + "    "
    clauses = list(_split(code[start + 1 : stop], " for "))
    if len(clauses) > 1:
        body = broken(clauses[0], inner) + [f"{inner}for {clause}" for clause in clauses[1:]]
        return [f"{indent}{code[: start + 1]}", *body, f"{indent}{code[stop:]}"]
    parts = list(_split(code[start + 1 : stop], ","))
    joined = inner + ", ".join(parts)
    single = len(parts) == 1 and code[start] == "(" and not code[start + 1 : stop].rstrip().endswith(",")
    if len(joined) <= WIDTH:
        body = [joined]
    else:
        body = [line for part in parts for line in broken(part + ("" if single else ","), inner)]
    tail = code[stop:]
    comma = (
        "," if code[start + 1 : stop].rstrip().endswith(",") and len(body) == 1 and not body[0].endswith(",") else ""
    )
    body[-1] += comma
    return [f"{indent}{code[: start + 1]}", *body, f"{indent}{tail}"]


def _outermost(code: str) -> tuple[int, int] | None:
    """The places of the longest pair of brackets that no other encloses."""
    best: tuple[int, int] | None = None
    depth, start = 0, 0
    for place, char in _plain(code):
        if char in "([{":
            if depth == 0:
                start = place
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0 and place > start + 1 and (best is None or place - start > best[1] - best[0]):
                best = (start, place)
    return best


def _split(text: str, separator: str) -> Iterable[str]:
    """The parts between separators that no bracket encloses."""
    depth, start = 0, 0
    for place, char in _plain(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and place >= start and text.startswith(separator, place):
            yield text[start:place].strip()
            start = place + len(separator)
    if text[start:].strip():
        yield text[start:].strip()


def _plain(text: str) -> Iterable[tuple[int, str]]:
    """Characters that are not within a string."""
    quote = ""
    escaped = False
    for place, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        else:
            yield place, char

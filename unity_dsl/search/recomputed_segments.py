"""Which segments a user wants the backward pass to recompute."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..graph.graph import Model, Segment
from ..syntax.diagnostic import fail, suggest
from .accounting.recomputation import outermost, segments

AUTOMATIC, ALL, NONE = "auto", "all", "none"
"""Recompute where memory asks for it; all segments that are in no other; none."""


@dataclass(frozen=True)
class Recompute:
    """The paths of segments that the backward pass recomputes, and how many of their last iterations it does not."""

    paths: frozenset[str] = frozenset()
    kept: Mapping[str, int] = field(default_factory=dict)


def parse_recompute(text: str, model: Model) -> Recompute | None:
    """The segments that `layer,head.step:12`, or a word, asks to recompute; the latter in its first 12 iterations only.
    None where the search is to choose.

    Raises E315 for a name of no segment, for more iterations than it has, and where there is no backward pass.
    """
    if text == AUTOMATIC:
        return None
    if text == NONE:
        return Recompute()
    if model.loss is None:
        raise fail("E315", f"`{model.name}` has no loss: no backward pass runs anything again")
    return parse_segments(text, model, dict(segments(model.graph)), outermost(model.graph), "E315")


def parse_segments(
    text: str, model: Model, known: Mapping[str, Segment], every: Collection[str], code: str
) -> Recompute:
    """The `known` segments that a text names, or `every` one for `all`, and how many of their last iterations are left
    out. Raises the code for a name of no segment, or one given twice, and for more iterations than there are.
    """
    if text == ALL:
        return Recompute(frozenset(every))
    kept: dict[str, int] = {}
    for word in text.split(","):
        name, colon, number = (part.strip() for part in word.partition(":"))
        if name in (ALL, NONE, AUTOMATIC) and name not in known:
            raise fail(code, f"`{name}` in `{text}` cannot be combined with names")
        if name not in known:
            listed = f"there are {', '.join(f'`{path}`' for path in known)}" if known else "the model has none"
            message = f"no repeat, scan or cond of `{model.name}` is called `{name}`"
            raise fail(code, message, help=suggest(name, (*known, ALL, NONE, AUTOMATIC)) or listed)
        if name in kept:
            raise fail(code, f"`{name}` is given twice in `{text}`")
        kept[name] = known[name].count - _iterations(name, number, known[name], code) if colon else 0
    return Recompute(frozenset(kept), {name: count for name, count in kept.items() if count})


def _iterations(name: str, number: str, segment: Segment, code: str) -> int:
    """How many first iterations of a segment are meant. Raises the code."""
    if not number.isdecimal() or not 1 <= int(number) <= segment.count:
        message = f"`{name}:{number}` is no number of iterations: `{name}` has {segment.count}"
        raise fail(code, message, help=f"`{name}:{segment.count}` or `{name}` stands for all of them")
    return int(number)

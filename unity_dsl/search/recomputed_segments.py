"""Which segments a user wants the backward pass to run again."""

from __future__ import annotations

from ..graph.graph import Model
from ..syntax.diagnostic import fail, suggest
from .accounting.recomputation import outermost, segments

AUTOMATIC, ALL, NONE = "auto", "all", "none"
"""Where memory asks for it; all that are in no other; nowhere."""


def parse_recompute(text: str, model: Model) -> frozenset[str] | None:
    """The paths of segments in `layer,head.step`, or what a word stands for; None where the search is to choose.

    Raises E315 for a name of no segment, and where there is no backward pass.
    """
    if text == AUTOMATIC:
        return None
    if text == NONE:
        return frozenset()
    if model.loss is None:
        raise fail("E315", f"`{model.name}` has no loss: no backward pass runs anything again")
    known = [path for path, _ in segments(model.graph)]
    if text == ALL:
        return frozenset(outermost(model.graph))
    found = [name.strip() for name in text.split(",")]
    for name in found:
        if name not in known:
            listed = f"there are {', '.join(f'`{path}`' for path in known)}" if known else "the model has none"
            message = f"no repeat, scan or cond of `{model.name}` is called `{name}`"
            raise fail("E315", message, help=suggest(name, (*known, ALL, NONE, AUTOMATIC)) or listed)
    return frozenset(found)

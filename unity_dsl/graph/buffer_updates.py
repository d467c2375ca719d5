"""Buffer updates, `update m = value`: what a buffer is from the next step on."""

from __future__ import annotations

from ..syntax.ast import Name, UpdateStatement
from ..syntax.diagnostic import Label, fail
from ..syntax.span import Span
from .expression import Place, tensor
from .graph import Update, Value, type_text


def add_update(place: Place, statement: UpdateStatement) -> None:
    """Add the update of a buffer to the graph.

    Raises E230 (no buffer of this graph), E231 (a second time) or E232 (another type).
    """
    buffer = _updated(place, statement)
    for other in place.draft.updates:
        if other.buffer is buffer:
            message = f"`{buffer.name}` is updated twice in one step"
            raise fail("E231", message, statement.span, notes=_note(other.span, "the first one is here"))
    if buffer.is_cast:
        notes = _note(buffer.span, f"it is stored in {buffer.stored_dtype}")
        message = f"buffer `{buffer.name}` is narrower than what it would become, {buffer.dtype}"
        help = f"what is updated is stored in {buffer.dtype}: a small change would be lost"
        raise fail("E232", message, statement.span, help=help, notes=notes)
    value = tensor(place, statement.value, buffer.name)
    if type_text(value) != type_text(buffer):
        notes = _note(buffer.span, f"`{buffer.name}` is {type_text(buffer)}")
        message = f"buffer `{buffer.name}` is {type_text(buffer)}, its new value {type_text(value)}"
        raise fail("E232", message, statement.value.span, notes=notes)
    place.draft.updates.append(Update(buffer, value, statement.span))


def _updated(place: Place, statement: UpdateStatement) -> Value:
    """The buffer, which the graph of the statement stores itself."""
    name, draft = statement.target, place.draft
    found = place.scope.look_up(Name(name, span=statement.span))
    if any(buffer.value is found for buffer in draft.buffers):
        assert isinstance(found, Value)
        return found
    around = draft.around
    while around is not None and isinstance(found, Value):
        if any(buffer.value is found for buffer in around.buffers):
            message = f"`{name}` is stored outside the body: every iteration would update it"
            help = "declare it in a `repeat`, once per iteration, or carry a tensor and update the buffer afterwards"
            raise fail("E230", message, statement.span, help=help, notes=_note(found.span, "it is declared here"))
        around = around.around
    help = f"declare `buffer {name}: … ~ zeros`, or assign: `{name} = …`"
    raise fail("E230", f"`{name}` is no buffer", statement.span, help=help)


def _note(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)

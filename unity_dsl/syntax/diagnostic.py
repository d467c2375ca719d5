"""Diagnostics and InputError: how the library reports faults in its input.

Faults are raised. Warnings, whose codes begin with W, are handed on with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from .span import Span


@dataclass(frozen=True)
class Label:
    """A second place that explains the first: where the other shape came from."""

    span: Span
    text: str


@dataclass(frozen=True)
class Diagnostic:
    """One fault in the user's input, or a warning.

    `code` is a key of `codes.CODES`; `label` stands under the caret; `help` says what to do.
    """

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    help: str = ""
    notes: tuple[Label, ...] = ()


class InputError(Exception):
    """Raised by every stage for a fault in the user's input; carries one diagnostic.

    `more` has the diagnostics of further faults in the same text.
    """

    def __init__(self, diagnostic: Diagnostic, more: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(f"{diagnostic.span or 'input'}: {diagnostic.code}: {diagnostic.message}")
        self.diagnostic = diagnostic
        self.more = more

    def __reduce__(self) -> tuple[type[InputError], tuple[Diagnostic, tuple[Diagnostic, ...]]]:
        return InputError, (self.diagnostic, self.more)  # pickled by its constructor arguments


def gathered(faults: Sequence[InputError]) -> InputError:
    """These faults, of which there is at least one, as one exception."""
    first, *others = (one for fault in faults for one in (fault.diagnostic, *fault.more))
    return InputError(first, tuple(others))


def fail(
    code: str, message: str, span: Span | None = None, *, label: str = "", help: str = "", notes: Iterable[Label] = ()
) -> InputError:
    """The exception to raise: `raise fail("E012", …, span)`."""
    return InputError(Diagnostic(code, message, span, label, help, tuple(notes)))


def warn(code: str, message: str, span: Span | None = None, *, label: str = "", help: str = "") -> Diagnostic:
    """A warning to hand on: `warn("W301", …, span)`."""
    return Diagnostic(code, message, span, label, help)


def suggest(name: str, candidates: Iterable[str]) -> str:
    """`did you mean `i`?` for the nearest candidate, or an empty text."""
    close = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def first_of(names: Sequence[str], most: int) -> str:
    """The first names of many, and the number of the others: `a, b and 3 more`. A single other name is listed too."""
    more = len(names) - most
    return ", ".join(names) if more < 2 else f"{', '.join(names[:most])} and {more} more"

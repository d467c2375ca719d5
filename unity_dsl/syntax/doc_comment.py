"""What stands in doc comments, the `##` lines above a declaration."""

from __future__ import annotations


def first_sentence(doc: str) -> str:
    """The first sentence of a text, whatever lines it is broken into; all of a text that is none."""
    first, more, _ = " ".join(doc.split()).partition(". ")
    return f"{first}." if more else first

"""Reads doc comments, the `##` lines above a declaration."""

from __future__ import annotations


def first_sentence(doc: str) -> str:
    """The first sentence of a text, whatever its line breaks; the whole text if no sentence ends in it."""
    first, more, _ = " ".join(doc.split()).partition(". ")
    return f"{first}." if more else first

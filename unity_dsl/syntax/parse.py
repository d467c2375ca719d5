"""Parses a text to the tree of its language, or to the diagnostic of its first fault."""

from __future__ import annotations

from .grammar import Node, Refusal, grammar, parse_tree
from .span import Source, Span
from .token_lines import Layout, lay_out


def parse(source: Source, language: str, part: Span | None = None) -> tuple[Layout, Node]:
    """The layout and the tree of a text, or of the whole lines `part` of it. Raises InputError, E005 to E029."""
    layout = lay_out(source, grammar(language), part)
    tree = parse_tree(layout, language)
    if isinstance(tree, Refusal):
        from .diagnose import diagnose  # imported late: only a faulty text needs it

        raise diagnose(tree, layout, language)
    return layout, tree

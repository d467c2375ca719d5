"""Contexts: the operands of graphs, independent of the names of letters and of the order of operands."""

from __future__ import annotations

import random
from dataclasses import replace

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.rules.enumeration.context import Context, context_key, theme_contexts, totals_text
from unity_dsl.rules.enumeration.dimensions import letters_of, named
from unity_dsl.rules.enumeration.signature_table import load_table, read_table
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
GROUPED = """
[grouped]
operators = 3
signatures = [
  "(x: [n, 2 * i, h + r - 1, w + s - 1], k: [2 * o, i, r, s]) conv2d(x, k; groups=2)",
  "(x: [n, a, h, w], y: [n, b, h, w]) concat(x, y; dim=1)",
  "(x: [n, a + b, h, w]) slice(x; dim=1, start=0, stop=a), slice(x; dim=1, start=a, stop=a + b)",
]
special = [
  "(x: [n, a, h, w], y: [n, a, h, w]) concat(x, y; dim=1)",
]
"""
SEED = 7


def contexts_of(text: str) -> tuple[Context, ...]:
    table = read_table(Source("table.toml", text))
    return tuple(context for theme in table.themes for context in theme_contexts(theme, LIBRARY, table))


def test_operands_decide_where_their_dimensions_are_taken_apart() -> None:
    """Channel groups are concatenated and split: `2 * i` is unified with `a + b`, and neither is part of the other."""
    found = contexts_of(GROUPED)
    assert any("2*" in context.text for context in found)
    for context in found:
        parts = [part for tensor in context.inputs for part in tensor.parts]
        known = {name for part in parts for name in letters_of(part.total)}
        assert all(known.issuperset(part.letters) for part in parts), context.text


def test_a_context_is_found_under_one_name_and_in_one_order() -> None:
    """Two contexts that differ only in the names of letters and the order of operands are the same."""
    table = load_table(folder("rules") / "signatures.toml")
    themes = [theme for theme in table.themes if theme.name in ("blocks", "views", "images")]
    found = [context for theme in themes for context in theme_contexts(replace(theme, operators=2), LIBRARY, table)]
    draw = random.Random(SEED)
    for context in found:
        letters = sorted({name for tensor in context.inputs for part in tensor.parts for name in part.letters})
        names = draw.sample("abcdefghijklmnoqrstuvwxyz", len(letters))
        renamed = {old: named(new) for old, new in zip(letters, names, strict=True)}
        others = [tensor.replaced(renamed) for tensor in context.inputs]
        assert totals_text(others) == totals_text(context.inputs), f"seed {SEED}: {context.text}"
        draw.shuffle(others)
        assert context_key(others) == context_key(context.inputs), f"seed {SEED}: {context.text}"
    assert len({(context.theme, context_key(context.inputs)) for context in found}) == len(found)


def test_degrees_keep_their_names() -> None:
    """A dimension that is divided over devices is a multiple of their number, not a product of arbitrary sizes."""
    table = load_table(folder("rules") / "signatures.toml")
    (theme,) = (theme for theme in table.themes if theme.name == "devices")
    texts = {context.text for context in theme_contexts(replace(theme, operators=2), LIBRARY, table)}
    assert {"[m*p, n]", "[m, n*p]", "[@p, m, n]"} <= texts

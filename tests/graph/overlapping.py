"""A user's own cuts, as their `.uop` text, for tests of layouts that overlap or interleave."""

from __future__ import annotations

from unity_dsl.index.library import Library, library_of, library_sources
from unity_dsl.syntax.span import Source

HALO = """
## Device @p gets its slice and `before` / `after` positions of its neighbours, zeros outside.
parallel halo[p; dim, before, after](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + before + after
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - before, g.. else 0]
"""

STRIDED = """
## Blocks of `block` positions dealt out in turn: device @p gets every |p|-th block.
parallel strided[p; dim, block](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., (j // block * |p| + @p) * block + j % block, g..]
"""

CYCLIC = """
## Deals positions of dimension `dim` out like cards: device @p gets every |p|-th.
parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]
"""


def library_with(*texts: str) -> Library:
    """The shipped declarations and these."""
    return library_of([*library_sources(), *(Source(f"own{i}.uop", text) for i, text in enumerate(texts))])

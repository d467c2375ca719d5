"""User-defined partitions and operators with neighbourhood reads (halos), as `.uop` text."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
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

WINDOWED = """
## Sums over windows of the last axis, zeros outside.
op conv1d(x: [n, c, l], w: [o, c, r]; stride = 1, pad = 0) -> y: [n, o, q]
  where q == (l + 2 * pad - r) // stride + 1
  y[n, o, q] = sum(c, r) x[n, c, q * stride + r - pad else 0] * w[o, c, r]

## The greatest of every window, of what lies inside.
op pool(x: [b.., l]; size, stride, pad = 0) -> y: [b.., q]
  where r == size, q == (l + 2 * pad - size) // stride + 1
  y[b.., q] = max(r) x[b.., q * stride + r - pad else -inf]

## Each position with its two neighbours; outside of the axis everything is 1.
op blur(x: [b.., l]) -> y: [b.., l]
  y[b.., i] = x[b.., i - 1 else 1] / 4 + x[b.., i] / 2 + x[b.., i + 1 else 1] / 4
"""


def library_with(*texts: str) -> Library:
    """These declarations and the shipped ones, except those of the same names. Facts of the shipped ones count as
    tried.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unity_dsl.index.declarations.loading.facts_tried", lambda *_: True)
        return library_of(sources_with(Source(f"own{i}.uop", text) for i, text in enumerate(texts)))


def sources_with(own: Iterable[Source]) -> list[Source]:
    """These texts, and the shipped ones without the names that these texts declare. A user can thus replace a
    declaration.
    """
    own = list(own)
    names = {name for source in own for name in re.findall(r"^(?:op|parallel) (\w+)", source.text, re.MULTILINE)}
    return [*(without(source, names) for source in library_sources()), *own]


def without(source: Source, names: Iterable[str]) -> Source:
    """A text without the operators and parallel ops of these names, including their documentation and bodies."""
    text = source.text
    for name in names:
        text = re.sub(rf"^(##.*\n)*(op|parallel) {name}[\[(].*\n( .*\n)*", "", text, flags=re.MULTILINE)
    return Source(source.name, text)

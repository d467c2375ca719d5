"""Which declared partitions assign every position to exactly one device: decided from strides, or by counting."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.graph.declared_slices import bijective, cut_at
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.syntax.span import Source

OPERATORS = """
parallel interleave[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]

parallel backwards[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., |d| - 1 - @p * |e| - j, g..]

parallel skewed[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., @p + j, g..]

parallel twice[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == e
  y[@p, f.., j, g..] = x[f.., j, g..]
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of([*library_sources(), Source("own.uop", OPERATORS)])


@pytest.mark.parametrize("name", ["partition", "interleave", "backwards", "skewed", "twice"])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("extent", [1, 2, 5, 6, 12])
def test_a_cut_is_bijective_if_every_position_is_on_one_device(
    name: str, degree: int, extent: int, library: Library
) -> None:
    declaration = library.parallels[name]
    cut = cut_at(declaration, degree, extent)
    counted = False
    if cut is not None:
        counted = np.array_equal(np.sort(cut.positions(degree), axis=None), np.arange(extent))
    assert bijective(declaration, degree, extent) == counted


def test_a_dimension_may_be_longer_than_memory(library: Library) -> None:
    assert bijective(library.parallels["partition"], 8, 2**60)
    assert bijective(library.parallels["interleave"], 8, 2**60)
    assert not bijective(library.parallels["partition"], 7, 2**60)

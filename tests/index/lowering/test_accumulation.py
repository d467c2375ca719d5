"""Where operators would accumulate in a narrow type: in one native call, in several, and in statements."""

from __future__ import annotations

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.lowering.accumulation import NarrowSums, narrow_sums
from unity_dsl.syntax.span import Source

STATEMENTS = """
op scaled(x: [b, c], gain: [c], bias: [c]) -> y: [b, c]
  m[b] = sum(c) x[b, c] / |c|
  v[b] = sum(c) (x[b, c] - m[b]) * (x[b, c] - m[b]) / |c|
  y[b, c] = 2 * ((x[b, c] - m[b]) * rsqrt(v[b] + 1e-5) * gain[c] + bias[c])
"""
ONE = "  torch: torch.mul(F.layer_norm(x, [|c|], gain, bias, 1e-5), 2)\n"
SEVERAL = "  torch:\n    n = F.layer_norm(x, [|c|], gain, bias, 1e-5)\n    y = torch.mul(n, 2)\n"


@pytest.mark.parametrize("torch", [ONE, SEVERAL], ids=["one call", "several calls"])
def test_a_call_that_cpus_add_up_narrowly_is_found_wherever_it_stands(torch: str) -> None:
    """tests/program/test_long_sums.py shows this for torch on a CPU."""
    library = library_of([*library_sources(()), Source("scaled.uop", STATEMENTS.lstrip() + torch)])
    scaled = instantiate(library.operators["scaled"], [Shape((3, 4)), Shape((4,)), Shape((4,))], {})
    assert narrow_sums(scaled, True, library) is NarrowSums.ON_CPUS
    assert narrow_sums(scaled, False, library) is NarrowSums.ANYWHERE

"""Sizes at which an operator is examined, if its conditions leave few."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.instantiation.representative import representative

DECLARATIONS = {
    "a number": "op f(x: [b.., h], w: [u, h]) -> y: [b.., h]\n  where u == 32\n  y[b.., h] = x[b.., h] + w[0, h]\n",
    "a square": "op f(x: [b, s]; side) -> y: [b]\n  where n == side, s == n * n\n  y[b] = sum(s) x[b, s]\n",
    "an even attribute": (
        "op f(t: int<n>[b]; width) -> y: [b, d]\n  where d == width, e == d // 2, d == 2 * e\n"
        "  y[b, d] = select(d < |e|, t[b] * 2, t[b] * d)\n"
    ),
    "another size": "op f(x: [b, s], w: [t]) -> y: [b]\n  where t == 3 * s - 1\n  y[b] = sum(s) x[b, s] * w[s]\n",
    "a quotient by zero": "op f(x: [b, s]; k) -> y: [b]\n  where s == 12 // (k - 1)\n  y[b] = sum(s) x[b, s]\n",
}
WANTED = {"a number": ("u", 32), "a square": ("s", 9), "an even attribute": ("d", 2), "a quotient by zero": ("s", 6)}


@pytest.mark.parametrize("case", DECLARATIONS)
def test_sizes_that_conditions_determine(case: str, tmp_path: Path) -> None:
    (tmp_path / "own.uop").write_text(DECLARATIONS[case])
    sizes = representative(load_library([tmp_path]).operators["f"]).instance.sizes
    if case == "another size":
        assert sizes["t"] == 3 * sizes["s"] - 1
    else:
        name, size = WANTED[case]
        assert sizes[name] == size

"""Attributes, sizes, integer ranges and small operands at which a wrong declaration differs from a right one.

Each wrong declaration is paired with a right one that differs from it in a number or a word.
"""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.index.declarations.border_instances import BorderInstance, Untried, border_instances
from unity_dsl.index.library import Library
from unity_dsl.syntax.diagnostic import InputError

from ..declare import declare, operator

SAME, NONE = "torch.mul(x, 1)", "torch.mul(x, 0)"


def op(statement: str, torch: str = SAME, header: str = "(x: [n]; k = 3) -> y: [n]", where: str = "") -> str:
    condition = f"  where {where}\n" if where else ""
    return f"op tried{header}\n{condition}  {statement}\n  torch: {torch}\n"


def code_of(text: str) -> str:
    """The code with which a declaration is refused, or an empty text if it is accepted."""
    try:
        declare(text)
    except InputError as error:
        return error.diagnostic.code
    return ""


ATTRIBUTES = {
    "beyond a constant": op("y[n] = select(k > 11, x[n] * 2, x[n])"),
    "a multiple beyond a constant": op("y[n] = select(k * 2 > 23, x[n] * 2, x[n])"),
    "one remainder": op("y[n] = select(k % 13 == 7, x[n] + 1, x[n])"),
    "the larger of it and a constant": op("y[n] = x[n] * maximum(k, 40)", "torch.mul(x, 40)"),
    "one number that conditions admit": op(
        "y[n] = select(k == 128, x[n], 2 * x[n])", "torch.mul(x, 2)", "(x: [n]; k) -> y: [n]", "k >= 100"
    ),
    "between two constants": op("y[n] = select(k > 0.75, x[n], select(k > 0.7, 2 * x[n], x[n]))"),
    "of two attributes": op("y[n] = select(k - m > 25, -x[n], x[n])", header="(x: [n]; k = 2, m = 3) -> y: [n]"),
    "two at once": op(
        "y[n] = select(k > 30, select(m == 17, -x[n], x[n]), x[n])", header="(x: [n]; k = 2, m = 3) -> y: [n]"
    ),
    "its square": op("y[n] = select(k * k > 5000, -x[n], x[n])"),
    "far below zero": op("y[n] = select(k < -300, -x[n], x[n])"),
    "by a function": op("y[n] = x[n] * relu(k - 77)", NONE),
    "with a size": op("y[n] = select(k > 30, select(n > 90, -x[n], x[n]), x[n])"),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_tried_at_constants_and_where_cases_change(name: str) -> None:
    assert code_of(ATTRIBUTES[name]) == "E114"


ROW, TENSOR = "(x: [n]) -> y: [n]", "(x: [n, c]) -> y: [n, c]"
SIZES = {
    "the last position": op("y[n] = select(n < 120, x[n], 0)", header=ROW),
    "a multiple": op("y[n] = select(n * 2 >= 500, 0, x[n])", header=ROW),
    "a size itself": op("y[n, c] = select(|c| > 64, 0, x[n, c])", header=TENSOR),
    "two axes together": op("y[n, c] = select(n + c < 90, x[n, c], 0)", header=TENSOR),
    "a whole quotient": op("y[n] = select(n // 33 > 4, 0, x[n])", header=ROW),
    "a remainder": op("y[n] = select(n % 50 == 49, 0, x[n])", header=ROW),
    "a read far away": op("y[n] = x[n] + x[n - 200 else 0]", header=ROW),
    "the first terms of a sum": op("y[n] = sum(c) [c < 150] * x[n, c]", "torch.sum(x, -1)", "(x: [n, c]) -> y: [n]"),
    "positions of a result": op(
        "y[s] = select(s < 300, x[s else 0] + z[s - |m| else 0], 0)",
        "torch.cat([x, z], 0)",
        "(x: [m], z: [n]) -> y: [s]",
        "s == m + n",
    ),
    "by an intermediate": op("a[n] = 3 * n\n  y[n] = select(a[n] < 400, x[n], 0)", header=ROW),
    "a count of elements": op("c[] = sum(n) [x[n] < 0]\n  y[n] = select(c[] > 120, 0, x[n])", header=ROW),
    "rows of a table": op(
        "y[n, d] = sum(v) [v == ids[n]] * [v < 500] * w[v, d]",
        "F.embedding(ids, w)",
        "(ids: int<v>[n], w: [v, d]) -> y: [n, d]",
    ),
    "a factor of a dimension": op(
        "y[n, h, k] = select(k < 32, x[n, h, k], 0)", header="(x: [n, (h k)]; heads = 2) -> y: [n, (h k)]",
        where="h == heads",
    ),
    "a bound of a size": op(
        "y[n] = (sum(c) x[n, c]) / minimum(|c|, 256)", "torch.mean(x, -1)", "(x: [n, c]) -> y: [n]"
    ),
    "a hundred thousand": op("y[n] = select(n < 100000, x[n], 0)", header=ROW),
    "the greatest integers": op(
        "y[n] = select(x[n] > 2000, x[n] - 1, x[n])", "torch.clamp(x, 0)", "(x: int<v>[n]) -> y: int<v>[n]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_tried_at_constants_and_where_cases_change(name: str) -> None:
    assert code_of(SIZES[name]) == "E114"


@pytest.mark.parametrize("size", [2_500_000, 10_000_000])
def test_what_cannot_be_tried_is_refused_with_the_size(size: int) -> None:
    with pytest.raises(InputError) as caught:
        declare(op(f"y[n] = select(n < {size}, x[n], 0)", header=ROW))
    found = caught.value.diagnostic
    assert found.code == "E114" and f"could not be tried: its cases change at `n` = {size}" in found.message
    assert "leave the line out" in found.help
    declare(op(f"y[n] = select(n < {size}, x[n], 0)", header=ROW).rpartition("  torch:")[0])


def integers(statement: str, header: str, where: str = "") -> str:
    return f"op tried{header}\n" + (f"  where {where}\n" if where else "") + f"  {statement}\n"


FROM_FLOATS, FROM_INTEGERS = "(x: [s]) -> p: int<n>[s]", "(i: int<v>[s]) -> p: int<n>[s]"
RANGES = {
    "a quotient": integers("p[s] = s // 30", FROM_FLOATS, "n == 1"),
    "a square": integers("p[s] = s * s // 5000", FROM_FLOATS, "n == s"),
    "a quotient of integers": integers("p[s] = i[s] // 100", FROM_INTEGERS, "n == 3"),
    "an attribute": integers("p[s] = select(k > 20, 4, 0)", "(x: [s]; k = 1) -> p: int<n>[s]", "n == 4"),
    "one integer": integers("p[s] = select(i[s] == 77, |v|, i[s])", "(i: int<v>[s]) -> p: int<v>[s]"),
    "a product": integers("p[s] = i[s] * j[s]", "(i: int<v>[s], j: int<w>[s]) -> p: int<n>[s]", "n == v + w"),
    "a count": integers("p[s] = sum(t) [x[s, t] > 0]", "(x: [s, t]) -> p: int<n>[s]", "n == 200"),
    "a count of large ones": integers("p[s] = sum(t) [x[s, t] > 50]", "(x: [s, t]) -> p: int<t>[s]"),
    "a remainder of its own": integers("p[s] = (i[s] + 1) % 128", "(i: int<v>[s]) -> p: int<v>[s]"),
    "turned round": integers("p[s] = |v| - i[s]", FROM_INTEGERS, "n == v"),
    "a sum": integers("p[s] = sum(t) i[s, t]", "(i: int<v>[s, t]) -> p: int<n>[s]", "n == v * 10"),
    "below zero at one place": integers("p[s] = s - 500 * [s >= 500] - [s == 700] * 201", FROM_FLOATS, "n == s"),
    "a long axis": integers("p[s] = s + [|s| > 70] * 2 * |s|", FROM_FLOATS, "n == 2 * s"),
    "a remainder beyond": integers("p[s] = s % 400", FROM_FLOATS, "n == 300"),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_tried_at_their_ends(name: str) -> None:
    assert code_of(RANGES[name]) == "E118"


NORM = "(x: [b.., c], gain: [c]) -> y: [b.., c]"


def norm(eps: str, given: str = "", scale: str = "") -> str:
    body = f"v[b..] = sum(c) x[b.., c] * x[b.., c] / |c|\n  y[b.., c] = x[b.., c] * rsqrt(v[b..]{eps}) * gain[c]{scale}"
    return op(body, f"F.rms_norm(x, [|c|], gain{given})", NORM)


LENGTH = "torch.sqrt(torch.sum(torch.square(x), -1, keepdim=True))"
SMALL = {
    "eps of float64": norm(" + 2.220446049250313e-16"),
    "eps of float32": norm(" + 1.1920928955078125e-07"),
    "no eps": norm(""),
    "another eps": norm(" + 1e-20", ", 1e-16"),
    "an eps of 1e-30": norm(" + 1e-30", ", 0"),
    "a least length": op(
        "v[b..] = sum(c) x[b.., c] * x[b.., c]\n  y[b.., c] = x[b.., c] / maximum(sqrt(v[b..]), 1e-12)",
        f"torch.div(x, torch.clamp({LENGTH}, 1e-10))",
        "(x: [b.., c]) -> y: [b.., c]",
    ),
    "zero near zero": op("y[n] = select(abs(x[n]) < 1e-20, 0, x[n])", header=ROW),
    "eps beside the root": op(
        "v[b..] = sum(c) x[b.., c] * x[b.., c] / |c|\n  y[b.., c] = x[b.., c] / (sqrt(v[b..]) + 1e-9)",
        "F.rms_norm(x, [|c|])",
        "(x: [b.., c]) -> y: [b.., c]",
    ),
    "a least logarithm": op(
        "y[] = log(1e-30 + sum(n) x[n] * x[n])",
        "torch.log(torch.clamp(torch.sum(torch.square(x)), 1e-25))",
        "(x: [n]) -> y: []",
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_operands_that_are_small_as_a_whole_are_tried(name: str) -> None:
    assert code_of(SMALL[name]) == "E114"


RIGHT = {
    "an attribute beyond a constant": op("y[n] = select(k > 11, x[n], x[n])"),
    "an attribute as a factor": op("y[n] = x[n] * select(k > 40, k, k)", "torch.mul(x, k)"),
    "positions that do not matter": op("y[n] = select(n < 120, x[n], x[n])", header=ROW),
    "parts of a sum": op(
        "y[n] = sum(c) x[n, c] * [c < 3000] + sum(c) x[n, c] * [c >= 3000]",
        "torch.sum(x, -1)",
        "(x: [n, c]) -> y: [n]",
    ),
    "a condition on a size": op(
        "y[b, o, q] = sum(c, r) x[b, c, q + r] * k[o, c, r]",
        "F.conv1d(x, k)",
        "(x: [b, c, t], k: [o, c, r]) -> y: [b, o, q]",
        "q == t - r + 1, r <= 64",
    ),
    "a small eps": norm(" + 1e-12", ", 1e-12"),
    "no eps at all": norm("", ", 0"),
    "a least length": SMALL["a least length"].replace("1e-10", "1e-12"),
    "a cosine, whose powers underflow in float32": op(
        "a[] = sum(n) x[n] * z[n]\n  p[] = sum(n) x[n] * x[n]\n  q[] = sum(n) z[n] * z[n]\n"
        "  y[] = a[] * rsqrt(p[] * q[])",
        "torch.mul(torch.sum(torch.mul(x, z)), torch.rsqrt(torch.mul("
        "torch.sum(torch.square(x)), torch.sum(torch.square(z)))))",
        "(x: [n], z: [n]) -> y: []",
    ),
    "exp less 1, without cancellation": op("y[n] = exp(x[n]) - 1", "torch.expm1(x)", ROW),
    "exp less 1, with cancellation": op("y[n] = exp(x[n]) - 1", "torch.sub(torch.exp(x), 1)", ROW),
    "a deviation": op(
        "m[b..] = sum(c) x[b.., c] / |c|\n"
        "  v[b..] = sum(c) (x[b.., c] - m[b..]) * (x[b.., c] - m[b..]) / |c|\n"
        "  y[b.., c] = (x[b.., c] - m[b..]) / sqrt(v[b..] + 1e-6)",
        "F.layer_norm(x, [|c|], eps=1e-6)",
        "(x: [b.., c]) -> y: [b.., c]",
    ),
    "infinity where a mask is 0": op(
        "y[n] = select(m[n] != 0, x[n], -inf)", "torch.masked_fill(x, torch.ne(torch.ne(m, 0), True), -inf)",
        "(x: [n], m: int<v>[n]) -> y: [n]"
    ),
    "a quotient": integers("p[s] = s // 30", FROM_FLOATS, "n == s // 30 + 1"),
    "a remainder": integers("p[s] = s // 30 % 5", FROM_FLOATS, "n == 5"),
    "a quotient of integers": integers("p[s] = i[s] // 100", FROM_INTEGERS, "n == v // 100 + 1"),
    "two integers as one": integers(
        "p[s] = i[s] * |w| + j[s]", "(i: int<v>[s], j: int<w>[s]) -> p: int<n>[s]", "n == v * w"
    ),
    "a count": integers("p[s] = sum(t) [x[s, t] > 50]", "(x: [s, t]) -> p: int<n>[s]", "n == t + 1"),
    "turned round": integers("p[s] = |v| - 1 - i[s]", FROM_INTEGERS, "n == v"),
    "the next one": integers("p[s] = (i[s] + 1) % |v|", FROM_INTEGERS, "n == v"),
    "bounded by an attribute": integers(
        "p[s] = select(i[s] > k, k, i[s])", "(i: int<v>[s]; k = 7) -> p: int<v>[s]"
    ),
    "integers by position": integers(
        "y[m] = sum(n) [n == i[m]] * t[n]", "(t: int<v>[n], i: int<n>[m]) -> y: int<v>[m]"
    ),
    "integers by position, natively": op(
        "y[m] = sum(n) [n == i[m]] * t[n]", "torch.gather(t, 0, i)", "(t: int<v>[n], i: int<n>[m]) -> y: int<v>[m]"
    ),
    "one of two integers": op(
        "y[n] = select(m[n] != 0, a[n], b[n])",
        "torch.where(torch.ne(m, 0), a, b)",
        "(m: int<u>[n], a: int<v>[n], b: int<v>[n]) -> y: int<v>[n]",
    ),
    "the greatest integer": integers("y[n] = max(c) t[n, c]", "(t: int<v>[n, c]) -> y: int<v>[n]"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_agrees_everywhere_is_accepted(name: str) -> None:
    assert code_of(RIGHT[name]) == ""


@pytest.mark.parametrize(
    ("statement", "name", "expected"),
    [
        ("y[n] = select(n < 120, x[n], 0)", "n", {120, 121, 122}),
        ("y[n] = x[n] * [k * 3 > 100]", "k", {33, 34, 35}),
        ("y[n] = x[n] + x[n - 64 else 0]", "n", {64, 65}),
        ("y[n] = select(n // 30 == 2, x[n], 0)", "n", {60, 61, 62, 90, 91, 92}),
        ("y[n] = x[n] * minimum(|n|, 256)", "n", {255, 256, 257}),
    ],
)
def test_the_borders_of_cases_are_found(statement: str, name: str, expected: set[int], library: Library) -> None:
    declared = operator(f"op tried(x: [n]; k = 3) -> y: [n]\n  {statement}\n")
    found = set()
    for made in border_instances(declared, library.functions, np.random.default_rng(0)):
        assert not isinstance(made, Untried) and isinstance(made, BorderInstance)
        found.add(made.instance.attributes["k"] if name == "k" else made.instance.sizes[name])
    assert expected <= found

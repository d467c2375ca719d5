"""Mistakes in `.udl` files: broken snippets, each with the words of its diagnostic."""

from __future__ import annotations

from .mistake import Mistake


def _model(*lines: str, header: str = "model m[d = 4]") -> str:
    return "\n".join([header, *(f"  {line}" for line in lines), ""])


UDL = (
    # ---------------------------------------------------------------- headers and declarations
    Mistake(
        "E010",
        "a header ends without a colon",
        (
            _model("loss x", header="model m[d = 4]:"),
            _model("loss x", header="model m:"),
            _model("return x", header="block m(x):"),
            _model("repeat 2 as layer:", "  x = x"),
        ),
        "not expected here",
        "delete the colon",
    ),
    Mistake(
        "E010",
        "a model's parameters stand in square brackets",
        (_model("loss x", header="model m(d = 4)"),),
        "expected `[`",
        "write `model mlp[b = 64, d = 1024]`",
    ),
    Mistake(
        "E010",
        "a block lists its tensors in parentheses",
        (_model("return x", header="block m"), _model("return x", header="block m[d]")),
        "expected `(`",
        "write `block ffn[hidden](x)`",
    ),
    Mistake(
        "E010",
        "a repetition has a name",
        (_model("repeat 2", "  x = x"), _model("repeat d", "  x = x"), _model("repeat d * 2", "  x = x")),
        "expected `as NAME`",
        "write `repeat 24 as layer`; the weights inside are named `layer.0.w`, …",
    ),
    Mistake(
        "E010",
        "a declared tensor has a type",
        (_model("weight w ~ zeros"), _model("input x"), _model("weight w = zeros"), _model("input x f32[d]")),
        "expected `:` and a type",
        "write `weight w: f32[h, d] ~ normal(0.02)`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "a type ends with its shape",
        (_model("input x: f32"), _model("weight w: f32 ~ zeros"), _model("input x: int<4>")),
        "expected `[sizes]`",
        "write `f32[b, d]`; a scalar is `f32[]`",
    ),
    Mistake(
        "E025",
        "an integer tensor says its range",
        (_model("input x: int[d]"), _model("input x: int")),
        "expected `<n>`",
        "write `int<n>[b]`, whose values are 0 to n - 1",
        any_token=True,
    ),
    Mistake(
        "E025",
        "only `int` has a range",
        (_model("input x: f32<4>[d]"),),
        "not expected here",
        "dtypes are f64, f32, bf16, f16 and int<n>",
    ),
    Mistake(
        "E010",
        "an initialiser follows `~`",
        (_model("weight w: f32[d] = zeros"), _model("weight w: f32[d] zeros"), _model("weight w: f32[d] normal(1)")),
        "expected `~`",
        "write `weight w: f32[h, d] ~ normal(0.02)`",
    ),
    Mistake(
        "E010",
        "a precision is one word",
        (_model("precision: bf16"), _model("precision = bf16"), _model("precision")),
        "expected a float type",
        "write `precision bf16`",
        any_token=True,
    ),
    # ---------------------------------------------------------------- statements
    Mistake(
        "E029",
        "only names are assigned",
        (_model("x[0] = y"), _model("x[a, b] = y"), _model("a, x[0] = y")),
        "not a name",
        "tensors are not changed in place; give the result a name",
    ),
    Mistake(
        "E010",
        "a value without a name",
        (_model("relu(x)"), _model("a, relu(x)")),
        "expected `=`",
        "write `y = relu(x)`",
    ),
    Mistake(
        "E010",
        "there is no `+=`",
        (_model("x += y"), _model("x *= y"), _model("x -= y"), _model("x /= y")),
        "expected `=`",
        "write `x = x + y`",
    ),
    Mistake(
        "E010",
        "an update names one buffer",
        (_model("update m, v = x"), _model("update m, v = x, y"), _model("update m[0] = x"), _model("update m")),
        "expected `=`",
        "write `update mean = new_mean`, a line for each buffer",
        any_token=True,
    ),
    # ---------------------------------------------------------------- tensors
    Mistake(
        "E010",
        "an attribute stands among the tensors",
        (_model("a = split(x, dim=1)"), _model("a = iota(n=4)"), _model("a = f[h=2](x, dim=1)")),
        "an attribute follows `;`",
        "write `split(x; dim=1, parts=2)`",
    ),
    Mistake(
        "E010",
        "an attribute has a name",
        (_model("a = split(x; 1)"), _model("a = split(x; dim)"), _model("a = split(x; dim=1, 2)")),
        "expected `name=value`",
        "write `split(x; dim=1, parts=2)`",
    ),
    Mistake(
        "E016",
        "a view has a pattern on both sides of `->`",
        (_model("a = x[b, c]"), _model("a = x[0] + 1"), _model("a = f(x[b, (h k)])"), _model("a = f(x)[b, c] * 2")),
        "expected `->`",
        "write `x[b, s, (h k)] -> [b, h, s, k]`; a part of a tensor is taken with `slice`",
        any_token=True,
    ),
    Mistake(
        "E016",
        "an arrow is followed by a pattern",
        (_model("a = x[b, c] -> y"), _model("a = x[b, c] ->"), _model("a = f(x)[b] -> (b)")),
        "expected `[`",
        "write `x[b, s, (h k)] -> [b, h, s, k]`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "a pattern holds names, whole numbers and groups of them",
        (
            _model("a = x[b, c + 1] -> [b, c]"),
            _model("a = x[b + 1] -> [b]"),
            _model("a = x[b, -1] -> [b]"),
            _model("a = x[-1] -> [b]"),
            _model("a = x[3 * b] -> [b]"),
            _model("a = x[b] -> [b * c]"),
            _model("a = x[b] -> [-b]"),
            _model("a = x[()] -> [b]"),
            _model("a = x[b, ()] -> [b]"),
        ),
        "not part of a pattern",
        "write `x[b, s, (h=heads k)] -> [b, h, s, k]`",
    ),
    Mistake(
        "E010",
        "the factors of a merged dimension stand in parentheses",
        (
            _model("a = x[b, h k] -> [b]"),
            _model("a = x[b] -> [h k]"),
            _model("a = x[h k] -> [h]"),
            _model("a = x[3 k] -> [k]"),
        ),
        "expected `,` or `]`",
        "write `(h k)`, major factor first",
    ),
    Mistake(
        "E010",
        "the factors of a merged dimension are separated by spaces",
        (_model("a = x[b, (h, k)] -> [b]"), _model("a = x[b] -> [(h, k)]"), _model("a = x[(h=2, k)] -> [b]")),
        "no comma here",
        "write `(h k)`, major factor first",
    ),
    Mistake(
        "E010",
        "the size of a factor stands in parentheses with it",
        (_model("a = x[b, k=4] -> [b, k]"), _model("a = x[b] -> [b=4]")),
        "not expected here",
        "write `(k=4)`",
    ),
    Mistake(
        "E010",
        "a block call lists its tensors in parentheses",
        (_model("a = f[h = 2]"), _model("a = f[h = 2] + 1"), _model("a = f[h = 2] -> [h]")),
        "expected `(`",
        "write `ffn[hidden = 64](x)`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "there is no power operator",
        (_model("a = x ** 2"), _model("a = f(x; n=2 ** 3)")),
        "not part of the language",
        "write `x * x`",
    ),
    Mistake(
        "E010",
        "whole division and remainder are for numbers, not tensors",
        (_model("a = x // 2"), _model("a = x % 2"), _model("a = f(x) // 2"), _model("a = f(x // 2)")),
        "not expected here",
        "tensors have `+ - * /`",
    ),
)

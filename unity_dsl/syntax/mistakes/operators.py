"""Mistakes in `.uop` files: broken snippets, each with the words of its diagnostic."""

from __future__ import annotations

from .mistake import Mistake


def _op(*lines: str, header: str = "op f(x: [i], w: [o, i]) -> y: [o]") -> str:
    return "\n".join([header, *(f"  {line}" for line in lines), ""])


def _header(text: str) -> str:
    return _op("y[i] = x[i]", header=text)


def _value(text: str) -> str:
    return _op(f"y[i] = {text}")


UOP = (
    # ---------------------------------------------------------------- headers
    Mistake(
        "E016",
        "an operator's outputs follow `->`",
        (_header("op f(x: [i]) y: [i]"), _header("op f(x: [i])"), _header("parallel f[p](x: [i]) = y: [i]")),
        "expected `->`",
        "write `op relu(x: [b..]) -> y: [b..]`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "an attribute stands among the tensors",
        (_header("op f(x: [i], p = 0.1) -> y: [i]"), _header("op f(p = 0.1) -> y: [i]")),
        "an attribute follows `;`",
        "write `op dropout(x: [b..]; p = 0.1) -> …`",
    ),
    Mistake(
        "E010",
        "a tensor is declared without its shape",
        (
            _header("op f(x) -> y: [i]"),
            _header("op f(x, w: [i]) -> y: [i]"),
            _header("op f(x: [i]) -> y"),
            _header("op f(x: i) -> y: [i]"),
            _header("op f(x[i]) -> y: [i]"),
        ),
        "expected `: [axes]`",
        "write `x: [b.., i]`; a scalar is `x: []`",
    ),
    Mistake(
        "E010",
        "a parallel operator names its device axes in brackets",
        (_header("parallel f(x: [i]) -> y: [i]"),),
        "expected `[`",
        "write `parallel replicate[p](x: [g..]) -> y: [@p, g..]`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "a header ends without a colon",
        (_header("op f(x: [i]) -> y: [i]:"), _op("y[i] = x[i]", "eval:", "  y[i] = x[i]")),
        "not expected here",
        "delete the colon",
    ),
    Mistake(
        "E010",
        "a condition compares two sizes",
        (
            _header("op f(x: [i]) -> y: [i] where i"),
            _header("op f(x: [i]) -> y: [i] where i = 3"),
            _header("op f(x: [i]) -> y: [i] where i == 3, i"),
            _op("where i + 1", "y[i] = x[i]"),
        ),
        "expected a comparison",
        "write `where d == p * e`",
    ),
    Mistake(
        "E010",
        "`where` stands above the statements",
        (_op("y[i] = x[i]", "where i == 3"), _op("y[i] = x[i]", "torch: F.relu(x)", "where i == 3")),
        "too late",
        "move it below the header",
    ),
    Mistake(
        "E010",
        "a statement below a clause",
        (_op("y[i] = x[i]", "torch: F.relu(x)", "z[i] = y[i]"),),
        "too late",
        "statements come first, `torch:` and `eval` last",
    ),
    Mistake(
        "E010",
        "an operator needs a statement",
        (_op("torch: F.relu(x)"), _op("where i == 3", "torch: F.relu(x)"), _op("eval", "  y[i] = x[i]")),
        "expected a statement above this",
        "say what the operator computes: `y[b..] = …`",
    ),
    Mistake(
        "E010",
        "an extern operator has no statements",
        (
            _op("i[b] = x[b]", "torch: torch.argsort(x)", header="extern op f(x: [b]) -> i: int<b>[b]"),
            _op("torch: torch.argsort(x)", "i[b] = x[b]", header="extern op f(x: [b]) -> i: int<b>[b]"),
            _op("eval", "  i[b] = x[b]", header="extern op f(x: [b]) -> i: int<b>[b]"),
        ),
        "not part of an extern operator",
        "it is its native calls: lines `axes:`, `torch:` and `numpy:`",
    ),
    Mistake(
        "E010",
        "the axes of an extern operator are listed",
        (
            _op("axes:", "torch: torch.argsort(x)", header="extern op f(x: [b]) -> i: int<b>[b]"),
            _op("axes: |b|", "torch: torch.argsort(x)", header="extern op f(x: [b]) -> i: int<b>[b]"),
            _op("axes: [b]", "torch: torch.argsort(x)", header="extern op f(x: [b]) -> i: int<b>[b]"),
        ),
        "expected the name of an axis",
        "write `axes: b.., c`; leave the line out where there is none",
    ),
    Mistake(
        "E010",
        "`axes:` belongs to extern operators",
        (_op("y[i] = x[i]", "axes: i"),),
        "not part of this operator",
        "what an operator may be divided along follows from its statements",
    ),
    Mistake(
        "E010",
        "`extern` stands before `op`",
        (
            "extern f(x: [b]) -> i: int<b>[b]\n  torch: torch.argsort(x)\n",
            "extern fn f(x)\n  torch: torch.exp(x)\n",
        ),
        "expected `op`",
        "write `extern op top_k(…) -> i: int<c>[…]`",
        any_token=True,
    ),
    Mistake(
        "E010",
        "an element function is defined by `=`",
        (_op("y[i] = x[i]", header="fn f(x)"),),
        "expected `derivative`, `surrogate`, `fact`, `torch:` or `numpy:`",
        "write `fn relu(x) = maximum(x, 0)`",
    ),
    # ---------------------------------------------------------------- statements
    Mistake(
        "E029",
        "the left side lists its axes",
        (_op("y = x[i]"), _op("y: x[i]"), _op("y += x[i]")),
        "expected `[axes]`",
        "write `y[b.., o] = …`; a scalar is `y[] = …`",
        any_token=True,
    ),
    Mistake(
        "E029",
        "left sides have bare axis names only",
        (
            _op("y[i + 1] = x[i]"),
            _op("y[i, j - 1] = x[i]"),
            _op("y[0] = x[i]"),
            _op("y[i, 0] = x[i]"),
            _op("y[i * 2] = x[i]"),
            _op("y[w[i]] = x[i]"),
            _op("y[|i|] = x[i]"),
        ),
        "not a bare name",
        "say it on the right: every access is a read",
    ),
    Mistake("E010", "`=` is missing", (_op("y[i] x[i]"), _op("y[i]"), _op("y[i] sum(i) x[i]")), "expected `=`"),
    # ---------------------------------------------------------------- expressions
    Mistake(
        "E015",
        "a reduction without axes",
        (_value("sum x[i]"), _value("sum[i] x[i]"), _value("sum() x[i]"), _value("1 + max x[i]")),
        "expected `(axes)`",
        "write `sum(i) x[i]`; the larger of two values is `maximum(a, b)`",
        any_token=True,
    ),
    Mistake(
        "E015",
        "a reduction takes axes, not values",
        (
            _value("max(x[i], 0)"),
            _value("max(0, x[i])"),
            _value("max(i, 0)"),
            _value("sum(i + 1) x[i]"),
            _value("min(i, x[i])"),
            _value("max(exp(i), 2)"),
            _value("max((i), 2)"),
            _value("sum(|i|) 2"),
        ),
        "not an axis",
        "write `sum(i) x[i]`; the larger of two values is `maximum(a, b)`",
    ),
    Mistake(
        "E015",
        "a reduction of nothing",
        (
            _value("sum(i)"),
            _value("sum(i) + 1"),
            _value("exp(max(i))"),
            _value("x[max(i, j)]"),
            _value("max(i, j) * 2"),
        ),
        "expected what is reduced",
        "write `sum(i) x[i]`; the larger of two values is `maximum(a, b)`",
    ),
    Mistake(
        "E017",
        "an unfinished size",
        (_value("x[i] / |c + 1"), _value("|c"), _value("|c * 2|"), _value("|b.. + 1|"), _value("|c d|")),
        "expected `|`",
        "the size of an axis is `|c|`, of rest axes `|b..|`",
        any_token=True,
    ),
    Mistake(
        "E017",
        "only an axis has a size",
        (_value("|3|"), _value("|(c)|"), _value("||"), _value("|-x|")),
        "expected the name of an axis",
        "the size of an axis is `|c|`; the absolute value is `abs(x)`",
        any_token=True,
    ),
    Mistake(
        "E018",
        "a comparison outside brackets",
        (
            _value("x[i] > 0"),
            _value("i == 3"),
            _value("(x[i] > 0) * 2"),
            _value("exp(i < 3)"),
            _value("maximum(0, i < 3)"),
            _value("x[i < 3]"),
            _value("x[i, j < 3]"),
            _value("x[i else i < 3]"),
            _value("select(i < 3, x[i] > 0, 0)"),
            _value("select(i < 3, 0, x[i] > 0)"),
            _op("derivative x: x > 0", header="fn f(x)"),
            "fn f(x) = x > 0\n",
        ),
        "not a value by itself",
        "write `[a > b]`, which is worth 1 or 0",
    ),
    Mistake(
        "E018",
        "comparisons cannot be chained",
        (_value("[0 <= i < 3]"), _value("select(0 <= i < 3, 1, 0)"), _header("op f(x: [i]) -> y: [i] where 0 < i < 3")),
        "a second comparison",
        "write `[a <= b] * [b < c]`",
    ),
    Mistake(
        "E018",
        "square brackets in a value hold a comparison",
        (_value("[i]"), _value("[i + 1] * 2"), _value("[i, j]"), _value("[i = 3]")),
        "expected a comparison",
        "write `[a == b]`, worth 1 or 0, or parentheses",
    ),
    Mistake(
        "E010",
        "`select` begins with a comparison",
        (_value("select(i, 1, 2)"), _value("select(x[i] * 2, 1, 2)")),
        "expected a comparison",
        "write `select(a < b, then, otherwise)`",
    ),
    Mistake(
        "E010",
        "`select` takes a comparison and two values",
        (_value("select(i < 3)"), _value("select(i < 3, 1)"), _value("select(i < 3, 1, 2, 3)")),
        "wrong number of values",
        "write `select(a < b, then, otherwise)`",
    ),
    Mistake(
        "E010",
        "nothing follows the value of `else`",
        (_value("x[i else 0, j]"),),
        "expected `]`",
        "`else` is the last entry of a read: `x[i, j else 0]`",
    ),
    Mistake(
        "E010",
        "there is no power operator",
        (_value("x[i] ** 2"), _value("2 ** i")),
        "not part of the language",
        "write `x * x`, or `exp(a * log(x))`",
    ),
    Mistake(
        "E010",
        "rest axes are an entry of a read, not a value",
        (_value("b.. + 1"), _value("x[b.. + 1]"), _value("x[1 + b..]"), _value("exp(b..)")),
        "expected `,` or `]`",
        "`b..` stands alone between commas: `x[b.., i]`",
    ),
    # ---------------------------------------------------------------- native calls
    Mistake(
        "E010",
        "a native lowering is one call",
        (_op("y[i] = x[i]", "torch: x + w"), _op("y[i] = x[i]", "torch: x"), _op("y[i] = x[i]", "torch: 3")),
        "expected a call",
        "write `torch: torch.add(x, w)`",
    ),
)

"""Random syntax trees with their words, and random layouts of words: an independent writer to check the readers."""

from __future__ import annotations

from hypothesis import strategies as st

from unity_dsl.syntax.ast import (
    Apply,
    Binary,
    Call,
    DeviceName,
    Expr,
    ModelExpr,
    Name,
    Number,
    Pattern,
    PatternFactor,
    Read,
    Reduce,
    ReductionKind,
    Select,
    Size,
    Uniform,
    View,
)
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView

Words = list[str]

# Among them names that begin or end like keywords.
NAMES = st.sampled_from(
    ["i", "x", "summary", "sum_", "maximum", "opened", "elsewhere", "info", "int8", "as_", "E5", "_"]
)
COMPARISONS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
LITERALS = st.one_of(
    st.integers(0, 2**63 - 1).map(Number),
    st.floats(0, 1e300, allow_subnormal=False).map(Number),
)


def axes() -> st.SearchStrategy[Name | DeviceName]:
    return st.one_of(NAMES.map(Name), NAMES.map(lambda name: Name(name, rest=True)), NAMES.map(DeviceName))


def leaves() -> st.SearchStrategy[Expr]:
    sizes = st.builds(Size, NAMES, st.booleans())
    infinite = st.sampled_from([Number(float("inf")), Number(float("-inf"))])
    return st.one_of(LITERALS, infinite, NAMES.map(Name), sizes, NAMES.map(DeviceName))


def negated(expr: Expr) -> Expr:
    return Number(-expr.value) if isinstance(expr, Number) else Apply("neg", (expr,))


def compounds(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    index = st.lists(st.one_of(inner, NAMES.map(lambda name: Name(name, rest=True))), max_size=3).map(tuple)
    comparison = st.builds(lambda sign, a, b: Apply(sign, (a, b)), COMPARISONS, inner, inner)
    arithmetic = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    return st.one_of(
        st.builds(lambda sign, a, b: Apply(sign, (a, b)), arithmetic, inner, inner),
        inner.map(negated),
        st.builds(Apply, NAMES, st.lists(inner, max_size=3).map(tuple)),
        comparison,
        st.builds(Select, comparison, inner, inner),
        st.builds(Read, NAMES, index, st.one_of(st.none(), inner)),
        st.builds(Uniform, index),
        st.builds(Reduce, st.sampled_from(list(ReductionKind)), st.lists(axes(), min_size=1).map(tuple), inner),
    )


EXPRESSIONS = st.recursive(leaves(), compounds, max_leaves=12)


def words(expr: Expr) -> Words:
    """The words of an expression, every compound in parentheses, so that no rule of precedence applies."""
    match expr:
        case Number(value):
            if value == float("inf"):
                return ["inf"]
            text = repr(value).removeprefix("-")
            sign = ["-"] if repr(value).startswith("-") else []
            return ["(", *sign, "inf" if text == "inf" else text, ")"]
        case Name(name, rest):
            return [name, ".."] if rest else [name]
        case Size(name, rest):
            return ["|", name, *([".."] if rest else []), "|"]
        case DeviceName(name):
            return ["@", name]
        case Read(tensor, index, fill):
            return [tensor, "[", *listed(index), *(["else", *words(fill)] if fill else []), "]"]
        case Uniform(index):
            return ["uniform", "[", *listed(index), "]"]
        case Select(condition, then, otherwise):
            return ["select", "(", *compared(condition), ",", *words(then), ",", *words(otherwise), ")"]
        case Reduce(kind, over, body):
            return ["(", kind.value, "(", *listed(over), ")", *words(body), ")"]
        case Apply("neg", (inner,)):
            return ["(", "-", *words(inner), ")"]
        case Apply("+" | "-" | "*" | "/" | "//" | "%" as sign, (left, right)):
            return ["(", *words(left), sign, *words(right), ")"]
        case Apply(function, arguments) if function[0] in "=!<>":
            return ["[", *compared(expr), "]"]
        case Apply(function, arguments):
            return [function, "(", *listed(arguments), ")"]
    raise TypeError(expr)


def compared(expr: Expr) -> Words:
    assert isinstance(expr, Apply)
    return [*words(expr.arguments[0]), expr.function, *words(expr.arguments[1])]


def listed(items: tuple[Expr, ...]) -> Words:
    return [word for position, item in enumerate(items) for word in ([","] if position else []) + words(item)]


# ---------------------------------------------------------------- models


def patterns() -> st.SearchStrategy[Pattern]:
    number = st.integers(0, 99).map(lambda size: PatternFactor(None, Number(size)))
    plain = st.one_of(NAMES.map(PatternFactor), number)
    sized = st.builds(PatternFactor, NAMES, st.one_of(LITERALS, NAMES.map(Name)))
    group = st.lists(st.one_of(plain, sized), min_size=1, max_size=3).map(tuple)
    return st.lists(group, max_size=3).map(tuple).map(Pattern)


def model_compounds(inner: st.SearchStrategy[ModelExpr]) -> st.SearchStrategy[ModelExpr]:
    quantity = st.one_of(LITERALS, NAMES.map(Name))
    attributes = st.dictionaries(NAMES, quantity, max_size=2).map(lambda given: tuple(given.items()))
    return st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.builds(Call, NAMES, st.lists(inner, max_size=3).map(tuple), attributes),
        st.builds(View, inner, patterns(), patterns()),
    )


TENSORS = st.recursive(st.one_of(LITERALS, NAMES.map(Name)), model_compounds, max_leaves=12)


def model_words(expr: ModelExpr) -> Words:
    match expr:
        case Number() | Name():
            return words(expr)
        case Binary(sign, left, right):
            return ["(", *model_words(left), sign, *model_words(right), ")"]
        case Call(function, arguments, attributes):
            inner = [w for k, item in enumerate(arguments) for w in ([","] if k else []) + model_words(item)]
            given = [w for k, (n, v) in enumerate(attributes) for w in [*([","] if k else []), n, "=", *words(v)]]
            return [function, "(", *inner, *([";", *given] if given else []), ")"]
        case View(operand, source, target):
            shown = model_words(operand)
            if not isinstance(operand, Name | Call):
                shown = ["(", *shown, ")"]
            return [*shown, "[", *pattern_words(source), "]", "->", "[", *pattern_words(target), "]"]
    raise TypeError(expr)


def pattern_words(pattern: Pattern) -> Words:
    return [w for k, dim in enumerate(pattern.dims) for w in ([","] if k else []) + dim_words(dim)]


def dim_words(dim: tuple[PatternFactor, ...]) -> Words:
    factors = [factor_words(factor) for factor in dim]
    inner = [word for factor in factors for word in factor]
    return inner if len(dim) == 1 and len(inner) == 1 else ["(", *inner, ")"]


def factor_words(factor: PatternFactor) -> Words:
    if factor.name is None:
        assert isinstance(factor.size, Number)
        return [str(factor.size.value)]
    return [factor.name, *(["=", *words(factor.size)] if factor.size is not None else [])]


# ---------------------------------------------------------------- rules


def sizes() -> st.SearchStrategy[Expr]:
    sign = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    return st.recursive(
        st.one_of(LITERALS, NAMES.map(Name)),
        lambda inner: st.one_of(inner.map(negated), st.builds(lambda s, a, b: Apply(s, (a, b)), sign, inner, inner)),
        max_leaves=4,
    )


def graph_compounds(inner: st.SearchStrategy[GraphExpr]) -> st.SearchStrategy[GraphExpr]:
    operands = st.lists(inner, min_size=1, max_size=3).map(tuple)
    attributes = st.dictionaries(NAMES, sizes(), max_size=2).map(lambda given: tuple(given.items()))
    degrees = st.one_of(st.none(), st.lists(NAMES, max_size=2).map(tuple))
    factor = st.one_of(NAMES, st.integers(0, 99))
    pattern = st.lists(st.lists(factor, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
    return st.one_of(
        st.builds(GraphCall, NAMES, operands, attributes, degrees), st.builds(GraphView, inner, pattern, pattern)
    )


GRAPHS = st.recursive(st.one_of(LITERALS, NAMES.map(Name)), graph_compounds, max_leaves=12)


def graph_words(expr: GraphExpr) -> Words:
    match expr:
        case Number() | Name():
            return words(expr)
        case GraphCall(name, arguments, attributes, degrees):
            inner = [w for k, item in enumerate(arguments) for w in ([","] if k else []) + graph_words(item)]
            given = [w for k, (n, v) in enumerate(attributes) for w in [*([","] if k else []), n, "=", *words(v)]]
            given = [";", *given] if given else []
            if degrees is None:
                return [name, "(", *inner, *given, ")"]
            listed_degrees = [w for k, degree in enumerate(degrees) for w in [*([","] if k else []), degree]]
            return [name, "[", *listed_degrees, *given, "]", "(", *inner, ")"]
        case GraphView(operand, source, target):
            shown = graph_words(operand)
            if not isinstance(operand, Name | GraphCall):
                shown = ["(", *shown, ")"]
            return [*shown, "[", *axis_words(source), "]", "->", "[", *axis_words(target), "]"]
    raise TypeError(expr)


def axis_words(dims: tuple[tuple[str | int, ...], ...]) -> Words:
    texts = [[str(factor) for factor in dim] for dim in dims]
    shown = [dim if len(dim) == 1 else ["(", *dim, ")"] for dim in texts]
    return [w for k, dim in enumerate(shown) for w in ([","] if k else []) + dim]


# ---------------------------------------------------------------- layout

GAPS = st.sampled_from(["", "", " ", "   ", "\n", "\n      ", "  # a ( comment\n", "\t", "\n\n# comment\n"])


def laid_out(draw: st.DrawFn, tokens: Words) -> str:
    """The words with random space, line breaks and comments between them, as inside brackets."""
    text = ""
    for word in tokens:
        gap = draw(GAPS)
        if gap == "" and text and _sticks(text, word):
            gap = " "
        text += gap + word
    return text


def _sticks(text: str, word: str) -> bool:
    """Whether two adjacent words without a space would be read as other words."""
    last, first = text[-1], word[0]
    if (last.isalnum() or last in "_.") and (first.isalnum() or first in "_."):
        return True
    return last + first in {"//", "->", "==", "<=", ">=", "!=", "..", ".~"}

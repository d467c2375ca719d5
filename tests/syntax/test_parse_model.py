"""The meaning of `.udl` texts."""

from __future__ import annotations

import pytest

from tests.syntax.samples import MODEL
from unity_dsl.resources import folder
from unity_dsl.syntax.ast import (
    Apply,
    Assign,
    Binary,
    Call,
    Collect,
    Cond,
    Initialiser,
    Loss,
    ModelExpr,
    ModelStatement,
    Name,
    Number,
    Output,
    Parameter,
    Pattern,
    PatternFactor,
    Preset,
    Repeat,
    Return,
    Scan,
    Slices,
    Storage,
    StorageDecl,
    TypeExpr,
    View,
)
from unity_dsl.syntax.format import format_model
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

A, B, C, X = (Name(name) for name in "abcx")


def statement(line: str) -> ModelStatement:
    (found,) = parse_model(Source("m.udl", f"model m\n  {line}\n")).model.body
    return found


def tensor(text: str) -> ModelExpr:
    found = statement(f"y = {text}")
    assert isinstance(found, Assign)
    return found.value


def factors(text: str) -> tuple[PatternFactor, ...]:
    return tuple(
        PatternFactor(None, Number(int(word))) if word.isdigit() else PatternFactor(word) for word in text.split()
    )


def pattern(*dims: str) -> Pattern:
    return Pattern(tuple(factors(dim) for dim in dims))


TENSORS = {
    "a + b - c": Binary("-", Binary("+", A, B), C),
    "a * b + c / x": Binary("+", Binary("*", A, B), Binary("/", C, X)),
    "a - (b + c)": Binary("-", A, Binary("+", B, C)),
    "-x": Binary("*", Number(-1), X),
    "-a * b": Binary("*", Binary("*", Number(-1), A), B),
    "a * -0.5": Binary("*", A, Number(-0.5)),
    "-1e-5": Number(-1e-5),
    "f()": Call("f", ()),
    "f(a, b + 1)": Call("f", (A, Binary("+", B, Number(1)))),
    "f(a; dim=-1, n=2 * d // 3)": Call(
        "f",
        (A,),
        (("dim", Number(-1)), ("n", Apply("//", (Apply("*", (Number(2), Name("d"))), Number(3))))),
    ),
    "f(; n=3)": Call("f", (), (("n", Number(3)),)),
    "f[h=2 * d](x)": Call("f", (X,), (("h", Apply("*", (Number(2), Name("d")))),)),
    "f[h=2](x; p=3)": Call("f", (X,), (("h", Number(2)), ("p", Number(3)))),
    "x[a, b] -> [b, a]": View(X, pattern("a", "b"), pattern("b", "a")),
    "x[] -> [1]": View(X, pattern(), pattern("1")),
    "x[a, (2 b c)] -> [(a b), 2, c, 1]": View(X, pattern("a", "2 b c"), pattern("a b", "2", "c", "1")),
    "x[(h=n k)] -> [h, k]": View(X, Pattern(((PatternFactor("h", Name("n")), PatternFactor("k")),)), pattern("h", "k")),
    "x[(h=d // 2 3 k=(4))] -> [h]": View(
        X,
        Pattern(
            (
                (
                    PatternFactor("h", Apply("//", (Name("d"), Number(2)))),
                    PatternFactor(None, Number(3)),
                    PatternFactor("k", Number(4)),
                ),
            )
        ),
        pattern("h"),
    ),
    "f(x[a, b] -> [a])": Call("f", (View(X, pattern("a", "b"), pattern("a")),)),
    "f(x)[a, b] -> [b, a]": View(Call("f", (X,)), pattern("a", "b"), pattern("b", "a")),
    "f[n=2](x)[a] -> [a]": View(Call("f", (X,), (("n", Number(2)),)), pattern("a"), pattern("a")),
    "(a + b)[c] -> [c]": View(Binary("+", A, B), pattern("c"), pattern("c")),
    "a + x[b] -> [b] * c": Binary("+", A, Binary("*", View(X, pattern("b"), pattern("b")), C)),
}


@pytest.mark.parametrize("text", TENSORS, ids=str)
def test_tensor_expression(text: str) -> None:
    assert tensor(text) == TENSORS[text]


STATEMENTS: dict[str, ModelStatement] = {
    "input x: f32[b, 2 * d]": StorageDecl(
        Storage.INPUT,
        "x",
        TypeExpr("f32", None, (Name("b"), Apply("*", (Number(2), Name("d"))))),
        None,
    ),
    "input ids: int<v - 1>[]": StorageDecl(
        Storage.INPUT, "ids", TypeExpr("int", Apply("-", (Name("v"), Number(1))), ()), None
    ),
    "weight w: bf16[4] ~ uniform(-0.5, 1 / d)": StorageDecl(
        Storage.WEIGHT,
        "w",
        TypeExpr("bf16", None, (Number(4),)),
        Initialiser("uniform", (Number(-0.5), Apply("/", (Number(1), Name("d"))))),
    ),
    "buffer m: f64[4] ~ zeros": StorageDecl(
        Storage.BUFFER, "m", TypeExpr("f64", None, (Number(4),)), Initialiser("zeros")
    ),
    "weight w: f16[4]": StorageDecl(Storage.WEIGHT, "w", TypeExpr("f16", None, (Number(4),)), None),
    "a, b, c = f(x)": Assign(("a", "b", "c"), Call("f", (X,))),
    "loss f(x) * 2": Loss(Binary("*", Call("f", (X,)), Number(2))),
    "output x": Output(X, "x"),
    "output x as y": Output(X, "y"),
    "output f(x) as y": Output(Call("f", (X,)), "y"),
}


@pytest.mark.parametrize("line", STATEMENTS, ids=str)
def test_statement(line: str) -> None:
    assert statement(line) == STATEMENTS[line]


def test_file() -> None:
    file = parse_model(Source("m.udl", MODEL))
    (block,) = file.blocks
    assert (block.name, block.parameters, block.inputs) == ("ffn", (Parameter("hidden", None),), ("x",))
    assert isinstance(block.body[-1], Return)
    model = file.model
    assert (model.name, model.doc) == ("mlp", "Two-layer perceptron.\nWith a doc of two lines.")
    assert model.parameters[2] == Parameter("h", Apply("*", (Number(4), Name("d"))))
    assert model.presets == (Preset("small", (("b", Number(8)), ("d", Number(32)), ("classes", Number(4)))),)
    repeats = [statement for statement in model.body if isinstance(statement, Repeat)]
    assert [(repeat.count, repeat.name, len(repeat.body)) for repeat in repeats] == [(Number(24), "layer", 3)]
    inner = repeats[0].body[2]
    assert isinstance(inner, Repeat)
    halved = Binary("*", Number(-1), Binary("-", X, Number(1)))
    assert inner.body == (Assign(("x",), Binary("/", halved, Number(2))),)


def test_blocks_may_stand_below_the_model() -> None:
    block, model = "block f(a, b)\n  return a, b\n", "model m\n  loss x\n"
    assert parse_model(Source("m", block + model)) == parse_model(Source("m", model + block))


def test_parameters_are_optional() -> None:
    assert parse_model(Source("m", "block f()\n  return x\nmodel m\n  loss x\n")).blocks[0].inputs == ()


def test_spans() -> None:
    text = "model m[d = 4]\n  y = f(x[b, (h=2 k)] -> [b, h]) + 1  # note\n  loss y\n"
    model = parse_model(Source("m.udl", text)).model
    assign, loss = model.body
    assert isinstance(assign, Assign) and isinstance(assign.value, Binary) and isinstance(assign.value.left, Call)
    view = assign.value.left.arguments[0]
    assert isinstance(view, View)
    spanned = (model, model.parameters[0], assign, assign.value.left, view, view.source, view.source.dims[1][0], loss)
    assert [item.span.text for item in spanned if item.span is not None] == [
        text.rstrip(), "d = 4", "y = f(x[b, (h=2 k)] -> [b, h]) + 1", "f(x[b, (h=2 k)] -> [b, h])",
        "x[b, (h=2 k)] -> [b, h]", "b, (h=2 k)", "h=2", "loss y",
    ]  # fmt: skip


@pytest.mark.parametrize("path", sorted(folder("examples").glob("*.udl")), ids=lambda path: path.name)
def test_shipped_models_parse(path: object) -> None:
    assert parse_model(read_source(path)).model.body  # type: ignore[arg-type]


def test_scans_and_conds() -> None:
    text = (
        "model m\n"
        "  scan a in x + y along 1, b in z along -1 as step\n"
        "    collect a * b as q along 0\n"
        "    collect a as r\n"
        "  cond gate expect 1 / 4 as skip\n"
        "    x = a\n"
        "  cond gate as always\n"
        "    x = a\n"
    )
    scan, cond, always = parse_model(Source("m.udl", text)).model.body
    sums, products = Binary("+", Name("x"), Name("y")), Binary("*", Name("a"), Name("b"))
    slices = Slices("a", sums, Number(1)), Slices("b", Name("z"), Number(-1))
    assert scan == Scan(slices, "step", (Collect(products, "q", Number(0)), Collect(Name("a"), "r", None)))
    body = (Assign(("x",), Name("a")),)
    assert cond == Cond(Name("gate"), Apply("/", (Number(1), Number(4))), "skip", body)
    assert always == Cond(Name("gate"), None, "always", body)
    assert format_model(Source("m.udl", text)) == text

"""The meaning of `.uop` texts."""

from __future__ import annotations

import re

import pytest

from tests.syntax.samples import OPS
from unity_dsl.resources import folder
from unity_dsl.syntax.ast import (
    Apply,
    AttributeDecl,
    DeviceName,
    DimDecl,
    Expr,
    FactDecl,
    FunctionDecl,
    Name,
    NativeCall,
    NativeList,
    NativeString,
    Number,
    OperatorDecl,
    OpsFile,
    ParallelDecl,
    Read,
    Reduce,
    ReductionKind,
    Select,
    Size,
    TensorDecl,
    Ties,
    Uniform,
)
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.format import format_ops
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

A, B, C, I, J = (Name(name) for name in "abcij")  # noqa: E741


def expression(text: str) -> Expr:
    (declaration,) = parse_ops(Source("f.uop", f"fn f(x) = {text}\n")).declarations
    assert isinstance(declaration, FunctionDecl) and declaration.definition is not None
    return declaration.definition


def binary(sign: str, left: Expr, right: Expr) -> Apply:
    return Apply(sign, (left, right))


def sums(*axes: Name, of: Expr) -> Reduce:
    return Reduce(ReductionKind.SUM, axes, of)


EXPRESSIONS = {
    "a + b - c": binary("-", binary("+", A, B), C),
    "a - (b - c)": binary("-", A, binary("-", B, C)),
    "a + b * c": binary("+", A, binary("*", B, C)),
    "a * b // c % a / b": binary("/", binary("%", binary("//", binary("*", A, B), C), A), B),
    "-a * b": binary("*", Apply("neg", (A,)), B),
    "a - -b": binary("-", A, Apply("neg", (B,))),
    "a * -2": binary("*", A, Number(-2)),
    "-1e-5": Number(-1e-5),
    "--2": Number(2),
    "-inf": Number(float("-inf")),
    "inf": Number(float("inf")),
    # A reduction takes the product that follows, and nothing else.
    "sum(i) a * b + c": binary("+", sums(I, of=binary("*", A, B)), C),
    "c + sum(i) a * b": binary("+", C, sums(I, of=binary("*", A, B))),
    "c * sum(i) a * b": binary("*", C, sums(I, of=binary("*", A, B))),
    "a / sum(i) b - c": binary("-", binary("/", A, sums(I, of=B)), C),
    "-sum(i) a * b": Apply("neg", (sums(I, of=binary("*", A, B)),)),
    "a * -sum(i) b": binary("*", A, Apply("neg", (sums(I, of=B),))),
    "sum(i) -a": sums(I, of=Apply("neg", (A,))),
    "sum(i) sum(j) a * b": sums(I, of=sums(J, of=binary("*", A, B))),
    "sum(i) a * max(j) b": sums(I, of=binary("*", A, Reduce(ReductionKind.MAX, (J,), B))),
    "(sum(i) a) * b": binary("*", sums(I, of=A), B),
    "prod(i, b.., @p) a": Reduce(ReductionKind.PROD, (I, Name("b", rest=True), DeviceName("p")), A),
    "summary(i) * a": binary("*", Apply("summary", (I,)), A),
    "maximum(a, b)": Apply("maximum", (A, B)),
    "f()": Apply("f", ()),
    # Brackets hold a comparison unless they follow a name.
    "[i == j] * a": binary("*", binary("==", I, J), A),
    "a * [i != j]": binary("*", A, binary("!=", I, J)),
    "a[i] * [i < j]": binary("*", Read("a", (I,)), binary("<", I, J)),
    "sum(i) [i >= j] * a": sums(I, of=binary("*", binary(">=", I, J), A)),
    "[a[i] > [i <= j]]": binary(">", Read("a", (I,)), binary("<=", I, J)),
    "select(i < j, a, b)": Select(binary("<", I, J), A, B),
    # Reads.
    "a[]": Read("a", ()),
    "a[b..]": Read("a", (Name("b", rest=True),)),
    "a[i * 2 + j - 1, 0 else -inf]": Read(
        "a",
        (binary("-", binary("+", binary("*", I, Number(2)), J), Number(1)), Number(0)),
        Number(float("-inf")),
    ),
    "a[i, b.. else c + 1]": Read("a", (I, Name("b", rest=True)), binary("+", C, Number(1))),
    "a[b[i]]": Read("a", (Read("b", (I,)),)),
    "max(i, j; ties = first) a[i]": Reduce(ReductionKind.MAX, (I, J), Read("a", (I,)), Ties.FIRST),
    "min(i; ties = share) b": Reduce(ReductionKind.MIN, (I,), B),
    "a[@p * |e| + j]": Read("a", (binary("+", binary("*", DeviceName("p"), Size("e")), J),)),
    "uniform[b.., i]": Uniform((Name("b", rest=True), I)),
    "|b..| * |c|": binary("*", Size("b", rest=True), Size("c")),
    "a - |c|": binary("-", A, Size("c")),
}


@pytest.mark.parametrize("text", EXPRESSIONS, ids=str)
def test_expression(text: str) -> None:
    assert expression(text) == EXPRESSIONS[text]
    assert expression(re.sub(r" (?=\W)|(?<=\W) ", "", text)) == EXPRESSIONS[text]


def declarations(text: str) -> dict[str, OperatorDecl | ParallelDecl | FunctionDecl]:
    return {declaration.name: declaration for declaration in parse_ops(Source("f.uop", text)).declarations}


def test_operator() -> None:
    found = declarations(OPS)
    linear = found["linear"]
    assert isinstance(linear, OperatorDecl)
    rest = DimDecl("b", rest=True)
    assert linear.inputs == (TensorDecl("x", (rest, DimDecl("i"))), TensorDecl("w", (DimDecl("o"), DimDecl("i"))))
    assert linear.outputs == (TensorDecl("y", (rest, DimDecl("o"))),)
    assert linear.torch == NativeCall("F.linear", (Name("x"), Name("w")))
    assert linear.doc == "Affine map over the last axis."
    assert (linear.attributes, linear.conditions, linear.evaluation) == ((), (), ())
    embedding = found["embedding"]
    assert isinstance(embedding, OperatorDecl)
    assert embedding.inputs[0] == TensorDecl("ids", (DimDecl("n", rest=True),), "v")
    add = found["add"]
    assert isinstance(add, OperatorDecl)
    assert add.inputs[0].dims == (DimDecl("b", rest=True, broadcast=True),)
    dropout = found["dropout"]
    assert isinstance(dropout, OperatorDecl)
    assert dropout.attributes == (AttributeDecl("p", 0.1),)
    assert [statement.value for statement in dropout.evaluation] == [Read("x", (Name("b", rest=True),))]
    norm = found["layer_norm"]
    assert isinstance(norm, OperatorDecl)
    assert norm.torch == NativeCall("F.layer_norm", (Name("x"), NativeList((Size("c"),))), (("eps", Name("eps")),))


def test_strings_in_native_calls() -> None:
    text = 'op f(x: [b..]) -> y: [b..]\n  y[b..] = x[b..]\n  torch: F.pad(x, [0, 1], "reflect", mode = "a # b")\n'
    (found,) = parse_ops(Source("f.uop", text)).declarations
    assert isinstance(found, OperatorDecl)
    pads = NativeList((Number(0), Number(1)))
    keywords = (("mode", NativeString("a # b")),)
    assert found.torch == NativeCall("F.pad", (Name("x"), pads, NativeString("reflect")), keywords)
    assert 'F.pad(x, [0, 1], "reflect", mode="a # b")' in format_ops(Source("f.uop", text))


def test_conditions_of_the_header_and_of_the_body_are_one_list() -> None:
    conv = declarations(OPS)["conv2d"]
    assert isinstance(conv, OperatorDecl)
    assert [condition.arguments[0] for condition in conv.conditions if isinstance(condition, Apply)] == [
        Name("q"),
        Name("p"),
        Name("s"),
    ]
    assert conv.attributes == (AttributeDecl("stride", 1), AttributeDecl("pad", 0))


def test_extern_operator() -> None:
    text = (
        "extern op best(x: [b.., c]) -> i: int<c>[b..]\n  where c > 1\n  numpy: np.negative(x)\n  axes: b..\n"
        "  torch: torch.argsort(x, stable=True)\n"
    )
    (found,) = parse_ops(Source("f.uop", text)).declarations
    assert isinstance(found, OperatorDecl) and found.extern and found.statements == ()
    assert found.declared == (Name("b", rest=True),)
    assert found.torch == NativeCall("torch.argsort", (Name("x"),), (("stable", Name("True")),))
    assert found.numpy == NativeCall("np.negative", (Name("x"),))
    assert len(found.conditions) == 1


def test_an_extern_operator_without_axes_is_never_divided() -> None:
    text = "extern op f(x: [c]) -> i: int<c>[]\n  torch: torch.argsort(x)\n"
    (found,) = parse_ops(Source("f.uop", text)).declarations
    assert isinstance(found, OperatorDecl) and found.declared == ()


def test_parallel_operator() -> None:
    partition = declarations(OPS)["partition"]
    assert isinstance(partition, ParallelDecl)
    assert (partition.degrees, partition.attributes) == (("p",), (AttributeDecl("dim"),))
    assert partition.outputs[0].dims[:2] == (DimDecl("p", device=True), DimDecl("f", rest=True))
    assert partition.statements[0].index[0] == DeviceName("p")


def test_function() -> None:
    found = declarations(OPS)
    relu, exp = found["relu"], found["exp"]
    assert isinstance(relu, FunctionDecl) and isinstance(exp, FunctionDecl)
    assert relu.definition == Apply("maximum", (Name("x"), Number(0)))
    assert relu.derivatives == (("x", Apply(">", (Name("x"), Number(0)))),)
    assert (exp.definition, exp.numpy) == (None, NativeCall("np.exp", (Name("x"),)))
    assert declarations("fn f(a, b)\nfn g(a)\n").keys() == {"f", "g"}


def test_facts_stand_among_the_clauses_of_a_function() -> None:
    text = """\
fn f(x) = x
  fact f(-a) == -f(a)
  derivative x: 1
  fact f(a) * b >= 0 where a > 0, b >= 0
"""
    function = declarations(text)["f"]
    assert isinstance(function, FunctionDecl)
    a, b, zero = Name("a"), Name("b"), Number(0)
    odd = Apply("==", (Apply("f", (Apply("neg", (a,)),)), Apply("neg", (Apply("f", (a,)),))))
    product = Apply("*", (Apply("f", (a,)), b))
    conditions = (Apply(">", (a, zero)), Apply(">=", (b, zero)))
    assert function.facts == (FactDecl(odd), FactDecl(Apply(">=", (product, zero)), conditions))
    assert function.facts[1].span is not None
    assert function.facts[1].span.text.strip() == "fact f(a) * b >= 0 where a > 0, b >= 0"
    assert format_ops(Source("f.uop", text)) == text
    assert format_ops(Source("f.uop", text.replace(" == ", "==").replace("fact ", "fact  "))) == text


def test_an_operator_may_have_no_inputs_and_several_outputs() -> None:
    found = declarations("op f(; n) -> y: [i], z: []\n  where i == n\n  y[i] = i\n  z[] = n\n")["f"]
    assert isinstance(found, OperatorDecl)
    assert (found.inputs, len(found.outputs), len(found.statements)) == ((), 2, 2)


def test_doc_comments_stand_directly_above() -> None:
    body = "(x: [i]) -> y: [i]\n  y[i] = x[i]\n"
    found = declarations(
        f"## file\n\n## one\n##  two\n##\nop a{body}## not this\n\nop b{body}# nor this\nop c{body}## d\nop d{body}"
        f"## lost\n# between\nop e{body}op f{body.rstrip()}  ## trailing\nop g{body}"
    )
    docs = [found[name].doc for name in "abcdefg"]
    assert docs == ["one\n two\n", "", "", "d", "", "", ""]


def test_an_empty_text_declares_nothing() -> None:
    assert parse_ops(Source("f.uop", "")) == parse_ops(Source("f.uop", "\n# nothing\n")) == OpsFile(())


def texts(*spanned: object) -> list[str]:
    return [item.span.text for item in spanned]  # type: ignore[attr-defined]


def test_spans() -> None:
    text = "op f(x: [b.., i]; p = -1) -> y: [b..] where i == 2\n  y[b..] = sum(i) (x[b.., i] + 1) * p  # note\n"
    operator = parse_ops(Source("f.uop", text)).declarations[0]
    assert isinstance(operator, OperatorDecl)
    (statement,) = operator.statements
    assert texts(operator, *operator.inputs, *operator.inputs[0].dims, *operator.attributes) == [
        text.split("  # note")[0], "x: [b.., i]", "b..", "i", "p = -1",
    ]  # fmt: skip
    assert texts(*operator.conditions, statement, *statement.index) == [
        "i == 2", "y[b..] = sum(i) (x[b.., i] + 1) * p", "b..",
    ]  # fmt: skip
    reduction = statement.value
    assert isinstance(reduction, Reduce) and isinstance(reduction.body, Apply)
    assert texts(reduction, *reduction.axes, reduction.body, *reduction.body.arguments) == [
        "sum(i) (x[b.., i] + 1) * p", "i", "(x[b.., i] + 1) * p", "(x[b.., i] + 1)", "p",
    ]  # fmt: skip
    assert str(statement.span) == "f.uop:2:3"


def test_spans_take_no_part_in_equality() -> None:
    assert parse_ops(Source("a", OPS)) == parse_ops(Source("b", "\n\n# moved\n" + OPS))
    assert hash(expression("a * b")) == hash(expression("a   *  (b)"))


@pytest.mark.parametrize("path", sorted(folder("ops").glob("*.uop")), ids=lambda path: path.name)
def test_shipped_operators_parse(path: object) -> None:
    assert parse_ops(read_source(path)).declarations  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "else", "select", "uniform", "inf", "where", "op"])
def test_keywords_are_no_names(name: str) -> None:
    with pytest.raises(InputError, match="E012"):
        parse_ops(Source("f", f"op f({name}: [i]) -> y: [i]\n  y[i] = 1\n"))

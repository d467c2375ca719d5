"""Rewritten models against the original models, both evaluated in NumPy from the operators' declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random

import numpy as np
import pytest

from tests.fuzz.models import random_model
from tests.prove.cases import library, rule_of, rules_of
from unity_dsl.graph.graph import Model, Segment
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_forms import expressions, rest_groups
from unity_dsl.rules.graph_identity import Identities
from unity_dsl.rules.substitution import Substitution, substitution_of
from unity_dsl.syntax.ast import Name
from unity_dsl.syntax.parse_rules import GraphExpr, RuleDecl

from .models import (
    LAWS,
    Draw,
    coarse,
    evaluated,
    model_of,
    normal,
    positive,
    random_rewritings,
    rewritten,
    substitution,
)
from .side_models import build


def one(rule: str, model: Model) -> Model:
    """The only rewritten model that a rule gives, compared with the original."""
    (made,) = rewritten(rule, model)
    assert isinstance(made, Model), made
    check(model, made)
    return made


def check(model: Model, made: Model, seed: int = 1, draw: Draw = normal) -> None:
    """Asserts that both models have the same inputs, weights, output names and, where the original has values, results.

    If the original lacks some values at the drawn numbers, positive numbers are tried, at which it must have all.
    """
    assert {name: weight.value for name, weight in made.weights()} == {n: w.value for n, w in model.weights()}
    assert {source.value for source in made.graph.inputs} == {source.value for source in model.graph.inputs}
    assert made.output_names == model.output_names
    if not compare(model, made, seed, draw):
        assert compare(model, made, seed, positive), "the model has no value at positive numbers"


def compare(model: Model, made: Model, seed: int, draw: Draw) -> bool:
    """Asserts equal results wherever `model` has a value. Returns whether it has values everywhere."""
    left, right = evaluated(model, seed, draw), evaluated(made, seed, draw)
    whole = True
    for array, other in (
        (left.loss, right.loss),
        *((left.outputs[name], right.outputs[name]) for name in left.outputs),
    ):
        valued = ~np.isnan(array)
        assert np.shape(other) == np.shape(array)
        np.testing.assert_allclose(np.asarray(other)[valued], np.asarray(array)[valued], rtol=1e-8, atol=1e-10)
        whole &= bool(valued.all())
    return whole


def operators(model: Model) -> list[str]:
    return [node.instance.name for node in model.graph.nodes()]


# ---------------------------------------------------------------------------------------------- the proved rules

USABLE = [rule for rule in rules_of("proved") if isinstance(substitution_of(rule, library()), Substitution)]


def lost(rule: RuleDecl) -> bool:
    """Whether the right side does not read an input of the left: a model of the left side alone would not read it."""
    left, right = (set(inputs_of(rule, side)) for side in (rule.left, rule.right))
    return not left <= right


def inputs_of(rule: RuleDecl, side: tuple[GraphExpr, ...]) -> Iterator[str]:
    definitions = dict(rule.definitions)
    for expr in expressions(replace(rule, definitions=(), left=side, right=())):
        if isinstance(expr, Name) and expr.name in definitions:
            yield from inputs_of(rule, (definitions[expr.name],))
        elif isinstance(expr, Name):
            yield expr.name


EXACT = {"large_number_added_and_taken_off": coarse}
"""Rules whose left side rounds in float64, with draws at which it is exact."""
FLAT = ("steps_of_either_order",)
"""Rules of functions with zero derivative. A model whose weights only these read is refused, as it would not train."""
RANKED = [
    (rule, rank) for rule in USABLE if rule.name not in FLAT for rank in (range(4) if rest_groups(rule) else range(1))
]


@pytest.mark.parametrize(("rule", "rank"), RANKED, ids=lambda part: getattr(part, "name", part))
def test_the_right_side_stands_for_the_left(rule: RuleDecl, rank: int) -> None:
    found = substitution(rule)
    for seed in range(2):
        model = model_of(found, dict.fromkeys(found.groups, rank), seed)
        results = rewritten(rule, model)
        assert results
        for made in results:
            if lost(rule):
                assert isinstance(made, str) and "never read" in made
                continue
            assert isinstance(made, Model), made
            check(model, made, seed, EXACT.get(rule.name, normal))
            assert Identities().of(made)


def test_the_laws_are_true() -> None:
    assert all(isinstance(prove_rule(rule_of(law), library()), Proved) for law in LAWS)


@pytest.mark.parametrize("seed", range(30))
def test_random_models_keep_what_they_compute(seed: int) -> None:
    """A chain of random rewritings preserves results and stored tensors."""
    rng = Random(seed)
    original = model = build(random_model(rng))
    for new in islice(random_rewritings(original, rng), 5):
        check(original, new, seed)
        assert [n.site for n in new.graph.nodes() if n.site] == [n.site for n in model.graph.nodes() if n.site]
        model = new


# ---------------------------------------------------------------------------------------------- sharing


def text(*lines: str, weights: str = "wv") -> Model:
    stored = [f"weight {name}: f32[4, 4] ~ normal(1)" for name in weights]
    body = ["model m[unused = 1]", *stored, *lines, "loss mse(y, y + shift(y; by=1) * y)", "output y"]
    return build("\n  ".join(body) + "\n")


ASSOCIATE = "rule r(x: [a, b], y: [b, c], z: [c, d])\n  matmul(matmul(x, y), z) => matmul(x, matmul(y, z))\n"
TWICE = "rule r(x: [a, b])\n  relu(relu(x)) => relu(x)\n"


def test_what_others_read_stays() -> None:
    made = one(ASSOCIATE, text("t = matmul(w, v)", "y = matmul(t, relu(w)) + t"))
    assert operators(made).count("matmul") == 3
    assert operators(one(ASSOCIATE, text("t = matmul(w, v)", "y = matmul(t, relu(w))"))).count("matmul") == 2


def test_what_is_there_already_is_used_again() -> None:
    """The model already computes `w + v`, so the right side reuses it."""
    rule = "rule r(x: [a, b], y: [b, c], z: [b, c])\n  matmul(x, y) + matmul(x, z) => matmul(x, y + z)\n"
    model = text("u = relu(v)", "s = v + u", "y = matmul(w, v) + matmul(w, u) - s")
    made = [new for new in rewritten(rule, model) if isinstance(new, Model)]
    assert len(made) == 2
    assert [operators(new).count("add") for new in made] == [2, 2]
    for new in made:
        check(model, new)


def test_values_keep_their_names_and_say_which_rule_made_them() -> None:
    made = one(ASSOCIATE, text("y = matmul(matmul(w, v), relu(w))"))
    (inner, outer) = [node for node in made.graph.nodes() if node.instance.name == "matmul"]
    assert (inner.name, outer.name) == ("y_matmul", "y")
    assert inner.rule == outer.rule == "r"
    assert inner.span is not None and inner.span.text == "matmul(matmul(w, v), relu(w))"
    assert {node.rule for node in made.graph.nodes()} == {None, "r"}
    assert made.graph.weights[0].value.needs_gradient and inner.results[0].needs_gradient


def test_fresh_names_are_no_names_of_the_model() -> None:
    made = one(ASSOCIATE, text("y_matmul = relu(w)", "y = matmul(matmul(w, v), y_matmul)"))
    names = [value.name for node in made.graph.nodes() for value in node.results]
    assert len(set(names)) == len(names) and "y_matmul_2" in names


def test_gradients_are_marked_anew() -> None:
    model = build(
        "model m[unused = 1]\n  input x: f32[2, 4]\n  input t: f32[2, 4]\n  buffer v: f32[4, 4] ~ normal(1)\n"
        "  weight w: f32[4, 4] ~ normal(1)\n  loss mse(matmul(matmul(x, v), w), t)\n"
    )
    made = one(ASSOCIATE, model)
    marks = {node.name: node.results[0].needs_gradient for node in made.graph.nodes()}
    assert list(marks.values()) == [True, True, True]
    back = "rule r(x: [a, b], y: [b, c], z: [c, d])\n  matmul(x, matmul(y, z)) => matmul(matmul(x, y), z)\n"
    marks = {node.name: node.results[0].needs_gradient for node in one(back, made).graph.nodes()}
    assert list(marks.values()) == [False, True, True]


# ---------------------------------------------------------------------------------------------- results that are there


def test_a_result_may_be_a_value_that_is_there() -> None:
    made = one(TWICE, text("t = relu(w)", "y = relu(t) * v"))
    assert operators(made).count("relu") == 1
    made = one(TWICE, text("y = relu(relu(w * v))"))  # an output, under its own name
    assert operators(made).count("relu") == 1 and made.output_names == ("y",)


def test_a_weight_stands_in_for_an_output_by_a_copy() -> None:
    same = "rule r(x: [a, b])\n  maximum(x, x) => x\n"
    made = one(same, text("y = maximum(w, w)", weights="w"))
    assert "rearrange" in operators(made)
    made = one(same, text("y = relu(maximum(w, w))", weights="w"))
    assert "rearrange" not in operators(made)


REPEAT = """model m[unused = 1]
  input t: f32[4, 4]
  weight first: f32[4, 4] ~ normal(1)
  a = relu(first)
  x = a
  z = tanh(first)
  repeat 3 as layer
    weight w: f32[4, 4] ~ normal(1)
    BODY
  loss mse(x + z, t)
  output x
"""


def repeated(*lines: str) -> Model:
    return build(REPEAT.replace("BODY", "\n    ".join(lines)))


def body(model: Model) -> list[str]:
    (segment,) = [step for step in model.graph.steps if isinstance(step, Segment)]
    return operators(Model("body", segment.body, model.loss, (), {}))


def test_a_body_is_changed_for_all_iterations() -> None:
    made = one(ASSOCIATE, repeated("x = matmul(matmul(x, w), a)"))
    assert body(made) == ["matmul", "matmul"]
    made = one(ASSOCIATE, repeated("x = matmul(matmul(x, w), relu(w))", "z = z + x"))
    assert body(made) == ["relu", "matmul", "matmul", "add"]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["x = relu(relu(linear(x, w)))"], ["linear", "relu"]),
        (["q = linear(x, w)", "z = relu(q)", "x = relu(z)"], ["linear", "relu", "rearrange"]),
        (["q = linear(x, w) + z", "x = relu(relu(q))", "z = tanh(x)"], ["linear", "add", "relu", "tanh"]),
    ],
    ids=["the value within", "two carried values need two", "read again"],
)
def test_what_a_body_leaves_is_made_in_it(lines: list[str], wanted: list[str]) -> None:
    assert body(one(TWICE, repeated(*lines))) == wanted


def test_an_entry_stands_in_for_what_leaves_by_a_copy() -> None:
    same = "rule r(x: [a, b])\n  maximum(x, x) => x\n"
    model = repeated("z = linear(z, w)", "q = maximum(x, x)", "x = q")
    assert body(one(same, model)) == ["linear", "rearrange"]


def test_a_repeat_reads_what_stands_in_outside() -> None:
    made = one(
        TWICE, build(REPEAT.replace("a = relu(first)", "a = relu(relu(first))").replace("BODY", "x = linear(x, w) + a"))
    )
    assert operators(made).count("relu") == 1


def test_what_a_body_carries_is_not_taken_for_its_start() -> None:
    """The replacement outside is `x`, but in the body `x` is the result of the previous iteration."""
    text = REPEAT.replace("x = a\n", "x = relu(first)\n").replace("a = relu(first)", "b = tanh(first)")
    text = text.replace("z = tanh(first)", "z = tanh(first)\n  r = relu(x)").replace("BODY", "x = linear(x, w) + r * b")
    model = build(text)
    (segment,) = [step for step in model.graph.steps if isinstance(step, Segment)]
    assert [value.name for value in segment.initial] == [value.name for value in segment.entry] == ["x"]
    made = one(TWICE, model)
    assert operators(made).count("rearrange") == 1


def test_a_name_of_the_body_is_not_taken_for_one_outside() -> None:
    """Outside and body each have a `relu_1`; the replacement outside is a copy that the body can read."""
    model = build(
        REPEAT.replace("a = relu(first)", "a = relu(relu(first))").replace(
            "BODY", "x = linear(relu(x) - tanh(x), w) + a"
        )
    )
    names = [node.name for node in model.graph.nodes()]
    assert names.count("relu_1") == 2
    one(TWICE, model)


# ---------------------------------------------------------------------------------------------- several results

PAIR = (
    "rule pair(x: [a, n], y: [b, n])\n"
    "  both = relu(concat(x, y; dim=0))\n"
    "  first = slice(both; dim=0, start=0, stop=a)\n"
    "  second = slice(both; dim=0, start=a, stop=a + b)\n"
    "  relu(x), relu(y) => first, second\n"
)


def test_several_results_are_replaced_together() -> None:
    model = text("y = relu(w) * relu(v)")
    made = [new for new in rewritten(PAIR, model) if isinstance(new, Model)]
    assert len(made) == 2
    for new in made:
        check(model, new)
        assert operators(new).count("relu") == 1


def test_results_that_need_each_other_are_not_joined() -> None:
    """The second operand is computed from the first result."""
    results = rewritten(PAIR, text("y = relu(linear(relu(w), v))"))
    assert len(results) == 2
    assert all(made == "a result would be computed from itself" for made in results)


def test_results_made_of_one_value() -> None:
    rule = "rule r(x: [a, b], w: [c, b])\n  t = linear(x, w)\n  t, linear(x, 3 * w) => t, 3 * t\n"
    made = one(rule, text("y = linear(w, v) - linear(w, 3 * v)"))
    assert operators(made).count("linear") == 1


# ---------------------------------------------------------------------------------------------- refusals


def test_a_weight_is_never_lost() -> None:
    rule = "rule r(x: [m, k], y: [l, k])\n  slice(concat(x, y; dim=0); dim=0, start=m, stop=m + l) => y\n"
    model = text("y = slice(concat(w, v; dim=0); dim=0, start=4, stop=8)")
    assert rewritten(rule, model) == ["weight `w` is never read"]


def test_random_numbers_stay_what_they_are() -> None:
    """Random sites keep their numbers if operators before them change; none is dropped."""
    model = text("y = dropout(matmul(matmul(w, v), dropout(relu(w))))")
    made = one(ASSOCIATE, model)
    sites = [{node.name: node.site for node in each.graph.nodes() if node.site} for each in (model, made)]
    assert sites[0] == sites[1] and len(sites[0]) == 2
    rule = "rule r(x: [m, k], y: [l, k])\n  slice(concat(x, y; dim=0); dim=0, start=m, stop=m + l) => y\n"
    model = text("y = w - slice(concat(dropout(v + w), v; dim=0); dim=0, start=4, stop=8)")
    (refused,) = rewritten(rule, model)
    assert isinstance(refused, str) and refused.startswith("a random operator")


def test_types_are_not_mixed() -> None:
    stored = ["weight w: bf16[4, 4] ~ ones", "weight v: bf16[4, 4] ~ ones"]
    model = text(*stored, "y = matmul(matmul(w, v), relu(w))", weights="")
    made = one(ASSOCIATE, model)
    assert {node.results[0].dtype for node in made.graph.nodes()} == {"bf16"}


# ---------------------------------------------------------------------------------------------- identity


def orders() -> Iterator[Model]:
    yield text("p = relu(w)", "q = tanh(v)", "y = p * q")
    yield text("b = tanh(v)", "a = relu(w)", "y = a * b")


def test_models_are_the_same_up_to_names_and_order() -> None:
    identities = Identities()
    assert len({identities.of(model) for model in orders()}) == 1
    others = [
        text("y = relu(w) * tanh(v)"),
        text("y = tanh(v) * relu(w)"),
        text("y = relu(v) * tanh(w)"),
        text("y = relu(w) * tanh(v) + relu(w)"),
        text("p = relu(w)", "y = p * tanh(v) + p"),
        repeated("x = linear(x, w)"),
        repeated("x = linear(x, w) + z"),
    ]
    assert len({identities.of(model) for model in others}) == len(others)
    assert identities.of(next(orders())) == identities.of(others[0])


def test_there_and_back_is_the_same_model() -> None:
    model = text("y = matmul(matmul(w, v), relu(w))")
    back = "rule r(x: [a, b], y: [b, c], z: [c, d])\n  matmul(x, matmul(y, z)) => matmul(matmul(x, y), z)\n"
    made = one(back, one(ASSOCIATE, model))
    identities = Identities()
    assert identities.of(made) == identities.of(model) != identities.of(one(ASSOCIATE, model))


# ---------------------------------------------------------------------------------------------- several results

CELL = "rule r(z: [b, 4, d], c: [b, d])\n  lstm_cell(relu(z), c) => lstm_cell(z, c)\n"
HIDDEN = "rule r(z: [b, 4, d], c: [b, d])\n  n, h = lstm_cell(z, c)\n  relu(h) => {}\n"


def cells(*lines: str) -> Model:
    stored = ["weight z: f32[3, 4, 5] ~ normal(1)", "weight c: f32[3, 5] ~ normal(1)"]
    body = ["model m[unused = 1]", *stored, *lines, "loss mse(y, y + shift(y; by=1))", "output y"]
    return build("\n  ".join(body) + "\n")


def test_all_results_of_a_call_are_replaced_and_keep_their_names() -> None:
    model = cells("n, h = lstm_cell(relu(z), c)", "y = n * h")
    (made,) = [new for new in rewritten(CELL, model) if isinstance(new, Model)]
    (node,) = [node for node in made.graph.nodes() if node.instance.name == "lstm_cell"]
    assert [value.name for value in node.results] == ["n", "h"] and node.rule == "r"
    assert "relu" not in operators(made)


def test_one_result_is_read_where_the_others_stay() -> None:
    model = cells("n, h = lstm_cell(z, c)", "y = n * relu(h)")
    made = one(HIDDEN.format("relu(relu(h))"), model)
    assert operators(made).count("lstm_cell") == 1
    assert operators(one(HIDDEN.format("n + relu(h) - n"), model)).count("lstm_cell") == 1


def test_a_result_is_replaced_while_another_is_read() -> None:
    rule = "rule r(z: [b, 4, d], c: [b, d])\n  n, h = lstm_cell(z, c)\n  h => h + (n - n)\n"
    made = one(rule, cells("n, h = lstm_cell(z, c)", "y = n * h"))
    assert "h" in {value.name for node in made.graph.nodes() for value in node.results}


def test_results_of_different_calls_are_not_taken_for_one() -> None:
    rule = "rule r(z: [b, 4, d], c: [b, d])\n  n, h = lstm_cell(z, c)\n  n + h => h + n\n"
    model = cells("n, h = lstm_cell(z, c)", "m, g = lstm_cell(relu(z), c)", "y = n + g + m + h")
    assert rewritten(rule, model) == []

"""Matches of rules in models, against brute force over all bindings and case by case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product as combinations
from random import Random

import pytest

from tests.prove.cases import library, rule_of, rules_of
from unity_dsl.graph.graph import Model, Node
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.rules.graph_match import Match, TooMany, is_commutative, matches
from unity_dsl.rules.rewrite import rewrite
from unity_dsl.rules.substitution import substitution_of
from unity_dsl.syntax.ast import Name
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, RuleDecl
from unity_dsl.syntax.span import Source

from .models import substitution
from .side_models import build


def found(rule: str | RuleDecl, model: Model) -> list[Match]:
    return list(matches(substitution(rule if isinstance(rule, RuleDecl) else rule_of(rule)), model))


def model_of(*lines: str) -> Model:
    """A model of the given lines with the output `y`. Weights w, v: [4, 4] are declared if they are used."""
    body = "\n".join(f"  {line}" for line in lines)
    stored = [f"  weight {name}: f32[4, 4] ~ normal(1)" for name in "wv" if re.search(rf"\b{name}\b", body)]
    last = ["  loss mse(y, y + shift(y; by=1))", "  output y"]
    return build("\n".join(["model m[unused = 1]", *stored, body, *last]) + "\n")


# ---------------------------------------------------------------------------------------------- brute force

SQUARE = [
    "rule a(x: [n, n], y: [n, n], z: [n, n])\n  matmul(x, y + z) => matmul(x, y) + matmul(x, z)\n",
    "rule b(x: [n, n], y: [n, n], z: [n, n])\n  matmul(x, y) + matmul(x, z) => matmul(x, y + z)\n",
    "rule c(x: [n, n], y: [n, n], z: [n, n])\n  matmul(matmul(x, y), z) => matmul(x, matmul(y, z))\n",
    "rule d(x: [n, n])\n  relu(relu(x)) => relu(x)\n",
    "rule e(x: [n, n], y: [n, n])\n  x * y + x => x * (y + 0 * y) + x\n",
    "rule f(x: [n, n], y: [n, n], z: [n, n])\n  t = y + z\n  relu(t), matmul(x, t) => relu(t), matmul(x, t)\n",
    "rule g(x: [n, n], y: [n, n])\n  matmul(x, y), matmul(x, x) => matmul(x, y), matmul(x, x)\n",
]


MOTIFS = [
    ("matmul({p}, {q})", "matmul({p}, {r})", "{last} + {first}"),
    ("{p} * {q}", "{p} + {last}"),
    ("{p} + {q}", "relu({last})", "matmul({r}, {first})"),
]
"""Lines on which rules match: `first` is the result of the first line, `last` the result of the previous one."""


def random_squares(rng: Random) -> Model:
    """A random graph of operators on matrices of one size. A final difference of all values keeps every one alive."""
    values, lines = ["w", "v"], []
    for motif in rng.sample(MOTIFS, 2):
        p, q, r = (rng.choice(values[-3:]) for _ in "pqr")
        first = f"x{len(lines)}"
        for expr in motif:
            lines.append(f"x{len(lines)} = {expr.format(p=p, q=q, r=r, last=values[-1], first=first)}")
            values.append(f"x{len(lines) - 1}")
    for number in range(len(lines), 8):
        operator = rng.choice(["add", "mul", "matmul", "matmul", "relu", "relu"])
        arguments = [rng.choice(values[-3:]) for _ in range(1 if operator == "relu" else 2)]
        lines.append(f"x{number} = {operator}({', '.join(arguments)})")
        values.append(f"x{number}")
    return model_of(*lines, "y = " + " - ".join(values))


def by_brute_force(rule: RuleDecl, model: Model) -> set[tuple[object, ...]]:
    """All matches, by trying every binding of inputs and local names at every tuple of different results."""
    nodes = {n.results[0].name: n for n in model.graph.nodes() if n.instance.name in ("add", "mul", "matmul", "relu")}
    square = [value.name for value in (*_stored(model), *_results(nodes)) if value.shape == (4, 4)]
    definitions = dict(rule.definitions)
    names = [tensor.name for tensor in rule.inputs] + list(definitions)

    def alias_result(expr: GraphExpr, value: str, bound: dict[str, str]) -> bool:
        if isinstance(expr, Name):
            return bound[expr.name] == value
        assert isinstance(expr, GraphCall)
        node = nodes.get(value)
        if node is None or node.instance.name != expr.name:
            return False
        given = [number.value for _, number in expr.attributes]  # type: ignore[union-attr]
        if given != list(node.instance.attributes.values()):
            return False
        operands = [argument.name for argument in node.arguments]
        orders = [operands, operands[::-1]] if expr.name in ("add", "mul") else [operands]
        return any(
            all(alias_result(part, operand, bound) for part, operand in zip(expr.arguments, order, strict=True))
            for order in orders
        )

    hits: set[tuple[object, ...]] = set()
    for binding in combinations(square, repeat=len(names)):
        bound = dict(zip(names, binding, strict=True))
        if not all(alias_result(expr, bound[name], bound) for name, expr in definitions.items()):
            continue
        places = [[value for value in square if alias_result(expr, value, bound)] for expr in rule.left]
        hits |= {(roots, binding) for roots in combinations(*places) if len(set(roots)) == len(roots)}
    return hits


def _stored(model: Model) -> Iterator[object]:
    return (weight.value for weight in model.graph.weights)


def _results(nodes: dict[str, Node]) -> Iterator[object]:
    return (node.results[0] for node in nodes.values())


@pytest.mark.parametrize("text", SQUARE, ids="abcdefg")
def test_matches_are_those_of_brute_force(text: str) -> None:
    rule = rule_of(text)
    names = [tensor.name for tensor in rule.inputs] + [name for name, _ in rule.definitions]
    hits = 0
    for seed in range(20):
        model = random_squares(Random(seed))
        own = {
            (tuple(root.name for root in match.roots), tuple(match.values[name].name for name in names))
            for match in found(rule, model)
        }
        assert own == by_brute_force(rule, model), f"seed {seed}"
        hits += len(own)
    assert hits >= 5


# ---------------------------------------------------------------------------------------------- sizes

JOINED = rule_of(
    "rule joined(x: [m + l, k])\n"
    "  concat(slice(x; dim=0, start=0, stop=m), slice(x; dim=0, start=m, stop=m + l); dim=0) => x\n"
)


@pytest.mark.parametrize(("first", "second", "wanted"), [("1", "1", 1), ("3", "3", 1), ("2", "1", 0), ("1", "2", 0)])
def test_attributes_say_how_large_the_parts_are(first: str, second: str, wanted: int) -> None:
    """Only where the second part begins at the end of the first."""
    parts = f"slice(w; dim=0, start=0, stop={first})", f"slice(w; dim=0, start={second}, stop=4)"
    model = model_of(f"y = relu(concat({parts[0]}, {parts[1]}; dim=0))")
    assert len(found(JOINED, model)) == wanted


def test_dimensions_count_from_either_end() -> None:
    rule = "rule r(x: [a, b], y: [a, c])\n  relu(concat(x, y; dim=-1)) => concat(relu(x), relu(y); dim=-1)\n"
    assert len(found(rule, model_of("y = relu(concat(w, v; dim=1))"))) == 1
    assert not found(rule, model_of("y = relu(concat(w, v; dim=0))"))


@pytest.mark.parametrize(("condition", "wanted"), [("k >= 4", 1), ("k >= 5", 0), ("m == k", 1), ("m > k", 0)])
def test_conditions_are_asked_of_the_sizes(condition: str, wanted: int) -> None:
    rule = f"rule r(x: [m, k])\n  where {condition}\n  relu(relu(x)) => relu(x)\n"
    assert len(found(rule, model_of("y = relu(relu(w))"))) == wanted


def test_constants_and_defaults_are_compared() -> None:
    rule = "rule r(x: [m, k])\n  3 * (x * 0.5) => 1.5 * x\n"
    assert len(found(rule, model_of("y = 3 * (w / 2)"))) == 1
    assert not found(rule, model_of("y = 3 * (w / 4)"))
    rule = "rule n(x: [m, k], y: [l, k], g: [k], s: [k])\n  layer_norm(relu(x), g, s) => layer_norm(relu(x), g, s)\n"
    rule = rule.replace("y: [l, k], ", "")
    lines = ["weight g: f32[4] ~ ones", "weight s: f32[4] ~ ones"]
    assert len(found(rule, model_of(*lines, "y = layer_norm(relu(w), g, s)"))) == 1
    assert not found(rule, model_of(*lines, "y = layer_norm(relu(w), g, s; eps=0.1)"))


def test_a_factor_of_sizes_is_compared_as_a_number() -> None:
    rule = "rule r(x: [m, k])\n  scale(reduce_sum(x[i, j] -> [i]); factor=1 / k) => reduce_mean(x[i, j] -> [i])\n"
    tail = "[a] -> [a, 1] + w"
    assert len(found(rule, model_of(f"y = (reduce_sum(w[a, b] -> [a]) / 4){tail}"))) == 1
    assert not found(rule, model_of(f"y = (reduce_sum(w[a, b] -> [a]) / 2){tail}"))


def test_other_shapes_do_not_fit() -> None:
    """The model adds a vector to every row, but the rule adds two matrices."""
    rule = "rule r(x: [a, b], y: [a, b])\n  relu(x + y) => relu(y + x)\n"
    assert len(found(rule, model_of("y = relu(w + v)"))) == 2
    assert not found(rule, model_of("weight b: f32[4] ~ ones", "y = relu(w + b)"))


def test_integers_and_floats_are_told_apart() -> None:
    rule = rule_of("rule r(ids: int<v>[n], w: [v, d])\n  relu(embedding(ids, w)) => embedding(ids, relu(w))\n")
    model = model_of("input ids: int<4>[7]", "y = relu(embedding(ids, w))")
    assert len(found(rule, model)) == 1
    assert not found(rule, model_of("input ids: int<3>[7]", "y = relu(embedding(ids, w))"))


# ---------------------------------------------------------------------------------------------- patterns

HEADS = rule_of(
    "rule heads(x: [b, h * k])\n"
    "  relu(x[b, (h k)] -> [b, h, k])[b, h, k] -> [h, b, k] => (relu(x)[b, (h k)] -> [h, b, k])\n"
)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("relu(w[b, (h=2 k)] -> [b, h, k])[b, h, k] -> [h, b, k]", 1),
        ("relu(w[p, (q=2 r)] -> [p, q, r])[p, q, r] -> [q, p, r]", 1),
        ("relu(w[b, (h=2 k)] -> [b, h, k])[b, h, k] -> [h, k, b]", 0),
        ("relu(w[(h=2 k), b] -> [b, h, k])[b, h, k] -> [h, b, k]", 0),
        ("relu(w[b, (k=2 h)] -> [b, h, k])[b, h, k] -> [h, b, k]", 0),
    ],
)
def test_patterns_fit_up_to_the_names_of_axes(line: str, wanted: int) -> None:
    model = model_of(f"t = {line}", "y = relu(t[a, b, c] -> [(a c), b])")
    assert len(found(HEADS, model)) == wanted


def test_a_view_that_changes_nothing_is_none() -> None:
    model = model_of("y = relu(w[a, b] -> [a, b])")
    assert next(model.graph.nodes()).instance.name == "relu"
    assert len(found("rule r(x: [a, b])\n  relu(x) => relu(x)\n", model)) == 1


# ---------------------------------------------------------------------------------------------- places

REPEATED = """model m[unused = 1]
  input t: f32[4, 4]
  weight first: f32[4, 4] ~ normal(1)
  x = relu(first)
  repeat 3 as layer
    weight w: f32[4, 4] ~ normal(1)
    x = relu(linear(relu(x), w))
  loss mse(relu(x), t)
"""


def test_a_match_lies_in_one_graph() -> None:
    """A loop body is matched once, by itself; relu of relu across two iterations is not matched."""
    model = build(REPEATED)
    twice = "rule r(x: [a, b])\n  relu(relu(x)) => relu(x)\n"
    assert not found(twice, model)
    inside = found("rule r(x: [a, b], w: [c, b])\n  linear(relu(x), w) => linear(relu(x), w)\n", model)
    assert [(match.path, match.place) for match in inside] == [(("layer",), "layer.linear_1")]
    assert inside[0].sizes == {"a": 4, "b": 4, "c": 4}


def test_operands_may_be_exchanged_where_the_declaration_says_so() -> None:
    operators = library().operators
    told = {name for name, operator in operators.items() if is_commutative(operator)}
    assert {"add", "mul"} <= told
    assert not told & {"sub", "div", "matmul", "linear", "concat", "relu", "embedding"}


# ---------------------------------------------------------------------------------------------- rules without a place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rule r(x: [p * e, n])\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n", "devices"),
        ("rule r(x: [b..])\n  relu(dropout(x)) => dropout(relu(x))\n", "random"),
        ("rule r(x: [b..])\n  x => relu(x)\n", "any tensor"),
        ("rule r(x: [b..], y: [b..])\n  t = x\n  t => relu(x)\n", "any tensor"),
        ("rule r(x: [b..], y: [b..])\n  relu(x) => x + 0 * y\n", "does not read `y`"),
        ("rule r(x: [p * e, c])\n  relu(x) => relu(x[(p e), c] -> [p, e, c])[p, e, c] -> [(p e), c]\n", "size `p`"),
    ],
)
def test_why_a_rule_is_not_used(text: str, reason: str) -> None:
    told = substitution_of(rule_of(text), library())
    assert isinstance(told, str) and reason in told


def test_most_proved_rules_can_be_used() -> None:
    told = {rule.name: substitution_of(rule, library()) for rule in rules_of("proved")}
    refused = {name: reason for name, reason in told.items() if isinstance(reason, str)}
    assert len(told) - len(refused) > 40
    assert {name for name, reason in refused.items() if "devices" not in reason} == {
        # A size that no tensor on the left determines.
        *("linear_slice_weights", "sum_range_split", "max_over_merged_axes"),
        *("batch_to_height", "batch_to_height_at_a_stride"),
        # The common factors that `a * b == c * d` implies for its sizes: the tensors determine only their products.
        *("mean_over_equal_numbers", "flat_tensors_of_one_size"),
        # Random operators, whose numbers are tied to one site of the model.
        *("dropout_of_divided_rows", "factor_through_dropout"),
    }


def test_a_proof_says_nothing_of_evaluation() -> None:
    text = "op noted(x: [b..]) -> y: [b..]\n  y[b..] = x[b..]\n  eval\n    y[b..] = x[b..] + 1\n"
    own = library_of([*library_sources(), Source("own.uop", text)])
    rule = rule_of("rule r(x: [b..])\n  relu(noted(x)) => relu(x)\n")
    told = substitution_of(rule, own)
    assert isinstance(told, str) and "in evaluation" in told


def test_looking_for_matches_ends() -> None:
    """Eight independent results match a model of thirty operators in 30^8 ways."""
    inputs = ", ".join(f"x{n}: [m, k]" for n in range(8))
    left = ", ".join(f"relu(x{n})" for n in range(8))
    rule = rule_of(f"rule r({inputs})\n  {left} => {left}\n")
    model = model_of("x0 = w", *(f"x{n + 1} = relu(x{n})" for n in range(30)), "y = x30")
    with pytest.raises(TooMany):
        list(matches(substitution(rule), model))


# ---------------------------------------------------------------------------------------------- real numbers


def numbers(rule: str, *lines: str) -> list[dict[str, str]]:
    """The values of a rule's real numbers, for every match."""
    made = substitution(rule_of(rule))
    told = found(rule, model_of(*lines))
    return [{name: str(match.numbers[name]) for name in sorted(made.reals)} for match in told]


def test_real_numbers_are_read_off_exactly() -> None:
    rule = "rule r(x: [a, b])\n  scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)\n"
    lines = "u = scale(w; factor=0.1)", "y = scale(u; factor=-3)"
    assert numbers(rule, *lines) == [{"c": "1/10", "d": "-3"}]


@pytest.mark.parametrize(
    ("condition", "factor", "matched"),
    [
        ("c >= 0", 0, True),
        ("c >= 0", -1, False),
        ("c != 0", 0, False),
        ("c <= 1 / b", 0.25, True),
        ("c <= 1 / b", 0.5, False),
        ("c == 0.1 * 3", 0.3, True),
        ("2 * c == 1", 0.25, False),
    ],
)
def test_a_number_meets_the_conditions(condition: str, factor: float, matched: bool) -> None:
    rule = f"rule r(x: [a, b])\n  where {condition}\n  relu(scale(x; factor=c)) => scale(relu(x); factor=c)\n"
    assert bool(numbers(rule, f"u = scale(w; factor={factor})", "y = relu(u)")) is matched


def test_a_number_stands_for_one_value() -> None:
    rule = "rule r(x: [a, b])\n  scale(scale(x; factor=c); factor=1 / c) => x\n"
    assert numbers(rule, "u = scale(w; factor=4)", "y = scale(u; factor=0.25)") == [{"c": "4"}]
    assert not numbers(rule, "u = scale(w; factor=4)", "y = scale(u; factor=0.5)")
    assert not numbers(rule, "u = scale(w; factor=0)", "y = scale(u; factor=0)")


def test_results_of_numbers_are_rounded_once() -> None:
    """0.1 * 3 is 0.3, not the rounded product of two floats."""
    rule = rule_of("rule r(x: [a, b])\n  scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)\n")
    model = model_of("u = scale(w; factor=0.1)", "y = scale(u; factor=3)")
    (match,) = found(rule, model)
    made = rewrite(model, match)
    assert isinstance(made, Model)
    assert [node.instance.attributes["factor"] for node in made.graph.nodes() if node.instance.name == "scale"] == [0.3]


@pytest.mark.parametrize("factor", ["1e-200", "1e200"])
def test_a_number_that_no_float_has_is_not_put_in(factor: str) -> None:
    rule = rule_of("rule r(x: [a, b])\n  scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)\n")
    model = model_of(f"u = scale(w; factor={factor})", f"y = scale(u; factor={factor})")
    (match,) = found(rule, model)
    assert rewrite(model, match) == "an attribute that no float has"


def test_a_number_that_the_left_side_leaves_open_is_told() -> None:
    rule = rule_of("rule r(x: [a])\n  where c > 0\n  scale(x; factor=c * c) => scale(scale(x; factor=c); factor=c)\n")
    assert substitution_of(rule, library()) == "nothing on its left determines the number `c`"

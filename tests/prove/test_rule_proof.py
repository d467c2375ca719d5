"""Known pitfalls of equality provers, and the three answers: proved, refuted, not proved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.index.equations.term_text import fact_text
from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.normal_form.form import Unsupported
from unity_dsl.prove.rule_proof import Prover, follow_rule, prove_rule
from unity_dsl.prove.translation.rule_forms import Graph, claim_of
from unity_dsl.prove.translation.symbolic_sizes import Failed
from unity_dsl.syntax.diagnostic import InputError

from .cases import library, rule_of


def answer(text: str) -> Proved | Refuted | NotProved:
    return prove_rule(rule_of(text), library())


def left_out(text: str) -> NotProved:
    """The answer to a rule that is neither proved nor refuted; asserts that it is NotProved."""
    found = answer(text)
    assert isinstance(found, NotProved), found
    return found


# ---------------------------------------------------------------------------------------------- sizes


def test_sizes_of_two_tensors_are_not_identified() -> None:
    """Parts of sizes k, l and of sizes l, k have equal totals, but their product differs unless k == l."""
    rule = """\
rule f(x: [m, k], y: [m, l], u: [l, n], v: [k, n]){}
  matmul(concat(x, y; dim=1), concat(u, v; dim=0)) => matmul(concat(y, x; dim=1), concat(v, u; dim=0))
"""
    assert isinstance(answer(rule.format("")), Refuted)
    assert isinstance(answer(rule.format("\n  where k == l")), Proved)


@pytest.mark.parametrize(
    "sides",
    [
        "stop(x) => x",
        "x => stop(x)",
        "x + stop(x) => scale(x; factor=2)",
        "stop(relu(x)) => relu(stop(x))",
        "relu(stop(x) - x) => scale(x; factor=0)",
        "straight_through(x, y) => x",
        "reverse_gradient(reverse_gradient(x)) => stop(x)",
        "exp(stop(x) + x) => exp(x + x)",
        "choose(lower, stop(x), x) => x",
    ],
)
def test_equal_values_with_other_gradients_are_not_equal(sides: str) -> None:
    inputs = "x: [n], y: [n]" + (", lower: int<2>[n]" if "lower" in sides else "")
    assert left_out(f"rule f({inputs})\n  {sides}\n").obligation == "same_value"


@pytest.mark.parametrize(
    "sides",
    [
        "stop(x) + y => y + stop(x)",
        "y + stop(x) - stop(x) => y",
        "exp(stop(x) + y) => exp(y) * exp(stop(x))",
        "stop(concat(x, y; dim=0)) => concat(stop(x), stop(y); dim=0)",
        "reverse_gradient(x)[n] -> [n, 1] => reverse_gradient(x[n] -> [n, 1])",
        "combine[p; dim=0](stop(partition[p; dim=0](u))) => stop(u)",
    ],
)
def test_what_does_not_look_into_a_surrogate_is_proved(sides: str) -> None:
    assert isinstance(answer(f"rule f(x: [n], y: [n], u: [p * m])\n  {sides}\n"), Proved)


def test_shapes_come_before_values() -> None:
    assert left_out("rule f(x: [m], y: [n])\n  x + y => y + x\n").obligation == "same_shape"
    assert isinstance(answer("rule f(x: [m], y: [n])\n  where m == n\n  x + y => y + x\n"), Proved)


def test_a_slice_must_lie_inside() -> None:
    text = "rule f(x: [m]){}\n  slice(x; dim=0, start=k, stop=k + n) => slice(x; dim=0, start=k, stop=k + n)\n"
    assert left_out(text.format("")).obligation in ("same_shape", "in_bounds")
    assert isinstance(answer(text.format("\n  where m >= k + n")), Proved)


def test_inputs_have_elements() -> None:
    assert isinstance(answer("rule f(x: [m - 5])\n  relu(relu(x)) => relu(x)\n"), Proved)
    assert left_out("rule f(x: [m - 5]) where m <= 5\n  x => relu(x)\n").obligation == "inhabited"
    assert left_out("rule f(x: [0])\n  x => relu(x)\n").obligation == "inhabited"
    assert left_out("rule f(x: [m % 2])\n  x => relu(x)\n").obligation == "same_shape"


def test_a_witness_that_is_too_large_to_run_proves_nothing() -> None:
    """A sum over 10^9 elements is too large. Elementwise rules are run at some positions, whatever their size."""
    sides = "reduce_sum(relu(relu(x))[m, k] -> [k]) => reduce_sum(relu(x)[m, k] -> [k])"
    text = f"rule f(x: [m, k]) where m >= {{}}\n  {sides}\n"
    assert isinstance(answer(text.format(100)), Proved)
    assert left_out(text.format(10**9)).obligation == "inhabited"
    assert isinstance(answer("rule f(x: [m, k]) where m >= 1000000000\n  relu(relu(x)) => relu(x)\n"), Proved)


def test_a_degree_must_divide() -> None:
    found = left_out("rule f(x: [m])\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n")
    assert found.obligation in ("divides", "same_shape")
    text = "rule f(x: [m])\n  where m == p * e\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n"
    assert isinstance(answer(text), Proved)


@pytest.mark.parametrize("where", ["m == 2 * k, k == 2 * m", "m >= k + 1, k >= m + 1", "m * m == 2 * k * k"])
def test_contradictory_conditions_prove_nothing(where: str) -> None:
    assert left_out(f"rule f(x: [m, k])\n  where {where}\n  x => relu(x)\n").obligation == "inhabited"


def test_a_size_must_be_at_least_one() -> None:
    text = "rule f(x: [m]){}\n  relu(slice(x; dim=0, start=a, stop=b)) => slice(relu(x); dim=0, start=a, stop=b)\n"
    assert left_out(text.format("\n  where b <= m, a <= b")).obligation == "same_shape"
    assert isinstance(answer(text.format("\n  where b <= m, a + 1 <= b")), Proved)


def test_rest_groups_are_proved_where_no_inner_dimension_is_counted() -> None:
    text = "rule f(x: [b.., k], y: [b.., k])\n  relu(concat(x, y; dim={0})) => concat(relu(x), relu(y); dim={0})\n"
    assert isinstance(answer(text.format(-1)), Proved)
    assert isinstance(answer(text.format(1)), NotProved)


def test_every_random_operator_draws_numbers_of_its_own() -> None:
    assert isinstance(answer("rule f(x: [m])\n  dropout(x) + dropout(x) => 2 * dropout(x)\n"), NotProved)
    assert isinstance(answer("rule f(x: [m])\n  dropout(3 * x) => 3 * dropout(x)\n"), Proved)
    assert isinstance(
        answer("rule f(x: [m, m])\n  dropout(x)[i, j] -> [j, i] => dropout(x[i, j] -> [j, i])\n"), Refuted
    )


# ---------------------------------------------------------------------------------------------- device axes


def test_device_axes_of_equal_size_are_not_one_axis() -> None:
    found = left_out("rule f(x: [@p, @q, n])\n  where p == q\n  reduce[p](x) => reduce[q](x)\n")
    assert found.obligation == "same_layout"


def test_an_operator_does_not_mix_a_divided_and_a_whole_operand() -> None:
    found = left_out("rule f(x: [p * b, i], w: [o, i])\n  linear(partition[p; dim=0](x), w) => linear(x, w)\n")
    assert found.obligation == "same_layout"


def test_the_same_device_axis_is_not_made_twice() -> None:
    found = left_out("rule f(x: [p * p * n])\n  partition[p; dim=0](partition[p; dim=0](x)) => x\n")
    assert found.obligation == "same_layout"


# ---------------------------------------------------------------------------------------------- functions


def proved_alone(text: str) -> bool:
    """Whether the prover finds a proof without its numeric witness in NumPy."""
    rule = rule_of(text)
    claim = claim_of(rule)
    prover = Prover(rule, claim, library(), {})
    sizes = {name: 2 + number for number, name in enumerate(prover.names)}
    graph = Graph(rule, claim, library(), {}, sizes, prover.arithmetic)
    try:
        prover.obligations(graph, *graph.sides())
    except (Failed, Unsupported):
        return False
    return True


WRONG_WITHOUT_NUMBERS = {
    "direct reads only": "rule f(x: [k + k], b: [k])\n"
    "  sum_all(tanh_relu(x) * concat(b, negative(b); dim=0)) => 0 * sum_all(b)\n",
    "through a sum": "rule f(x: [k + k, c], b: [k])\n"
    "  sum_all(logsumexp(x) * concat(b, negative(b); dim=0)) => 0 * sum_all(b)\n",
    "a square is not a sum of squares": "rule f(x: [a, b])\n"
    "  reduce_sum(x[a, b] -> []) * reduce_sum(x[a, b] -> []) => reduce_sum((x * x)[a, b] -> [])\n",
    "a maximum is not a sum": "rule f(x: [m, k])\n  rowmax(concat(x, x; dim=1)) => 2 * rowmax(x)\n",
    "zero is not the identity of max": "rule f(x: [m, k])\n  rowmax(pad_zero(x; by=1)) => rowmax(x)\n",
    "a maximum loses elements": "rule f(x: [m, k], y: [m, l])\n  rowmax(concat(x, y; dim=1)) => rowmax(x)\n",
    "a constant below a function": "rule f(x: [m])\n  exp(x + 1) => exp(x)\n",
    "indices of a function exchanged": "rule f(x: [m, m])\n  exp(x) => exp(x[i, j] -> [j, i])\n",
    "a stabiliser of another row": "rule f(x: [m, c], y: [m, c])\n  sumexp(x, rowmax(x)) => sumexp(x, rowmax(y))\n",
}


@pytest.mark.parametrize("text", WRONG_WITHOUT_NUMBERS.values(), ids=WRONG_WITHOUT_NUMBERS.keys())
def test_a_wrong_rule_is_not_proved_even_without_numbers(text: str) -> None:
    assert not proved_alone(text)
    assert isinstance(answer(text), Refuted)


def test_the_maximum_of_a_set_counts_equal_elements_once() -> None:
    assert proved_alone("rule f(x: [m, k])\n  rowmax(concat(x, x; dim=1)) => rowmax(x)\n")
    assert proved_alone("rule f(x: [m, k], y: [m, l])\n  rowmax(concat(x, y; dim=1)) => rowmax(concat(y, x; dim=1))\n")


def test_bound_indices_of_a_squared_sum_are_two() -> None:
    text = "rule f(x: [a])\n  {} => reduce_sum(matmul(x[a] -> [a, 1], x[a] -> [1, a])[a, c] -> [])\n"
    assert proved_alone(text.format("reduce_sum(x[a] -> []) * reduce_sum(x[a] -> [])"))
    assert not proved_alone(text.format("reduce_sum((x * x)[a] -> [])"))


def test_a_merged_axis_is_not_merged_in_another_order() -> None:
    text = "rule f(x: [a, b])\n  x[a, b] -> [(a b)] => (x[a, b] -> [b, a])[{}] -> [({})]\n"
    assert isinstance(answer(text.format("b, a", "a b")), Proved)
    found = answer(text.format("b, a", "b a"))
    assert isinstance(found, NotProved | Refuted)


# ---------------------------------------------------------------------------------------------- answers


def test_a_counterexample_names_sizes_place_and_values() -> None:
    found = answer("rule f(x: [m, k])\n  relu(x) => x\n")
    assert isinstance(found, Refuted)
    assert set(found.counterexample.sizes) == {"m", "k"}
    assert len(found.counterexample.position) == 2
    assert found.counterexample.left == 0 > found.counterexample.right


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("rule f(x: [m])\n  relu(z) => x\n", "E102"),
        ("rule f(x: [m])\n  rleu(x) => x\n", "E102"),
        ("rule f(x: [m])\n  partiton[p; dim=0](x) => x\n", "E102"),
        ("rule f(x: [m])\n  relu(x, x) => x\n", "E120"),
        ("rule f(x: [m])\n  2 => x\n", "E010"),
        ("rule f(x: [m])\n  x, x => x\n", "E010"),
        ("rule f(x: [m], x: [m])\n  x => x\n", "E024"),
        ("rule f(x: [m])\n  x = x\n", "E010"),
    ],
    ids=["unbound", "misspelt", "misspelt_parallel", "operands", "number", "outputs", "twice", "no_arrow"],
)
def test_a_rule_that_cannot_be_read_is_one_diagnostic(text: str, code: str) -> None:
    with pytest.raises(InputError) as error:
        answer(text)
    assert error.value.diagnostic.code == code
    assert error.value.diagnostic.span is not None


@pytest.mark.parametrize("call", ["exp({})", "softmax({})", "relu({})", "tanh({})", "({}) + x", "reverse({})"])
def test_a_thousand_operators_get_an_answer(call: str) -> None:
    lines = "".join(f"  y{n + 1} = {call.format(f'y{n}')}\n" for n in range(200 if "softmax" in call else 1000))
    last = 200 if "softmax" in call else 1000
    found = answer(f"rule f(x: [m, k])\n  y0 = x\n{lines}  y{last} => negative(x)\n")
    assert isinstance(found, Refuted | NotProved)


def test_forms_that_multiply_out_are_refused() -> None:
    lines = "".join(f"  y{n + 1} = y{n} * (y{n} + x)\n" for n in range(30))
    found = answer(f"rule f(x: [m])\n  y0 = x + relu(x)\n{lines}  y30 => x\n")
    assert isinstance(found, Refuted | NotProved)


@pytest.mark.parametrize(
    "text",
    [
        "rule f(x: [b..])\n  sqrt(x) * sqrt(x) => x\n",
        "rule f(x: [b..], y: [b..])\n  log(x) + log(y) => log(x * y)\n",
        "rule f(x: [b..])\n  exp(log(x)) => x\n",
        "rule f(x: [m], y: [m])\n  y * x / y => x\n",
    ],
    ids=["root", "logs", "log", "quotient"],
)
def test_a_rule_that_gives_values_where_there_were_none_is_proved_one_way(text: str) -> None:
    """They are true from left to right only: wherever the left side has a value, the conditions of the facts hold."""
    assert isinstance(prove_rule(rule_of(text), library()), Proved)
    assert isinstance(prove_rule(rule_of(swapped(text)), library()), Refuted)


def swapped(text: str) -> str:
    head, _, body = text.rstrip().partition("\n  ")
    left, _, right = body.partition(" => ")
    return f"{head}\n  {right} => {left}\n"


def test_assumed_facts_are_named() -> None:
    """An exponential's law is only tried at points; relu's facts are proved from its definition."""
    exponential = prove_rule(rule_of("rule r(x: [b], y: [b])\n  exp(x + y) => exp(x) * exp(y)\n"), library())
    relu = prove_rule(rule_of("rule r(x: [b])\n  relu(relu(x)) => relu(x)\n"), library())
    assert isinstance(exponential, Proved) and "exp(a + b) == exp(a) * exp(b)" in exponential.assumed
    assert isinstance(relu, Proved) and relu.assumed == ()


ADDITION, POSITIVE = "exp(a + b) == exp(a) * exp(b)", "exp(a) > 0"


@pytest.mark.parametrize(
    ("body", "assumed"),
    [
        ("exp(x) => exp(x)", set()),
        ("exp(x) * y => y * exp(x)", set()),
        ("softmax(x) => softmax(x)", set()),
        ("log(exp(x)) => x", {"log(exp(a)) == a"}),
        ("exp(x + y) => exp(y) * exp(x)", {ADDITION, POSITIVE}),
        ("relu(exp(x)) => exp(x)", {POSITIVE}),
        ("relu(exp(x)) * exp(y) => exp(x + y)", {ADDITION, POSITIVE}),
        ("y / exp(x) => y * exp(-x)", {ADDITION, POSITIVE}),
    ],
)
def test_only_facts_that_a_proof_needs_are_named(body: str, assumed: set[str]) -> None:
    """If a named fact is removed, the rule is not proved from a proper subset of the named facts."""
    rule = rule_of(f"rule r(x: [n], y: [n])\n  {body}\n")
    answer = prove_rule(rule, library())
    assert isinstance(answer, Proved) and set(answer.assumed) == assumed
    _, derivations = follow_rule(rule, library())
    assert len(derivations) == 1
    for fact in assumed:
        functions = {
            name: replace(decl, facts=tuple(one for one in decl.facts if fact_text(one) != fact))
            for name, decl in library().functions.items()
        }
        known = replace(library(), functions=functions)
        again = prove_rule(rule, known)
        assert not isinstance(again, Proved) or not set(again.assumed) < assumed

"""Facts of functions: which are proved and from what, how the prover uses them, and when it must not."""

from __future__ import annotations

import pytest

from unity_dsl.commands.declaration_explanation import explain_declaration
from unity_dsl.index.declarations.loading import library_of, library_sources, load_library
from unity_dsl.index.equations.term_text import fact_text
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import NotProved, Proved, Refuted
from unity_dsl.prove.functions.fact_laws import Use, laws_of
from unity_dsl.prove.functions.fact_proofs import FactStatus, FactStatuses, fact_lines
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ..cases import library, rule_of, rules_of

# The functions here have wrong derivatives, so the trial of declarations is switched off.
pytestmark = pytest.mark.usefixtures("untried")


def with_primitive(*facts: str, numpy: str = "np.exp(x)") -> Library:
    """The shipped declarations, a primitive `own` with these facts, and an operator that applies it."""
    lines = "".join(f"  fact {fact}\n" for fact in facts)
    function = f"fn own(x)\n  derivative x: 0\n{lines}  torch: torch.exp(x)\n  numpy: {numpy}\n"
    operator = "op own(x: [b..]) -> y: [b..]\n  y[b..] = own(x[b..])\n"
    return library_of([*library_sources(), Source("own.uop", f"{function}\n{operator}")])


def with_definition(definition: str, *facts: str) -> Library:
    lines = "".join(f"  fact {fact}\n" for fact in facts)
    return library_of([*library_sources(), Source("own.uop", f"fn own(x) = {definition}\n  derivative x: 0\n{lines}")])


def statuses(library: Library, name: str = "own") -> list[FactStatus]:
    return list(FactStatuses(library).of(library.functions[name]))


def methods(library: Library, name: str = "own") -> dict[str, str | None]:
    return {status.text: status.method for status in statuses(library, name)}


def answer(library: Library, body: str) -> Proved | Refuted | NotProved:
    return prove_rule(rule_of(f"rule r(x: [n], y: [n])\n  {body}\n"), library)


# ---------------------------------------------------------------------------------------------- status


def test_facts_of_definitions_are_proved() -> None:
    shipped = load_library()
    for name in ("relu", "sigmoid", "rsqrt"):
        found = statuses(shipped, name)
        assert found and all(status.method is not None for status in found), name
    for name in ("maximum", "minimum", "abs", "sqrt"):
        found = statuses(shipped, name)
        assert found and all(status.method == "by reals" and not status.resting_on for status in found), name


def test_what_a_proof_rests_on_is_assumed_and_said() -> None:
    shipped = load_library()
    found = {status.text: status for status in statuses(shipped, "sigmoid")}
    status = found["sigmoid(-a) == 1 - sigmoid(a)"]
    assert status.method == "by normal form"
    assert {fact_text(fact) for fact in status.resting_on} == {"exp(a) > 0", "exp(a + b) == exp(a) * exp(b)"}
    assert methods(shipped, "exp")["exp(a + b) == exp(a) * exp(b)"] is None
    lines = fact_lines(shipped.functions["sigmoid"], shipped)
    assert lines[0].split("  ")[0] == "sigmoid(a) > 0" and lines[0].endswith("proved by normal form")
    assert lines[1].strip().startswith("from exp(")
    told = explain_declaration("relu", ()).splitlines()
    assert any("relu(relu(a)) == relu(a)" in line and line.endswith("proved by reals") for line in told)


def test_a_proof_rests_on_earlier_facts_only() -> None:
    """If two facts follow from each other, the first is assumed."""
    found = methods(with_primitive("own(-a) == own(a)", "own(a) == own(-a)", numpy="np.cos(x)"))
    assert found == {"own(-a) == own(a)": None, "own(a) == own(-a)": "by normal form"}


@pytest.mark.parametrize(
    ("definition", "fact"),
    [
        # True at all points except one, or except beyond a far one.
        ("maximum(x - 200000000, 0)", "own(a) == 0"),
        ("[x != 0.123456]", "own(a) == 1"),
        ("0 / (x - 0.123456)", "own(a) == 0"),
        ("0 * log(x + 200000000)", "own(a) == 0"),
        ("sqrt(x + 200000000)", "own(a) * own(a) == a + 200000000"),
        ("maximum(x, -200000000)", "own(a) == a"),
    ],
)
def test_a_fact_that_is_false_at_a_constant_of_the_body_is_refused(definition: str, fact: str) -> None:
    with pytest.raises(InputError, match="does not hold at"):
        with_definition(definition, fact)


@pytest.mark.parametrize(
    ("definition", "fact"),
    [
        # True at every point that is tried, false at one that is no constant of the body.
        ("[x + exp(0 - x) == 0.123456]", "own(a) == 0 * a"),
        ("[sin(x) + x * x != 17.125]", "own(a) == 1"),
        ("0 / (sin(x) + x - 7.5)", "own(a) == 0"),
    ],
)
def test_a_false_fact_that_no_point_contradicts_is_not_proved(definition: str, fact: str) -> None:
    (status,) = statuses(with_definition(definition, fact))
    assert status.method is None


# ---------------------------------------------------------------------------------------------- use


def test_how_facts_are_used() -> None:
    shipped = load_library()
    uses = {status.text: status.use for name in shipped.functions for status in statuses(shipped, name)}
    assert uses["exp(a + b) == exp(a) * exp(b)"] is Use.EXPONENTIAL
    assert uses["log(a * b) == log(a) + log(b) where a > 0, b > 0"] is Use.REWRITE
    assert uses["sqrt(a) * sqrt(a) == a where a >= 0"] is Use.SQUARE
    assert uses["exp(a) > 0"] is Use.SIGN
    assert uses["sin(a + b) == sin(a) * cos(b) + cos(a) * sin(b)"] is Use.ADDITION
    assert uses["cos(a) * cos(a) == 1 - sin(a) * sin(a)"] is Use.SQUARE
    assert uses["relu(relu(a)) == relu(a)"] is None, "its definition says as much"
    assert uses["maximum(a, b) == maximum(b, a)"] is None, "it is a set"
    assert set(laws_of(shipped).exponentials) == {"exp"}


def test_nothing_is_known_of_a_function_without_facts() -> None:
    bare = with_primitive()
    assert isinstance(answer(bare, "own(x + y) => own(x) * own(y)"), NotProved)
    assert isinstance(answer(bare, "relu(own(x)) => own(x)"), NotProved)
    assert isinstance(answer(bare, "own(x) * y => y * own(x)"), Proved)


def test_a_function_is_an_exponential_by_its_facts() -> None:
    sums, sign = "own(a + b) == own(a) * own(b)", "own(a) > 0"
    for facts in ((sums, sign), (sign, sums)):
        found = answer(with_primitive(*facts), "own(x + 2 * y) => own(x) * own(y) * own(y)")
        assert isinstance(found, Proved)
        assert {fact_text(fact) for fact in found.facts} == {sums, sign}
    # Without its sign it might be 0 everywhere.
    assert isinstance(answer(with_primitive(sums), "own(x - x) * y => y"), NotProved)
    assert isinstance(answer(with_primitive(sums, sign), "own(x - x) * y => y"), Proved)


def test_a_proof_says_what_facts_it_rests_on() -> None:
    rules = {rule.name: rule for rule in rules_of("proved")}
    found = prove_rule(rule_of("rule f(x: [b..])\n  cosine(negative(x)) => cosine(x)\n"), library())
    assert isinstance(found, Proved) and {fact_text(fact) for fact in found.facts} == {"cos(-a) == cos(a)"}
    found = prove_rule(rules["cosine_of_a_difference"], library())
    assert isinstance(found, Proved) and {fact_text(fact) for fact in found.facts} == {
        "cos(-a) == cos(a)",
        "sin(-a) == -sin(a)",
        "cos(a + b) == cos(a) * cos(b) - sin(a) * sin(b)",
    }
    found = prove_rule(rules["matmul_is_associative"], library())
    assert isinstance(found, Proved) and not found.facts


def test_a_fact_is_used_where_its_conditions_are_known_to_hold() -> None:
    inside = library()
    for body, holds in {
        "log(exp(x) * exp(y)) => x + y": True,
        "exp(log(1 + x * x)) => 1 + x * x": True,
        "exp(log(x * x)) => x * x": True,
        "x * x => exp(log(x * x))": False,
        "sqrt(x * x) * sqrt(x * x) => x * x": True,
        "sqrt(y * y + 1) * sqrt(y * y + 1) => y * y + 1": True,
        "sqrt(x * y) * sqrt(x * y) => x * y": True,
        "x * y => sqrt(x * y) * sqrt(x * y)": False,
        "x * (2 + y * y) / (2 + y * y) => x": True,
        "x * y / y => x": True,
        "x + 0 * y => x * y / y": False,
    }.items():
        assert isinstance(answer(inside, body), Proved) is holds, body


def test_infinity_is_no_real_number() -> None:
    """exp(-inf) × exp(inf) is not a number, and -inf is below every element of a set."""
    inside = library()
    rule = "rule r(x: [m, k])\n  rowmax(pad_low(negative(x); by=1)) => rowmax(negative(x))\n"
    assert isinstance(prove_rule(rule_of(rule), inside), Proved)
    rule = "rule r(x: [m, k])\n  relu(pad_low(x; by=1)) => pad_low(relu(x); by=1)\n"
    assert isinstance(prove_rule(rule_of(rule), inside), Refuted)


@pytest.mark.parametrize(
    "facts",
    [
        ("own(a) == own(a) + 0",),
        ("own(a) == own(-(-a))",),
        ("own(-a) == own(-(-(-a)))",),
        ("own(1 / a) == own(1 / (1 / (1 / a))) where a > 0",),
    ],
)
def test_rewriting_comes_to_an_end(facts: tuple[str, ...]) -> None:
    looping = with_primitive(*facts)
    assert isinstance(answer(looping, "own(-x) + y => y + own(-x)"), Proved | NotProved)
    positive = "own(reciprocal(1 + exp(x))) + y => y + own(reciprocal(1 + exp(x)))"
    assert isinstance(answer(looping, positive), Proved | NotProved)


def test_signs_of_sizes_follow_from_conditions() -> None:
    text = "rule r(x: [m, k]){}\n  relu(scale(x; factor=k - 3)) => scale(relu(x); factor=k - 3)\n"
    assert isinstance(prove_rule(rule_of(text.format(" where k >= 3")), library()), Proved)
    assert isinstance(prove_rule(rule_of(text.format(" where k >= 2")), library()), Refuted)
    assert isinstance(prove_rule(rule_of(text.format("")), library()), Refuted)

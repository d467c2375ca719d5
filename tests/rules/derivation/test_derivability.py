"""Derivability against a brute-force closure of words, and rules that must not be derived."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

import pytest

from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.derivation.commutativity import commutative_operators
from unity_dsl.rules.derivation.derivability import Bound, Derivability
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from ...prove.cases import CASES, library

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def rules(text: str) -> tuple[RuleDecl, ...]:
    return parse_rules(Source("laws.rules", text)).rules


def rule(text: str) -> RuleDecl:
    (found,) = rules(text)
    return found


def proved_rules(text: str) -> Derivability:
    """A `Derivability` with these rules, each of which is proved here."""
    found = Derivability(library(), COMMUTATIVE)
    for one in rules(text):
        assert isinstance(prove_rule(one, library()), Proved), one.name
        found.add(one)
    return found


# ---------------------------------------------------------------------------------------------- words


WORDS = {"rr": "r", "nn": "", "tt": "", "tr": "rt", "tn": "nt"}
"""Laws between words. A word lists relu, neg and transposition by their first letters, the outermost first."""


def term(word: str) -> str:
    """The expression that applies the operators of a word to x."""
    if not word:
        return "x"
    inner = term(word[1:])
    return {"r": f"relu({inner})", "n": f"neg({inner})", "t": f"({inner})[i, j] -> [j, i]"}[word[0]]


def law(left: str, right: str) -> str:
    return f"rule law(x: [m, n])\n  {term(left)} => {term(right)}\n"


def closure(word: str, longest: int) -> set[str]:
    """Every word up to a length that the laws reach from a word. The empty side of a law is never expanded."""
    found, pending = {word}, [word]
    while pending:
        one = pending.pop()
        for old, new in (*WORDS.items(), *((new, old) for old, new in WORDS.items() if new)):
            for place in range(len(one) - len(old) + 1):
                made = one[:place] + new + one[place + len(old) :]
                if one[place:].startswith(old) and len(made) <= longest and made not in found:
                    found.add(made)
                    pending.append(made)
    return found


@cache
def word_laws() -> Derivability:
    texts = (law(left, right).replace("law", f"law_{place}") for place, (left, right) in enumerate(WORDS.items()))
    return proved_rules("\n".join(text.replace("m, n", "a, b") for text in texts))


def test_words_are_derived_where_brute_force_connects_them() -> None:
    words = ["".join(letters) for length in range(4) for letters in product("rnt", repeat=length)]
    pairs = [(left, right) for left in words for right in words if left.count("t") % 2 == right.count("t") % 2]
    sample = [*Random(11).sample(pairs, 220), ("trt", "r"), ("tnt", "n"), ("nrn", "r"), ("", "nn"), ("", "tt")]
    answers = set()
    for left, right in sample:
        longest = max(len(left), len(right)) + 1
        expected = not closure(left, longest).isdisjoint(closure(right, longest))
        found = word_laws().derive(rule(law(left, right)), Bound(expansions=400, operators=1))
        assert (found is not None) == expected, (left, right)
        answers.add(expected)
    assert answers == {True, False}


def test_the_steps_of_a_derivation_are_told() -> None:
    steps = word_laws().derive(rule(law("trt", "r")))
    assert steps is not None and [step.rule for step in steps] in (["law_3", "law_2"], ["law_3", "law_3"])


def test_a_longer_derivation_than_the_bound_is_none() -> None:
    long = rule(law("rnrrnn", "rnr"))
    assert word_laws().derive(long, Bound(expansions=1)) is None
    assert word_laws().derive(long, Bound(expansions=40)) is not None


def test_terms_that_have_what_the_other_side_has_may_come_first() -> None:
    sums = "rule sums_associate(x: [m, n], y: [m, n], z: [m, n])\n  x + y + z => x + (y + z)\n"
    inputs = ", ".join(f"{name}: [m, n]" for name in "abcdef")
    asked = rule(f"rule law({inputs})\n  a + b + (c + d) + (e + f) => a + f + (c + e) + (b + d)\n")
    known = proved_rules(sums)
    assert known.derive(asked, Bound(expansions=20)) is None
    assert known.derive(asked, Bound(expansions=20, goal_weight=1)) is not None


def test_a_rule_that_is_left_out_is_not_used() -> None:
    assert word_laws().derive(rule(law("rr", "r")), without={0}) is None
    assert word_laws().derive(rule(law("rr", "r"))) is not None


# ---------------------------------------------------------------------------------------------- conditions


LAWS = """\
rule factor_through_relu(x: [b..]) where c >= 0
  relu(scale(x; factor=c)) => scale(relu(x); factor=c)

rule one_factor(x: [b..])
  scale(scale(x; factor=c); factor=d) => scale(x; factor=c * d)

rule linear_of_concat(x: [b.., i], w: [o, i], v: [p, i])
  linear(x, concat(w, v; dim=0)) => concat(linear(x, w), linear(x, v); dim=-1)

rule first_of_concat(x: [m, a], y: [m, b])
  slice(concat(x, y; dim=-1); dim=-1, start=0, stop=a) => x

rule second_of_concat(x: [m, a], y: [m, b])
  slice(concat(x, y; dim=-1); dim=-1, start=a, stop=a + b) => y

rule rows_of_linear(x: [p * m, i], w: [o, i])
  linear(x, w) => combine[p; dim=0](linear(partition[p; dim=0](x), replicate[p](w)))

rule wide_pool(x: [n, c, h, w]) where h >= 3, w >= 3
  relu(max_pool2d(x; size=3, stride=1)) => max_pool2d(relu(x); size=3, stride=1)

rule exponential_of_logarithm(x: [b..])
  exp(log(x)) => x

rule matmul_of_matmul(x: [n.., a, b], y: [n.., b, c], z: [n.., c, d])
  matmul(matmul(x, y), z) => matmul(x, matmul(y, z))

rule linear_of_linear(x: [b.., i], w: [h, i], v: [o, h])
  linear(linear(x, w), v) => linear(x, matmul(v, w))

rule linear_of_add(x: [b.., i], y: [b.., i], w: [o, i])
  linear(x + y, w) => linear(x, w) + linear(y, w)

rule both_halves(x: [b, i], w: [o, i], v: [p, i])
  y = linear(x, concat(w, v; dim=0))
  linear(x, w), linear(x, v) => slice(y; dim=-1, start=0, stop=o), slice(y; dim=-1, start=o, stop=o + p)
"""


@cache
def laws(*, joint: bool = False) -> Derivability:
    return proved_rules(LAWS if joint else LAWS[: LAWS.index("rule both_halves")])


@pytest.mark.parametrize(
    ("inputs", "law", "derived"),
    [
        ("x: [b..]", "relu(3 * x) => 3 * relu(x)", True),
        ("x: [b..]", "relu(-3 * x) => -3 * relu(x)", False),
        ("x: [b..] where s > 0", "relu(scale(x; factor=s)) => scale(relu(x); factor=s)", True),
        ("x: [b..]", "relu(scale(x; factor=s)) => scale(relu(x); factor=s)", False),
        ("x: [b..] where s > 0", "relu(scale(x; factor=-s)) => scale(relu(x); factor=-s)", False),
        ("x: [b..] where s >= 0", "relu(scale(x; factor=2 * s)) => scale(relu(x); factor=2 * s)", True),
        ("x: [b..] where s >= 0, t >= 0", "relu(scale(x; factor=s * t)) => scale(relu(x); factor=s * t)", True),
        ("x: [b..]", "relu(scale(x; factor=s * s)) => scale(relu(x); factor=s * s)", True),
        ("x: [m, n]", "relu(scale(x; factor=m)) => scale(relu(x); factor=m)", True),
        ("x: [b..]", "2 * (3 * x) => 6 * x", True),
        ("x: [b..]", "2 * (3 * x) => 5 * x", False),
        ("x: [b..]", "2 * (3 * x) => 3 * (2 * x)", True),
        (
            "x: [a, b, 4], w: [o, 4], v: [p, 4]",
            "linear(x, concat(w, v; dim=0)) => concat(linear(x, w), linear(x, v); dim=-1)",
            True,
        ),
        ("x: [m, k], y: [m, l]", "slice(concat(x, y; dim=-1); dim=-1, start=0, stop=k) => x", True),
        ("x: [m, k], y: [m, l]", "slice(concat(x, y; dim=1); dim=1, start=0, stop=k) => x", True),
        ("x: [m, k], y: [l, k]", "slice(concat(x, y; dim=0); dim=0, start=0, stop=m) => x", False),
        ("x: [m, k], y: [m, k]", "slice(concat(x, y; dim=-1); dim=-1, start=k, stop=2 * k) => y", True),
        ("x: [m, k], y: [m, k]", "slice(concat(x, y; dim=-1); dim=-1, start=k, stop=2 * k) => x", False),
        ("x: [m, k], y: [m, l] where l >= k", "slice(concat(x, y; dim=-1); dim=-1, start=0, stop=l) => y", False),
        (
            "x: [q * k, i], w: [o, i]",
            "linear(x, w) => combine[q; dim=0](linear(partition[q; dim=0](x), replicate[q](w)))",
            True,
        ),
        (
            "x: [n, c, h, h] where h >= 3",
            "relu(max_pool2d(x; size=3, stride=1)) => max_pool2d(relu(x); size=3, stride=1)",
            True,
        ),
        (
            "x: [n, c, h, h] where h >= 2",
            "relu(max_pool2d(x; size=3, stride=1)) => max_pool2d(relu(x); size=3, stride=1)",
            False,
        ),
        (
            "x: [n, c, h, h + 2]",
            "relu(max_pool2d(x; size=3, stride=1)) => max_pool2d(relu(x); size=3, stride=1)",
            False,
        ),
        ("x: [n, c, h + 2, 4]", "relu(max_pool2d(x; size=3, stride=1)) => max_pool2d(relu(x); size=3, stride=1)", True),
        ("x: [n, c, 5, 4]", "relu(max_pool2d(x; size=3, stride=2)) => max_pool2d(relu(x); size=3, stride=2)", False),
        # A term without a value at some places may be replaced at the root only, and only from left to right.
        ("x: [b..]", "exp(log(x)) => x", True),
        ("x: [b..]", "x => exp(log(x))", False),
        ("x: [b..]", "exp(log(relu(x))) => relu(x)", True),
        ("x: [b..]", "relu(exp(log(x))) => relu(x)", False),
        ("x: [b..]", "relu(x) => relu(exp(log(x)))", False),
        # A rule proved for finite elements is not used on possibly infinite ones.
        ("x: [s, s]", "0 * causal_mask(x) => causal_mask(0 * x)", False),
        ("x: [s, s]", "relu(0 * causal_mask(x)) => 0 * relu(causal_mask(x))", False),
        ("x: [s, s]", "relu(0 * softmax(x)) => 0 * relu(softmax(x))", True),
        ("x: [s, t], g: [t]", "relu(2 * rms_norm(x, g)) => 2 * relu(rms_norm(x, g))", True),
        (
            "x: [n, 1, h + 2, 5]",
            "relu(2 * max_pool2d(x; size=3, stride=1)) => 2 * relu(max_pool2d(x; size=3, stride=1))",
            True,
        ),
        ("x: [n, n]", "relu(2 * log(x)) => 2 * relu(log(x))", False),
        ("x: [n, n]", "relu(2 * exp(x)) => 2 * relu(exp(x))", True),
        # Operands that commute, on both sides and inside.
        ("x: [b, i], y: [b, i], w: [o, i]", "linear(y + x, w) => linear(x, w) + linear(y, w)", True),
        ("x: [b, i], y: [b, i], w: [o, i]", "relu(linear(y, w) + linear(x, w)) => relu(linear(x + y, w))", True),
        ("x: [b, i], y: [b, i], w: [o, i]", "linear(x - y, w) => linear(x, w) + linear(y, w)", False),
        (
            "x: [a, b], y: [b, c], z: [c, d], u: [d, e]",
            "matmul(matmul(matmul(x, y), z), u) => matmul(x, matmul(y, matmul(z, u)))",
            True,
        ),
        ("x: [a, a], y: [a, a]", "matmul(matmul(x, y), x) => matmul(x, matmul(y, x))", True),
        ("x: [a, a], y: [a, a]", "matmul(x, y) => matmul(y, x)", False),
        ("x: [b, i], w: [h, i], v: [o, h]", "linear(linear(x, w), v) => linear(x, matmul(v, w))", True),
        ("x: [@q, b, i], w: [@q, h, i], v: [@q, o, h]", "linear(linear(x, w), v) => linear(x, matmul(v, w))", True),
    ],
)
def test_an_instance_is_derived_only_under_its_conditions(inputs: str, law: str, derived: bool) -> None:
    head, where, conditions = inputs.partition(" where ")
    found = laws().derive(rule(f"rule law({head}){where}{conditions}\n  {law}\n"))
    assert (found is not None) == derived


MERGED = """\
rule merged(x: [b, i], w: [o, i], v: [p, i])
  y = linear(x, concat(w, v; dim=0))
  linear(x, w), linear(x, v) => slice(y; dim=-1, start=0, stop=o), slice(y; dim=-1, start=o, stop=o + p)
"""
TAKEN_APART = """\
rule taken_apart(x: [b, i], w: [o, i], v: [p, i])
  y = linear(x, concat(w, v; dim=0))
  slice(y; dim=-1, start=0, stop=o), slice(y; dim=-1, start=o, stop=o + p) => linear(x, w), linear(x, v)
"""


def test_what_brings_products_together_needs_a_rule_that_does() -> None:
    """A rule that splits one product does not introduce the other product."""
    assert laws().derive(rule(MERGED)) is None
    assert laws().derive(rule(TAKEN_APART)) is not None
    assert laws(joint=True).derive(rule(MERGED)) is not None
    swapped = rule(MERGED.replace("linear(x, w), linear(x, v)", "linear(x, v), linear(x, w)"))
    assert laws(joint=True).derive(swapped) is None


def test_outputs_together_read_what_any_of_them_reads() -> None:
    together = Bound(together=True)
    assert laws().derive(rule(MERGED), together) is not None
    assert laws().derive(rule(TAKEN_APART), together) is not None
    alone = "rule alone(x: [m, a], y: [m, b])\n  {} => {}\n"
    new = "slice(concat(x, y; dim=-1); dim=-1, start=0, stop=a)"
    assert laws().derive(rule(alone.format("neg(x)", f"neg({new})")), together) is None
    assert laws().derive(rule(alone.format("neg(x), neg(y)", f"neg({new}), neg(y)")), together) is not None


@pytest.mark.parametrize("bound", [Bound(), Bound(expansions=100, operators=4, together=True)])
def test_no_wrong_rule_is_derived(bound: Bound) -> None:
    text = "\n".join((CASES / "proved" / f"{name}.rules").read_text() for name in ("algebra", "concat", "numbers"))
    known = Derivability(library(), COMMUTATIVE)
    for one in (*rules(text), *rules(LAWS)):
        known.add(one)
    count = 0
    for path in sorted((CASES / "refuted").glob("*.rules")):
        for wrong in parse_rules(Source(path.name, path.read_text())).rules:
            assert known.derive(wrong, bound) is None, wrong.name
            count += 1
    assert count > 100


def test_which_operators_commute_is_proved() -> None:
    asked = ("add", "sub", "mul", "div", "maximum", "minimum", "matmul", "concat", "relu", "linear")
    assert commutative_operators(asked, library()) == COMMUTATIVE


# ---------------------------------------------------------------------------------------------- finite values


def test_what_has_a_root_of_a_sum_of_squares_may_stand_for_an_input() -> None:
    """layer_norm may if eps > 0; with eps == 0 it has no value at a row of equal elements."""
    known = proved_rules("rule add_twice(x: [b..])\n  relu(x + x) => relu(x) + relu(x)\n")
    inner = {
        "layer_norm(x, g, h)": True,
        "layer_norm(x, g, h; eps=0)": False,
        "rms_norm(x, g; eps=0.5)": True,
        "softmax(x)": True,
        "sqrt(x)": False,
        "log(x)": False,
    }
    for text, expected in inner.items():
        inputs = ", ".join(
            f"{name}: [{dims}]" for name, dims in (("x", "m, n"), ("g", "n"), ("h", "n")) if name in text
        )
        law = rule(f"rule law({inputs})\n  relu({text} + {text}) => relu({text}) + relu({text})\n")
        assert (known.derive(law) is not None) == expected, text

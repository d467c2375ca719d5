"""The evaluator against rules whose truth is known, among them the rules of tests/cases."""

from __future__ import annotations

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from ..cases import library, rule_of, rules_of, shipped_rules
from ..test_cases import UNSHOWN
from .extern import calls_extern
from .shapes import NoMeaning
from .truth import Truth, confirms, judge

SEED = 1000
INSTANCES = 14
HARDLY_EVER = ("guard_that_hardly_ever_matters",)
"""Wrong rules whose sides differ at only a few sizes among thousands."""


TRIED = (*rules_of("proved"), *shipped_rules())


def test_laws_of_extern_operators_are_tried() -> None:
    assert sum(calls_extern(rule, library()) for rule in TRIED) >= 4


@pytest.mark.parametrize(
    ("sides", "truth"),
    [
        ("top_k(x + y; count=2) => top_k(y + x; count=2)", Truth.EQUAL),
        ("sort(x) => sort(y)", Truth.DIFFERS),
        ("sort(x) => sort(2 * x)", Truth.DIFFERS),
        ("sort(relu(x)) => sort(x)", Truth.DIFFERS),
        ("sort(x) => top_k(x; count=c)", Truth.DIFFERS),
    ],
)
def test_an_extern_operator_is_any_function(sides: str, truth: Truth) -> None:
    """The third rule holds for the operator `sort`, but not for other operators with the same declaration."""
    rule = rule_of(f"rule r(x: [b, c], y: [b, c]) where c >= 2\n  {sides}\n")
    assert judge(rule, library(), INSTANCES, SEED).truth is truth


@pytest.mark.parametrize("rule", TRIED, ids=lambda rule: rule.name)
def test_what_is_proved_is_equal(rule: RuleDecl) -> None:
    judged = judge(rule, library(), INSTANCES, SEED)
    assert judged.truth is Truth.EQUAL, f"seed {SEED}: {judged}"
    assert judged.instances >= INSTANCES // 3


@pytest.mark.parametrize(
    "rule",
    [
        rule
        for rule in rules_of("refuted")
        if not calls_extern(rule, library()) and rule.name not in (*UNSHOWN, *HARDLY_EVER)
    ],
    ids=lambda rule: rule.name,
)
def test_what_is_refuted_differs(rule: RuleDecl) -> None:
    judged = judge(rule, library(), 4 * INSTANCES, SEED)
    assert judged.truth is Truth.DIFFERS, f"seed {SEED}: {judged}"


def told(text: str, declarations: str = "") -> Truth:
    own = library_of([*library_sources(), Source("own.uop", declarations)]) if declarations else library()
    (rule,) = parse_rules(Source("own.rules", text)).rules
    return judge(rule, own, 24).truth


FAR = """\
op far(x: [n], w: [m]) -> z: [n]
  z[n] = max(m) select(n < m + 70, w[m], -inf)

op near(x: [n], w: [m]) -> z: [n]
  z[n] = max(m) w[m]

op wide(x: [n]) -> z: [n]
  z[n] = minimum(x[n], 1000)

op same(x: [n]) -> z: [n]
  z[n] = x[n]

op pair(x: [n], i: int<v>[n]) -> z: [n]
  z[n] = sum(v) [v == i[n]] * (sum(m) [v == i[m]] * x[m])

op asked(x: [n]) -> z: [n]
  z[n] = [log(x[n]) - log(x[n]) >= 0]

op one(x: [n]) -> z: [n]
  z[n] = 1
"""


@pytest.mark.parametrize(
    ("rule", "truth"),
    [
        ("(x: [n], w: [m])\n  far(x, w) => near(x, w)\n", Truth.DIFFERS),
        ("(x: [n], w: [m]) where n <= 70\n  far(x, w) => near(x, w)\n", Truth.EQUAL),
        ("(x: [n], w: [m]) where n <= 71\n  far(x, w) => near(x, w)\n", Truth.DIFFERS),
        ("(x: [n])\n  wide(x) => same(x)\n", Truth.DIFFERS),
        ("(x: [n], i: int<v>[n])\n  pair(x, i) => same(x) + 0 * pair(x, i)\n", Truth.DIFFERS),
        ("(x: [n])\n  one(x) => asked(x)\n", Truth.DIFFERS),
        ("(x: [n])\n  asked(exp(x)) => one(x)\n", Truth.EQUAL),
        ("(x: [n])\n  log(x) - log(x) => 0 * x\n", Truth.EQUAL),
        ("(x: [n])\n  0 * x => log(x) - log(x)\n", Truth.DIFFERS),
        ("(x: [n])\n  (x + 100000000000000000) - 100000000000000000 => x\n", Truth.EQUAL),
        ("(x: [n])\n  scale(x; factor=1 / 3) => scale(x; factor=0.3333333333333333)\n", Truth.DIFFERS),
    ],
    ids=lambda value: value.split("\n")[1].strip() if "\n" in value else value,
)
def test_far_positions_large_values_and_what_has_no_value(rule: str, truth: Truth) -> None:
    assert told(f"rule f{rule}", FAR) is truth


@pytest.mark.parametrize(
    "text",
    [
        "rule f(x: [m], y: [k])\n  x + y => y + x\n",
        "rule f(x: [m])\n  partition[p; dim=0](x) => partition[p; dim=0](x)\n",
        "rule f(x: [p * n], y: [n])\n  partition[p; dim=0](x) + y => y + partition[p; dim=0](x)\n",
        "rule f(x: [m])\n  slice(x; dim=0, start=k / 2, stop=k / 2 + 1) => x\n",
        "rule f(x: [a * b])\n  x[(a c d)] -> [a, c, d] => x\n",
    ],
    ids=["sizes", "degree", "layout", "position", "factors"],
)
def test_a_rule_without_a_meaning(text: str) -> None:
    assert told(text) is Truth.ILL_SHAPED


def test_a_counterexample_is_confirmed_where_the_sides_differ_only() -> None:
    rule = rule_of("rule f(x: [m, k]) where m == p * e\n  x => 2 * x\n")
    sizes = {"p": 2, "e": 1, "k": 1}
    values = {(0, 0): 0.0, (1, 0): 0.5}

    def shown(position: tuple[int, ...]) -> bool:
        return confirms(rule, library(), sizes, {"x": values}, evaluation=False, output=0, position=position)

    assert shown((1, 0)) and not shown((0, 0))
    with pytest.raises(NoMeaning):
        confirms(rule, library(), sizes | {"m": 4}, {"x": values}, evaluation=False, output=0, position=(0, 0))


def test_rounding_confirms_nothing() -> None:
    rule = rule_of("rule f(x: [m])\n  (x + 100000000000000000) - 100000000000000000 => x\n")
    at = {"x": {(0,): 0.1257302210933933}}
    assert not confirms(rule, library(), {"m": 1}, at, evaluation=False, output=0, position=(0,))

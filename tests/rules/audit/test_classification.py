"""Classification of audited rules, against an evaluator that shares no code with the prover."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.prove.adversary.verdict import confirmed
from tests.prove.evaluator.truth import Truth, judge
from tests.rules.audit import unity, wire
from tests.rules.audit.readings import classified, library_of_format
from unity_dsl.prove.answer import Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.audit.classification import Status, true_rules
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

INSTANCES = 10


def test_the_condition_of_grouped_convolutions_is_the_weakest() -> None:
    """At every small shape with a target, the sides agree iff outputs per group are equal."""
    (found,) = classified(wire.grouped())
    assert found.status is Status.PROVED_WITH_CONDITIONS and found.conditions == ("p == p2",)
    assert "output[0, " in found.counterexample
    library = library_of_format("taso")
    (rule,) = true_rules([found])
    assert judge(rule, library, INSTANCES).truth is Truth.EQUAL
    _, body = found.text.split("\n", 1)
    tried = 0
    for g, g2, p, p2 in product((1, 2), (1, 2), (1, 2, 3, 4), (1, 2, 3, 4)):
        if (g * p + g2 * p2) % (g + g2) == 0:
            inputs = f"x7: [1, {g}, 1, 1], x8: [1, {g2}, 1, 1], x10: [{g * p}, 1, 3, 3], x11: [{g2 * p2}, 1, 3, 3]"
            at = body.replace("groups=g + g2", f"groups={g + g2}").replace("=g2", f"={g2}").replace("=g,", f"={g},")
            (fixed,) = parse_rules(Source("fixed", f"rule fixed({inputs})\n{at}")).rules
            judged = judge(fixed, library, 6)
            assert judged.truth is (Truth.EQUAL if p == p2 else Truth.DIFFERS), (g, g2, p, p2, judged)
            tried += p != p2
    assert tried >= 10


def test_statuses_of_small_rules() -> None:
    rules = (
        unity.DATA_PARALLEL, unity.SUM_OF_REPLICAS, unity.PARTS, unity.SUM_OF_LINEARS, unity.HALVES_OF_JOINED,
        unity.UNBOUND, unity.WITHOUT_READING,
    )  # fmt: skip
    found = classified(unity.text(*rules))
    assert [str(one.status) for one in found] == [
        "proved", "proved", "proved", "proved_with_conditions", "refuted", "unbound", "unsupported",
    ]  # fmt: skip
    library = library_of_format("unity")
    made = list(true_rules(found))
    assert [rule.name for rule in made] == ["data_parallel", "sum_of_replicas", "parts", "sum_of_linears"]
    for rule in made:
        assert judge(rule, library, INSTANCES).truth is Truth.EQUAL, rule.name
    (false,) = parse_rules(Source("false", found[4].text)).rules
    answer = prove_rule(false, library)
    assert isinstance(answer, Refuted) and confirmed(false, library, answer.counterexample)


def test_conditions_of_equal_shapes_are_conditions() -> None:
    """Splitting unequal parts into halves gives different shapes."""
    (found,) = classified(wire.split_of_product(), "split=halves")
    assert found.status is Status.PROVED_WITH_CONDITIONS and found.conditions == ("k3 == k2",)
    assert found.reason is not None and "shape" in found.reason
    (rule,) = true_rules([found])
    assert judge(rule, library_of_format("taso"), INSTANCES).truth is Truth.EQUAL


@pytest.mark.parametrize(("choice", "status"), [("replicate=tile", "proved"), ("replicate=repeat", "refuted")])
def test_a_reading_decides(choice: str, status: str) -> None:
    """Adding the halves of a tensor tiled twice gives twice the tensor; with repeated elements it does not."""
    double = unity.rule(
        "double",
        [("OP_REPLICATE", [unity.X], unity.parallel(1)), ("OP_REDUCE", [(0, 0)], unity.parallel(1))],
        [("OP_EW_ADD", [unity.X, unity.X], {})],
        [(1, 0, 0, 0)],
    )
    (found,) = classified(unity.text(double), choice)
    assert (found.status is Status.PROVED) == (status == "proved")


def test_alternatives_of_a_condition_are_rules_of_their_own() -> None:
    (found,) = classified(wire.split_of_product())
    several = replace(found, status=Status.PROVED_WITH_CONDITIONS, conditions=("m == 1 and k == 1 or k2 == 1",))
    assert [len(rule.conditions) for rule in true_rules([several])] == [2, 1]

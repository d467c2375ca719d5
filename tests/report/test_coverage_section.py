"""The section on coverage agrees with the results."""

from __future__ import annotations

from typing import Any

from unity_dsl.report.coverage_section import coverage_section


def row(rules: int, missed: dict[str, str]) -> dict[str, Any]:
    counts = {"trivial": 1, "included": 2, "derived": rules - 3 - len(missed), "missed": len(missed)}
    return {"rules": rules, "counts": counts, "share": 1 - len(missed) / rules, "most steps": 5, "missed": missed}


RESULTS: dict[str, Any] = {
    "bound": {"expansions": 70, "operators": 3},
    "bound of shipped": {"expansions": 20, "operators": 3},
    "published": {
        "taso_graph_subst.pb": row(10, {}),
        "unity_graph_subst_3_v2.json": row(8, {"rule_1": "no chain is found", "rule_7": "no chain is found"}),
    },
    "shipped": {"taso_graph_subst.pb": row(20, {"law": "no rule has `exp`"}), "both": row(20, {})},
    "operators they lack": {"exp": 4, "gelu": 1},
    "examples": ["rule law(x: [b..])\n  relu(relu(x)) => relu(x)\n"],
    "examples on other operators": [],
}


def test_rows_bounds_reasons_and_examples_are_told() -> None:
    text = coverage_section(RESULTS)
    assert "at most 70 terms are" in text.replace("\n", " ") and "at most 3 operators" in text.replace("\n", " ")
    assert "at most 20 expanded terms" in text.replace("\n", " ")
    assert "| TASO | 10 | 1 | 2 | 7 | 0 | 100.0 % | 5 |" in text
    assert "| Unity | 8 | 1 | 2 | 3 | 2 | 75.0 % | 5 |" in text
    assert "Missed of Unity, no chain is found: `rule_1`, `rule_7`." in text
    assert "exp 4, gelu 1" in text and "`law`" not in text
    assert text.count("```text\nrule law") == 1
    assert max(map(len, text.splitlines())) <= 120


def test_nothing_is_said_of_what_is_not_there() -> None:
    text = coverage_section({**RESULTS, "operators they lack": {}, "examples": []})
    assert "Behind each" not in text and "```text" not in text

"""The published rule files: a daily sample of their rules, and the claims of docs/audit.md about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.prove.evaluator.truth import Truth, confirms, judge
from tests.published import TASO, UNITY, published
from tests.rules.audit.readings import library_of_format, reading_of
from tests.rules.audit.shown import read_table
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.index.equations.term_text import condition_text
from unity_dsl.report.audit_page import USUAL, audit_page, load_audits, load_coverage
from unity_dsl.rules.audit.classification import Status, classify, true_rules
from unity_dsl.rules.audit.coverage import Cover, RuleLibrary, coverage
from unity_dsl.rules.audit.formats import FORMATS
from unity_dsl.rules.audit.reading import chosen_reading
from unity_dsl.rules.audit.rule_file import read_rule_file
from unity_dsl.rules.audit.rule_translation import translate
from unity_dsl.rules.generation.pipeline import known_rules
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

ROOT = Path(__file__).parent.parent.parent.parent
RESULTS = ROOT / "bench" / "results"
UNSOUND = ("rule_99", "rule_100", "rule_130", "rule_131")
INSTANCES = 8
FILES = {"taso": "TASO", "unity": "Unity"}
"""The name of each format's files on the page."""


def test_the_page_is_what_the_results_say(golden: Callable[[Path, str], None]) -> None:
    golden(ROOT / "docs" / "audit.md", audit_page(load_audits(RESULTS), load_coverage(RESULTS)))


def test_the_results_have_the_known_counts() -> None:
    audits = load_audits(RESULTS)
    taso, unity = audits["TASO"][USUAL], audits["Unity"][USUAL]
    assert sum(taso["counts"].values()) == 133 and sum(unity["counts"].values()) == 640
    assert taso["counts"]["not_proved"] == taso["counts"]["unsupported"] == unity["counts"]["not_proved"] == 0
    assert [rule["name"] for rule in taso["rules"]] == [*UNSOUND]
    assert all(rule["status"] == "proved_with_conditions" for rule in taso["rules"])
    assert unity["counts"]["unbound"] == 112 and unity["counts"]["unsupported"] == 0


def test_true_rules_follow_from_shipped_ones() -> None:
    found = load_coverage(RESULTS)
    assert {name: row["rules"] for name, row in found["published"].items()} == {TASO: 133, UNITY: 523}
    assert all(row["share"] >= 0.97 for row in found["published"].values())
    assert all(row["share"] < 0.5 for row in found["shipped"].values())


@pytest.mark.parametrize("format", FILES)
def test_recorded_counterexamples_are_counterexamples(format: str) -> None:
    """Each is evaluated again in exact arithmetic, for the rule without the conditions that the audit found."""
    for reading, audit in load_audits(RESULTS)[FILES[format]].items():
        library = chosen_reading(FORMATS[format], [] if reading == USUAL else reading.split()).library()
        wrong = [rule for rule in audit["rules"] if rule["status"] in (Status.REFUTED, Status.PROVED_WITH_CONDITIONS)]
        assert len(wrong) == audit["counts"]["refuted"] + audit["counts"]["proved_with_conditions"]
        for recorded in wrong:
            (rule,) = parse_rules(Source(recorded["name"], recorded["text"])).rules
            given = tuple(one for one in rule.conditions if condition_text(one) not in recorded["conditions"])
            shown = read_table(recorded["counterexample"])
            assert confirms(
                replace(rule, conditions=given),
                library,
                shown.sizes,
                shown.inputs,
                evaluation=shown.evaluation,
                output=shown.output,
                position=shown.position,
                shapes=shown.shapes,
            ), f"{reading}: {recorded['name']}"


@pytest.mark.parametrize(("name", "results"), [(TASO, "audit_taso"), (UNITY, "audit_unity")])
def test_rules_of_the_day_are_answered_as_recorded(name: str, results: str) -> None:
    """Proved rules also have equal sides at random sizes, including sizes of 1 and unequal parts."""
    file = read_rule_file(published(name))
    recorded = json.loads((RESULTS / f"{results}.json").read_text())["seconds"][USUAL]["rules"]
    known = {rule["name"]: rule["status"] for rule in recorded}
    library, reading = library_of_format(file.format), reading_of(file)
    interesting = [rule for rule in file.rules if known.get(rule.name, "") not in ("", "unbound")]
    plain = [rule for rule in file.rules if rule.name not in known]
    found = [classify(rule, reading, library) for rule in (*of_the_day(interesting, 1), *of_the_day(plain, 14))]
    assert {one.name: str(one.status) for one in found} == {
        one.name: known.get(one.name, str(Status.PROVED)) for one in found
    }, f"UNITY_SAMPLE={SAMPLE}"
    for rule in true_rules(found):
        judged = judge(rule, library, INSTANCES, SAMPLE)
        assert judged.truth is Truth.EQUAL, f"UNITY_SAMPLE={SAMPLE} {rule.name}: {judged}"


@pytest.mark.parametrize("name", [TASO, UNITY])
def test_rules_of_the_day_follow_from_the_shipped_ones_as_recorded(name: str) -> None:
    file = read_rule_file(published(name))
    library, reading = library_of_format(file.format), reading_of(file)
    audit = load_audits(RESULTS)[FILES[file.format]][USUAL]
    known = {rule["name"] for rule in audit["rules"]}
    plain = [rule for rule in file.rules if rule.name not in known]
    asked = [translate(rule, reading).rule for rule in of_the_day(plain, 14)]
    shipped = RuleLibrary.of(known_rules(library, None), library, reading.definitions(library))
    missed = {one.name for one in coverage(asked, shipped) if one.cover is Cover.MISSED}
    recorded = load_coverage(RESULTS)["published"][name]["missed"]
    assert missed == {rule.name for rule in asked} & set(recorded), f"UNITY_SAMPLE={SAMPLE}"

"""A certificate never makes a changed rule count as proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules import certificate as certificates
from unity_dsl.rules.certificate import (
    Certificate,
    certificates_path,
    certified,
    certify,
    known_certificates,
    reached_hashes,
    read_certificates,
    render_certificates,
    stale_reason,
)
from unity_dsl.rules.wellformed import read_rules
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl
from unity_dsl.syntax.span import Source

from ..prove.cases import library, rule_of, rules_of
from ..prove.mutation import mutants

OPERATORS = """\
## A gate.
op gate(x: [b..], y: [b..]) -> z: [b..]
  z[b..] = squash(x[b..]) * y[b..]

op twice(x: [b..]) -> y: [b..]
  y[b..] = 2 * x[b..]

fn squash(a) = half(a) + 1
  derivative a: 0.5

fn half(a) = a / 2
  derivative a: 0.5

parallel part[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., @p * |e| + j, g..]
"""
RULE = """\
rule gate_by_parts(x: [p * m], y: [p * m])
  gate(x, y) => combine[p; dim=0](gate(part[p; dim=0](x), part[p; dim=0](y)))
"""


def library_with(text: str = OPERATORS) -> Library:
    return library_of([*library_sources(), Source("mine.uop", text)])


def certificate_of(rule: RuleDecl, known: Library) -> Certificate:
    answer = prove_rule(rule, known)
    assert isinstance(answer, Proved), answer
    return certify(rule, answer, known)


@pytest.fixture(scope="module")
def proved() -> tuple[RuleDecl, dict[str, Certificate]]:
    rule = rule_of(RULE)
    return rule, {rule.name: certificate_of(rule, library_with())}


Pair = tuple[RuleDecl, dict[str, Certificate]]


def test_what_was_proved_is_certified(proved: Pair) -> None:
    rule, found = proved
    assert certified(rule, library_with(), found)
    assert not certified(rule, library_with(), {})
    names = set(found[rule.name].declarations)
    assert names == {"rule", "facts", "op gate", "fn squash", "fn half", "parallel part", "parallel combine"}


def test_a_certificate_is_of_its_own_rule(proved: Pair) -> None:
    rule, found = proved
    other = replace(rule, name="other")
    assert not certified(other, library_with(), found)
    assert not certified(other, library_with(), {"other": found[rule.name]})


def test_only_rules_without_a_certificate_are_looked_at_for_shapes(
    proved: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr("unity_dsl.rules.wellformed.check_shapes", lambda rule, library: looked.append(rule.name))
    known, source = library_with(), Source("mine.rules", RULE)
    assert read_rules(source, known, proved[1]) == ((proved[0],), ()) and not looked
    other = library_with(OPERATORS.replace("squash(x[b..]) * y[b..]", "squash(y[b..]) * x[b..]"))
    for given, declared in (({}, known), (None, known), (proved[1], other)):
        read_rules(source, declared, given)
        assert looked.pop() == proved[0].name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("squash(x[b..]) * y[b..]", "squash(x[b..]) * y[b..] * 2"),
        ("squash(x[b..]) * y[b..]", "squash(y[b..]) * x[b..]"),
        ("half(a) + 1", "half(a) + 1.5"),
        ("half(a) + 1", "half(a)"),
        ("fn half(a) = a / 2", "fn half(a) = a / 3"),
        ("@p * |e| + j", "j * |p| + @p"),
        ("where rank(f) == dim, d == p * e", "where rank(f) == dim, d == p * e, e >= 2"),
    ],
)
@pytest.mark.usefixtures("untried")
def test_a_declaration_that_changes_takes_the_certificate_away(proved: Pair, old: str, new: str) -> None:
    rule, found = proved
    assert OPERATORS.count(old) == 1
    changed = library_with(OPERATORS.replace(old, new))
    reason = stale_reason(rule, changed, found[rule.name])
    assert reason is not None and reason.endswith("has changed since")
    assert not certified(rule, changed, found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## A gate.\n", "## A gate, said otherwise.\n"),
        ("op gate", "# a remark\nop gate"),
        ("z[b..] = squash(x[b..]) * y[b..]", "z[b..]=squash( x[b..] )*y[b..]  # the product"),
        ("2 * x[b..]", "3 * x[b..]"),
        ("op twice", "op thrice"),
        ("fn half", "fn quarter(a) = a / 4\n  derivative a: 0.25\n\nfn half"),
    ],
)
def test_remarks_spaces_and_other_declarations_do_not_matter(proved: Pair, old: str, new: str) -> None:
    rule, found = proved
    assert OPERATORS.count(old) == 1
    assert certified(rule, library_with(OPERATORS.replace(old, new)), found)


def test_a_declaration_that_goes_takes_the_certificate_away(proved: Pair) -> None:
    rule, found = proved
    assert not certified(rule, library(), found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x: [p * m]", "x: [p * n]"),
        ("gate(x, y) =>", "gate(y, x) =>"),
        ("part[p; dim=0](y)", "part[p; dim=-1](y)"),
        ("=> combine", "=> 1 * combine"),
        ("y: [p * m])", "y: [p * m]) where m >= 2"),
    ],
)
def test_a_rule_that_changes_takes_its_certificate_away(proved: Pair, old: str, new: str) -> None:
    _, found = proved
    assert RULE.count(old) == 1
    rule = rule_of(RULE.replace(old, new))
    assert stale_reason(rule, library_with(), found[rule.name]) == "the rule has changed since"
    assert not certified(rule, library_with(), found)


def test_remarks_and_spaces_in_a_rule_do_not_matter(proved: Pair) -> None:
    _, found = proved
    text = "## Said.\n" + RULE.replace("gate(x, y) =>", "gate( x,y )  # left\n  =>")
    assert certified(rule_of(text), library_with(), found)


def test_no_mutant_is_certified() -> None:
    """A mutant is not certified even if it has the span of the original rule."""
    for rule in rules_of("proved")[::4]:
        found = {rule.name: certificate_of(rule, library())}
        changed = [mutant for _, mutant in mutants(rule, library()) if mutant != rule]
        assert changed
        assert not any(certified(mutant, library(), found) for mutant in changed)


@pytest.mark.parametrize(("name", "value"), [("PROVER", 0), ("solver_version", lambda: "4.8.5")])
def test_another_prover_is_asked_again(proved: Pair, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    rule, found = proved
    monkeypatch.setattr(certificates, name, value)
    assert stale_reason(rule, library_with(), found[rule.name]) is not None
    assert not certified(rule, library_with(), found)


# ---------------------------------------------------------------------------------------------- hashes


@pytest.mark.usefixtures("untried")
def test_the_hashes_of_names_are_those_of_all_they_reach() -> None:
    known = library_with()
    whole = reached_hashes(["gate", "part"], known)
    assert whole == reached_hashes(["part", "gate", "gate"], known)
    assert whole != reached_hashes(["gate"], known)
    assert whole != reached_hashes(["gate", "part", "nothing"], known)
    for old, new in (("a / 2", "a / 4"), ("@p * |e| + j", "j * |p| + @p")):
        assert whole != reached_hashes(["gate", "part"], library_with(OPERATORS.replace(old, new)))
    assert whole == reached_hashes(["gate", "part"], library_with(OPERATORS.replace("2 * x", "5 * x")))


# ---------------------------------------------------------------------------------------------- files


def document(found: dict[str, Certificate]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(render_certificates(found.values()))
    return read


def code_of(path: Path) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_certificates(path)
    assert known_certificates(path) == {}, "elsewhere it only means that rules are proved again"
    return caught.value.diagnostic.code, caught.value.diagnostic.message


def test_what_is_written_is_read_back(proved: Pair, tmp_path: Path) -> None:
    _, found = proved
    path = tmp_path / "x.certificates.json"
    path.write_text(render_certificates(found.values()))
    assert read_certificates(path) == known_certificates(path) == found
    assert certificates_path(tmp_path / "x.rules") == path
    names = [name for rule in document(found)["rules"].values() for name in rule["declarations"]]
    assert names == sorted(names)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert code_of(tmp_path / "x.certificates.json")[0] == "E543"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "NaN",
        '"text"',
        "[" * 100_000,
        '{"a": ' * 100_000,
        " " * 10_000_000 + "{}",
        "9" * 9_999,
    ],
    ids=lambda text: text[:5],
)
def test_what_is_no_file_of_certificates_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.certificates.json"
    path.write_text(text)
    assert code_of(path)[0] == "E544"
    path.write_bytes(b"\x80\x04\xff\x00")
    assert code_of(path)[0] == "E544"


DAMAGES: list[Callable[[dict[str, Any]], object]] = [
    lambda entry: entry.update(prover=entry["prover"] + 1),
    lambda entry: entry.update(z3="9"),
    lambda entry: entry.update(hash="0" * 64),
    lambda entry: entry.update(hash=None),
    lambda entry: entry.update(obligations=entry["obligations"][:-1]),
    lambda entry: entry.update(obligations="same_value"),
    lambda entry: entry.update(obligations=[{}]),
    lambda entry: entry.update(declarations=[]),
    lambda entry: entry["declarations"].update({"op gate": "0" * 64}),
    lambda entry: entry["declarations"].update({"op gate": 1}),
    lambda entry: entry["declarations"].pop("fn half"),
    lambda entry: entry.pop("declarations"),
    lambda entry: entry.pop("hash"),
    lambda entry: entry.update(more=1),
    lambda entry: entry.update(prover="1"),
    lambda entry: entry.update(prover=True),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_field_that_was_changed_is_told(
    proved: Pair, tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    rule, found = proved
    changed = document(found)
    damage(changed["rules"][rule.name])
    path = tmp_path / "x.certificates.json"
    path.write_text(json.dumps(changed))
    code, message = code_of(path)
    assert code == "E544" and rule.name in message


@pytest.mark.parametrize(
    "change",
    [
        lambda top: top.update(format=2),
        lambda top: top.update(format=True),
        lambda top: top.pop("rules"),
        lambda top: top.update(rules=[]),
        lambda top: top.update(more=1),
        lambda top: top["rules"].update(other=top["rules"]["gate_by_parts"]),
        lambda top: top["rules"].update(other=3),
    ],
)
def test_a_file_that_was_changed_is_told(
    proved: Pair, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    top = document(proved[1])
    change(top)
    path = tmp_path / "x.certificates.json"
    path.write_text(json.dumps(top))
    assert code_of(path)[0] == "E544"


def test_a_name_that_stands_twice_is_told(proved: Pair, tmp_path: Path) -> None:
    text = render_certificates(proved[1].values())
    path = tmp_path / "x.certificates.json"
    path.write_text(text.replace('"prover":', '"prover": 1, "prover":'))
    assert code_of(path) == ("E544", f"{path}: `prover` stands in it twice")

"""From candidates to a library: no kept rule follows from the other kept ones, and every omitted rule does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import sleep

import pytest

from unity_dsl.index.equations.term_text import condition_text
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.certificate import certified, read_certificates
from unity_dsl.rules.derivation.derivability import Derivability
from unity_dsl.rules.enumeration.candidates import Enumeration, candidates
from unity_dsl.rules.enumeration.context import Context, contexts
from unity_dsl.rules.enumeration.signature_table import read_table
from unity_dsl.rules.generation.canonical_rule import canonical_rule, rule_digest
from unity_dsl.rules.generation.examination import examine
from unity_dsl.rules.generation.library_files import theme_files, write_library
from unity_dsl.rules.generation.pipeline import Generation, Generator
from unity_dsl.rules.generation.proof_cache import Examiner
from unity_dsl.rules.generation.reading_order import in_reading_order
from unity_dsl.rules.generation.rule_text import rule_text, rules_text, sides_text
from unity_dsl.rules.generation.selection import LIBRARY_BOUND, Kept, Selection
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.diagnostic import InputError, fail
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from ...prove.cases import library, rules_of, shipped_rules

COMMUTATIVE = frozenset({"add", "mul"})
TABLE = """\
[small]
about = "Sums, factors and relu"
operators = 2
numbers = ["c", "d", "c * d"]
signatures = [
  "(x: [m, n], y: [m, n]) add(x, y)",
  "(x: [m, n]) scale(x; factor=c)",
  "(x: [m, n]) relu(x)",
  "(x: [m, n]) x[m, n] -> [n, m]",
]
"""


def rules(text: str) -> tuple[RuleDecl, ...]:
    return parse_rules(Source("laws.rules", text)).rules


def rule(text: str) -> RuleDecl:
    (found,) = rules(text)
    return found


# ---------------------------------------------------------------------------------------------- texts


def test_a_rule_as_text_is_the_same_rule() -> None:
    count = 0
    for one in (*rules_of("proved"), *shipped_rules()):
        canonical = canonical_rule(one, library())
        read = rule(rule_text(canonical))
        assert rule_digest(read, library()) == rule_digest(one, library()), rule_text(canonical)
        assert rules_text([read]) == rules_text([canonical]), "in the one layout"
        count += 1
    assert count > 200


def test_renamed_rules_are_one_rule() -> None:
    first = rule(
        "rule a(x: [m, k], w: [n, k]) where c > 0\n  linear(scale(x; factor=c), w) => scale(linear(x, w); factor=c)\n"
    )
    second = rule(
        "rule b(w: [o, i], t: [b, i]) where s > 0\n  linear(scale(t; factor=s), w) => scale(linear(t, w); factor=s)\n"
    )
    other = rule(
        "rule a(x: [m, k], w: [n, k]) where c < 0\n  linear(scale(x; factor=c), w) => scale(linear(x, w); factor=c)\n"
    )
    assert rule_digest(first, library()) == rule_digest(second, library())
    assert rule_digest(first, library()) != rule_digest(other, library())


# ---------------------------------------------------------------------------------------------- one candidate


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("rule a(x: [m, n])\n  relu(relu(x)) => relu(x)\n", "x: [b..]"),
        ("rule a(x: [m, k], w: [n, k])\n  relu(relu(linear(x, w))) => relu(linear(x, w))\n", "x: [b.., m], y: [n, m]"),
        ("rule a(x: [m, a], y: [m, b])\n  relu(concat(x, y; dim=1)) => concat(relu(x), relu(y); dim=1)\n",
         "x: [b.., m], y: [b.., n]"),
        ("rule a(x: [a, n], y: [b, n])\n  relu(concat(x, y; dim=0)) => concat(relu(x), relu(y); dim=0)\n",
         "x: [m, b..], y: [n, b..]"),
        ("rule a(x: [m, n])\n  relu(concat(x, x; dim=0)) => concat(relu(x), relu(x); dim=0)\n", "x: [m, b..]"),
        ("rule a(x: [m, n], y: [n], z: [n])\n  x + y + z => x + (y + z)\n", "x: [a.., b..], y: [b..], z: [b..]"),
        ("rule a(x: [m, k], y: [n, k], g: [k])\n"
         "  rms_norm(concat(x, y; dim=0), g) => concat(rms_norm(x, g), rms_norm(y, g); dim=0)\n",
         "x: [m, b.., n], y: [k, b.., n], z: [n]"),
        ("rule a(x: [m, n])\n  (x[m, n] -> [n, m])[n, m] -> [m, n] => x\n", "x: [m, n]"),
        ("rule a(x: [m, n])\n  softmax(scale(x; factor=0)) => scale(softmax(0 * x); factor=1)\n", "x: [b.., m]"),
    ],
)  # fmt: skip
def test_a_rule_is_written_for_any_rank_where_it_holds(text: str, inputs: str) -> None:
    found = examine(rule(text), library())
    assert found.rule is not None and f"({inputs})" in rule_text(found.rule)
    answer = prove_rule(found.rule, library())
    assert isinstance(answer, Proved)
    assert found.obligations == tuple((one.name, one.statement) for one in answer.obligations)


def test_a_wrong_candidate_is_kept_under_the_condition_that_is_found() -> None:
    found = examine(rule("rule a(x: [m, n])\n  relu(scale(x; factor=c)) => scale(relu(x); factor=c)\n"), library())
    assert found.status == "proved_with_conditions" and found.rule is not None
    assert "where c >= 0" in rule_text(found.rule)
    wrong = examine(rule("rule a(x: [m, n])\n  relu(x) => x\n"), library())
    assert (wrong.rule, wrong.status) == (None, "refuted")


@pytest.mark.parametrize(
    ("inputs", "law", "conditions"),
    [
        ("x: [n, i, h, w]", "relu(max_pool2d(x; size=3, stride=2)) => max_pool2d(relu(x); size=3, stride=2)",
         ["k >= 3", "h >= 3"]),
        ("x: [n, i, 2 * h + r - 2, w + s - 1], k: [o, i, r, s], l: [o, i, r, s]",
         "conv2d(x, k + l; stride=2) => conv2d(x, k; stride=2) + conv2d(x, l; stride=2)", ["k >= j", "h >= l"]),
        ("x: [n, i, h, w], k: [o, i, r, s]", "conv2d(scale(x; factor=c), k) => scale(conv2d(x, k); factor=c)",
         ["k >= j", "h >= l"]),
        ("x: [n, i, h, w + 1]", "scale(avg_pool2d(x; size=2, stride=1); factor=c) => "
         "avg_pool2d(scale(x; factor=c); size=2, stride=1)", ["k >= 2", "h >= 2"]),
        ("x: [n, i, h, w], k: [o, i, 1, 1]", "relu(relu(conv2d(x, k))) => relu(conv2d(x, k))", []),
    ],
)  # fmt: skip
def test_a_rule_with_windows_is_kept_where_they_fit(inputs: str, law: str, conditions: list[str]) -> None:
    """Without its conditions the rule is not proved, because some tensors may be empty."""
    found = examine(rule(f"rule a({inputs})\n  {law}\n"), library())
    assert found.rule is not None and list(map(condition_text, found.rule.conditions)) == conditions
    assert found.status == ("proved_with_conditions" if conditions else "proved")
    bare = prove_rule(replace(found.rule, conditions=()), library())
    assert isinstance(bare, Proved) == (not conditions)


@pytest.mark.parametrize(
    ("inputs", "law", "best"),
    [
        ("x: [m, n], y: [m, n], z: [m, n]", "y + (x + z) => z + (y + x)", "x + (y + z) => x + y + z"),
        ("x: [m, n], y: [n], z: [m, n]", "y * x + z * y => y * (z + x)", "x * y + z * y => (x + z) * y"),
        ("x: [m, n], y: [m, n], z: [m, n]", "y * x + z * y => y * (z + x)", "x * y + x * z => x * (y + z)"),
        ("x: [m, n], y: [n]", "exp(y) * relu(x) => relu(exp(y) * x)", "relu(x) * exp(y) => relu(x * exp(y))"),
        ("x: [n, k], y: [m, k]",
         "exp(x), exp(y) => slice(exp(concat(y, x; dim=0)); dim=0, start=m, stop=m + n), "
         "slice(exp(concat(y, x; dim=0)); dim=0, start=0, stop=m)",
         "exp(x), exp(y) => slice(exp(concat(x, y; dim=0)); dim=0, start=0, stop=m), "
         "slice(exp(concat(x, y; dim=0)); dim=0, start=m, stop=m + k)"),
        ("x: [m, n], y: [m, n]", "matmul(x, y[m, n] -> [n, m]) => linear(x, y)",
         "matmul(x, y[m, n] -> [n, m]) => linear(x, y)"),
    ],
)  # fmt: skip
def test_commutative_operands_and_outputs_stand_in_reading_order(inputs: str, law: str, best: str) -> None:
    made = in_reading_order(rule(f"rule a({inputs})\n  {law}\n"), COMMUTATIVE, library())
    assert sides_text(made) == best
    assert isinstance(prove_rule(made, library()), Proved)


# ---------------------------------------------------------------------------------------------- selection


CANDIDATES = """\
rule a(x: [m, n])
  relu(relu(x)) => relu(x)

rule b(x: [m, n, k])
  relu(relu(x)) => relu(x)

rule c(x: [m, n])
  relu(relu(relu(x))) => relu(x)

rule d(x: [m, n], y: [m, n])
  relu(x + y) => relu(x) + relu(y)

rule e(x: [m, n], y: [m, n])
  (x + y)[m, n] -> [n, m] => (x[m, n] -> [n, m]) + (y[m, n] -> [n, m])

rule f(x: [m, n])
  (x + x)[m, n] -> [n, m] => (x[m, n] -> [n, m]) + (x[m, n] -> [n, m])

rule g(a: [u, v])
  relu(relu(a)) => relu(a)
"""


def test_what_is_derived_is_left_out_and_what_is_wrong_is_told() -> None:
    selection = Selection(library(), COMMUTATIVE, Examiner(library()), lambda *_: None)
    kept = selection.run({"some": rules(CANDIDATES)})
    assert [rule_text(one.rule).splitlines()[1].strip() for one in kept] == [
        "relu(relu(x)) => relu(x)",
        "(x + y)[m, n] -> [n, m] => (x[m, n] -> [n, m]) + (y[m, n] -> [n, m])",
    ]
    assert [one.name for one in selection.refuted] == ["d"] and not selection.open
    counts = selection.counts
    assert (counts["candidates"], counts["distinct"], counts["minimal"]) == (7, 6, 2)
    assert counts["refuted"] + counts["derived"] + counts["kept"] == counts["distinct"]


# ---------------------------------------------------------------------------------------------- the whole way


@cache
def generated(processes: int = 1) -> Generation:
    return Generator(library(), processes).run(read_table(Source("table", TABLE)))


def test_no_rule_of_a_library_is_derived_from_the_others_and_all_are_proved(tmp_path: Path) -> None:
    write_library(generated().files, tmp_path)
    path = tmp_path / "small.rules"
    found = load_rules(Source(str(path), path.read_text()), library())
    certificates = read_certificates(tmp_path / "small.certificates.json")
    known = Derivability(library(), COMMUTATIVE)
    for one in found:
        known.add(one)
    assert len(found) == generated().files[0].count > 5
    assert (LIBRARY_BOUND.expansions, LIBRARY_BOUND.operators) == (96, 2)
    for place, one in enumerate(found):
        assert certified(one, library(), certificates)
        if one.name != "add_commutes":
            assert known.derive(one, LIBRARY_BOUND, without={place}) is None, one.name


def test_certificates_are_of_proofs_of_the_text_where_it_names_what_its_sides_share() -> None:
    """A convolution adds the divisibility by its groups to the obligations, in the order in which calls are visited."""
    joined = """\
rule joined(x: [m, n, k, h], y: [i, n, j, l], z: [o, n, j, l]) where k >= j, h >= l
  r1 = conv2d(x, concat(y, z; dim=0))
  conv2d(x, y), conv2d(x, z) => slice(r1; dim=1, start=0, stop=i), slice(r1; dim=1, start=i, stop=i + o)
"""
    (made,) = theme_files([Kept("some", examine(rule(joined), library()))], {}, library())
    (read,) = rules(made.rules)
    answer = prove_rule(read, library())
    assert read.definitions and isinstance(answer, Proved)
    stored = json.loads(made.certificates)["rules"][read.name]["obligations"]
    assert stored == [f"{one.name}: {one.statement}" for one in answer.obligations]


def test_interrupted_generation_goes_on_and_ends_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run proves nothing again. The number of processes and the cache folder do not change the result."""
    table, whole = read_table(Source("table", TABLE)), generated()

    class Stop(Exception):
        pass

    def stop(what: str, done: int, whole: int) -> None:
        if what == "minimised":
            raise Stop

    with pytest.raises(Stop):
        Generator(library(), 2, tmp_path, progress=stop).run(table)
    assert list(tmp_path.glob("context-small-*.json")) and list(tmp_path.glob("proofs-*.json"))
    (tmp_path / "proofs-0.json").write_text("{")

    def examine_again(*_: object, **__: object) -> None:
        raise AssertionError("examined again")

    monkeypatch.setattr("unity_dsl.rules.generation.proof_cache.examine", examine_again)
    again = Generator(library(), 1, tmp_path).run(table)
    assert again.files == whole.files and again.counts == whole.counts
    assert json.loads(again.files[0].certificates)["rules"]


def test_that_operands_may_be_exchanged_is_not_said_again() -> None:
    known = tuple(one for one in rules(generated().files[0].rules) if one.name == "add_commutes")
    (said,) = (rule_digest(one, library()) for one in known)
    made = Generator(library(), known=known).run(read_table(Source("table", TABLE)))
    assert said not in {rule_digest(one, library()) for one in rules(made.files[0].rules)}


class Interrupted(Exception):
    pass


def test_contexts_that_are_finished_ahead_of_a_slow_one_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first context is interrupted once another one is finished."""
    table = read_table(Source("table", TABLE))
    first, *_ = contexts(table, library())

    def slow(context: Context, library: Library) -> Enumeration:
        if context != first:
            return candidates(context, library)
        wait_until(lambda: any(tmp_path.glob("context-small-*.json")))
        raise Interrupted

    monkeypatch.setattr("unity_dsl.rules.generation.pipeline.candidates", slow)
    with pytest.raises(Interrupted):
        Generator(library(), 2, tmp_path).run(table)
    assert any(tmp_path.glob("context-small-*.json"))


def test_a_folder_that_cannot_be_written_is_told_by_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise fail("E030", f"cannot write `{path.parent}`: no space left on device")

    monkeypatch.setattr("unity_dsl.rules.generation.pipeline.write_file", full)
    for processes in (1, 2):
        with pytest.raises(InputError) as caught:
            Generator(library(), processes, tmp_path).run(read_table(Source("table", TABLE)))
        assert caught.value.diagnostic.code == "E030" and str(tmp_path) in caught.value.diagnostic.message


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        sleep(0.01)
    raise AssertionError("it does not come to hold within a minute")

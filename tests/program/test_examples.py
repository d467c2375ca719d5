"""Examples under strategies on ranks equal their one-device models: a sample of the cases, different every day.

`make check-examples` checks all cases. `UNITY_SAMPLE` sets the seed of the sample, which a failure prints.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from unity_dsl.emit.rank_pool import RankPool

from ..sampling import SAMPLE
from .example_cases import EXAMPLES, Case, Checker, Finding, cases, divided_part, sample

COUNT = 6
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def checker(pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(pool, tmp_path_factory.mktemp("examples"))


def test_there_are_examples() -> None:
    assert set(EXAMPLES) >= {"digits", "mlp", "gpt2", "bert_large"}


@pytest.mark.parametrize("number", range(COUNT))
def test_example(number: int, checker: Checker) -> None:
    """Cases are numbered instead of named: test processes must agree on the names, also around midnight."""
    case = sample(COUNT, SAMPLE)[number]
    print(f"UNITY_SAMPLE={SAMPLE}: {case}")
    finding = checker.check(case)
    assert finding.ok, f"UNITY_SAMPLE={SAMPLE}: {finding}"


@pytest.mark.parametrize("number", range(4))
def test_these_plans_divide(number: int, checker: Checker) -> None:
    """If the plans divided nothing, the agreement above would show nothing."""
    example = sample(COUNT, SAMPLE)[number].example
    divided = divided_part(checker.plan(Case(example, (2, 2), 4, "auto")))
    assert divided > 0.8, f"UNITY_SAMPLE={SAMPLE}: {divided:.0%} of the operators of {example} are divided"


def test_a_sample_is_of_different_examples() -> None:
    for seed in range(20):
        chosen = sample(COUNT, seed)
        assert len({case.example for case in chosen}) == min(COUNT, len(EXAMPLES))
    assert sample(COUNT, 1) == sample(COUNT, 1) != sample(COUNT, 2)


def test_the_cases_of_an_example() -> None:
    found = list(cases("mlp", (1, 2, 4), 5))
    assert len(set(found)) == len(found) == 21
    assert {case.mesh for case in found if case.ranks == 4} == {(2, 2), (4,)}
    assert found == list(cases("mlp", (1, 2, 4), 5)) != list(cases("mlp", (1, 2, 4), 5, seed=1))


# ---------------------------------------------------------------------------------------------- the whole run


@pytest.fixture
def command(pool: RankPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Runs `bench/check_examples.py` on the ranks of the tests."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    spec = importlib.util.spec_from_file_location("check_examples", ROOT / "bench" / "check_examples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RankPool", lambda size: nullcontext(pool))
    yield module
    sys.modules.pop("measure", None)


ARGUMENTS = ("--examples", "mlp", "--ranks", "1", "--plans", "1")


def test_the_whole_run_goes_on_where_it_stopped(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*ARGUMENTS, "--output", str(tmp_path / "found.json")]
    check, left = Checker.check, [1]

    def interrupted(self: Checker, case: Case) -> Finding:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return check(self, case)

    monkeypatch.setattr(Checker, "check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.main(arguments)
    monkeypatch.setattr(Checker, "check", check)
    assert command.main(arguments) == 0
    assert "3 cases, 0 not equal; 2 checked now" in capsys.readouterr().out
    assert command.main(arguments) == 0
    assert "3 cases, 0 not equal; 0 checked now" in capsys.readouterr().out


def test_what_is_refused_is_told_and_no_miss(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--examples", "mlp", "bert_large", "--ranks", "2", "--plans", "0", "--micro-batches", "2"]
    assert command.main([*arguments, "--output", str(tmp_path / "found.json")]) == 0
    told = capsys.readouterr().out
    assert "4 cases, 0 not equal, 2 refused" in told
    assert "mlp on 2 by data_parallel in 2 micro-batches: equal" in told
    assert "bert_large on 2 by auto in 2 micro-batches: refused" in told


def test_a_program_that_is_wrong_fails_the_run(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """End to end: the text of a program is changed after it was written."""
    arguments = [*ARGUMENTS, "--output", str(tmp_path / "found.json")]
    write = Checker.write

    def spoilt(self: Checker, case: Case) -> object:
        out, plan = write(self, case)
        if case.strategy == "auto":
            model = out / "model.py"
            model.write_text(model.read_text().replace(".relu_()", ".tanh_()"))
        return out, plan

    monkeypatch.setattr(Checker, "write", spoilt)
    assert command.main(arguments) == 1
    assert "1 by auto: NOT EQUAL" in capsys.readouterr().out
    monkeypatch.setattr(Checker, "write", write)
    assert command.main(arguments) == 0
    assert "1 checked now" in capsys.readouterr().out


def test_a_strategy_that_does_not_fit_is_a_miss(checker: Checker) -> None:
    finding = checker.check(Case("mlp", (3,), 3, "data_parallel"))
    assert not finding.ok and "E309" in finding.fault

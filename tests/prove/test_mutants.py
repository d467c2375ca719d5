"""Rules near true ones. Without its guard, the witness, the prover must still prove none that numbers contradict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from unity_dsl.prove import prove
from unity_dsl.prove.build import Graph, claim_of
from unity_dsl.prove.prove import Proved, Refuted, prove_rule
from unity_dsl.prove.witness import Difference, Run, witness_sizes
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl

from .cases import library, mutants, rules_of

EVERY = 6
"""Every so many mutants are tried, to keep the test short."""


def some_mutants() -> Iterator[RuleDecl]:
    every = (mutant for rule in rules_of("proved") for mutant in mutants(rule))
    return (mutant for number, mutant in enumerate(every) if number % EVERY == 0)


def differences(rule: RuleDecl) -> Iterator[Difference]:
    """Where the sides of a rule differ, on instances that the prover has not seen; sizes of 1 included."""
    claim = claim_of(rule)
    for ranks in prove.ranks_of(rule):
        prover = prove.Prover(rule, claim, library(), ranks)
        sizes = witness_sizes(claim, prover.names, 0)
        assert sizes is not None
        graph = Graph(rule, claim, library(), ranks, sizes, prover.arithmetic)
        graph.sides()
        for seed in range(1, 7):
            sizes = witness_sizes(claim, prover.names, seed, least=2 if seed < 3 else 1)
            assert sizes is not None
            found = Run(rule, claim, library(), ranks, graph.views, sizes).difference(seed)
            if found is not None:
                yield found


def test_no_mutant_that_differs_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove.Prover, "difference", lambda *_: None)
    count: Counter[str] = Counter()
    for mutant in some_mutants():
        try:
            answer = prove_rule(mutant, library())
        except InputError:
            count["refused"] += 1
            continue
        count[type(answer).__name__] += 1
        if isinstance(answer, Proved):
            assert not list(differences(mutant)), mutant
    assert count["NotProved"] > 120 and count["Proved"] > 3, count


def test_mutants_that_differ_are_refuted() -> None:
    """A mutant is shown to be wrong by numbers, save where its sides have no common meaning.

    Or where it is true for a reason that the prover does not know: relu of a sum of exponentials changes nothing.
    """
    count: Counter[str] = Counter()
    for mutant in list(some_mutants())[::2]:
        try:
            answer = prove_rule(mutant, library())
        except InputError:
            continue
        known = answer.obligation if not isinstance(answer, Proved | Refuted) else type(answer).__name__
        count[known] += 1
    assert count["same_value"] <= 2 and count["Refuted"] > 40, count


@pytest.mark.parametrize("rule", rules_of("proved"), ids=lambda rule: rule.name)
def test_an_independent_check_agrees_with_what_is_proved(rule: RuleDecl) -> None:
    assert not list(differences(rule))

"""Search for conditions under which a rule holds: they are proved, and a counterexample lies outside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import of_the_day
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.conditions.condition_grammar import atoms
from unity_dsl.prove.conditions.condition_search import Evidence, Found, Undefined, _entails, find_condition
from unity_dsl.prove.refutation.counterexample import confirmed
from unity_dsl.prove.refutation.numeric_run import Difference, IllShaped, Run, witness_sizes
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.real_attributes import with_reals
from unity_dsl.prove.translation.rest_ranks import ranks_of
from unity_dsl.prove.translation.rule_forms import attribute_names, claim_of, used_names, views_at
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl

from ..cases import CASES, library, rule_of, rules_of
from ..mutation import mutants

CONDITIONAL = rules_of("conditional")
TODAY = of_the_day(CONDITIONAL, 16)


@cache
def operators() -> Library:
    """The shipped declarations and those of the cases."""
    return load_library([CASES / "extra.uop", CASES / "conditional" / "operators.uop"])


@cache
def found_for(rule: RuleDecl) -> Found:
    found = find_condition(rule, operators())
    assert found is not None
    return found


def expectation(rule: RuleDecl) -> dict[str, str]:
    """The entries `condition: …` and `outside: …` in the comment above a case."""
    parts = [line.partition(": ") for line in rule.doc.splitlines()]
    return {key: value for key, _, value in parts}


def holds(conditions: tuple[str, ...], sizes: Mapping[str, int | Fraction]) -> bool:
    """Whether the conditions hold, evaluated by Python independently of the search."""
    return all(eval(text, {}, dict(sizes)) for text in conditions)


def differences(rule: RuleDecl, declarations: Library) -> Iterator[Difference]:
    """Differences of the sides at new sizes and inputs. Asserts that some of the sizes are small enough to run."""
    rule, declarations = with_reals(rule, declarations)
    claim = claim_of(rule)
    for ranks in ranks_of(rule, declarations):
        names = used_names(rule, claim, ranks)
        sizes = witness_sizes(claim, names, 0)
        assert sizes is not None
        views = views_at(rule, claim, declarations, ranks, sizes)
        run = 0
        for seed in range(20, 26):
            sizes = witness_sizes(claim, names, seed, least=2 if seed < 22 else 1)
            assert sizes is not None
            try:
                found = Run(rule, claim, declarations, ranks, views, sizes).difference(seed)
            except IllShaped as error:
                assert str(error) == "too large"
                continue
            run += 1
            if found is not None:
                yield found
        assert run, "all sizes are too large"


# ---------------------------------------------------------------------------------------------- cases


def test_the_folder_holds_rules() -> None:
    assert len(CONDITIONAL) >= 28
    assert all(set(expectation(rule)) == {"condition", "outside"} for rule in CONDITIONAL)


@pytest.mark.parametrize("rule", TODAY, ids=lambda rule: rule.name)
def test_the_expected_condition_is_found(rule: RuleDecl) -> None:
    found = found_for(rule)
    told = [", ".join(sorted(conditions)) for conditions in (found.conditions, *found.others)]
    expected = [", ".join(sorted(part.split(", "))) for part in expectation(rule)["condition"].split(" | ")]
    assert told == expected
    assert found.exact


@pytest.mark.parametrize("rule", TODAY, ids=lambda rule: rule.name)
def test_what_is_found_is_proved_and_cannot_be_left_out(rule: RuleDecl) -> None:
    found = found_for(rule)
    assert isinstance(prove_rule(found.rule, operators()), Proved)
    assert not isinstance(prove_rule(rule, operators()), Proved)
    assert not list(differences(found.rule, operators()))


@pytest.mark.parametrize("rule", TODAY, ids=lambda rule: rule.name)
def test_a_counterexample_outside_is_confirmed(rule: RuleDecl) -> None:
    found = found_for(rule)
    own = claim_of(with_reals(rule, operators())[0])
    reals = found.outside.reals if isinstance(found.outside, Difference) else {}
    assert not holds(found.conditions, {**own.written(found.outside.sizes), **reals})
    assert all(size >= 1 for size in found.outside.sizes.values())
    if expectation(rule)["outside"] == "differs":
        assert isinstance(found.outside, Difference)
        again = confirmed(found.outside, rule, operators())
        assert again == found.outside
        assert found.outside.shapes is not None or abs(found.outside.left - found.outside.right) > 1e-6
    else:
        assert isinstance(found.outside, Undefined)
        with pytest.raises(IllShaped, match=r".") as error:
            Run(rule, claim_of(rule), operators(), {}, {}, found.outside.sizes).difference(0)
        assert str(error.value) == found.outside.reason


@pytest.mark.parametrize("rule", TODAY, ids=lambda rule: rule.name)
def test_conditions_are_written_as_rules_write_them(rule: RuleDecl) -> None:
    found = found_for(rule)
    (read,) = (rule_of(f"rule f(x: [m])\n  where {', '.join(found.conditions)}\n  x => x\n"),)
    assert rule.conditions + read.conditions == found.rule.conditions


EXACT = of_the_day(
    [
        "mean_of_two_means",
        "transpose_left_out",
        "flattened_in_the_other_order",
        "reshape_for_a_transpose",
        "divided_by_the_other_size",
        "mean_over_both_axes",
        "slice_of_a_tanh",
        "two_scales_in_one",
        "sum_of_local_means",
        "partition_and_back",
    ],
    5,
)


@pytest.mark.parametrize("name", EXACT)
def test_the_sides_agree_where_the_condition_holds_and_nowhere_else(name: str) -> None:
    """Both sides are run at every combination of small sizes."""
    (rule,) = (rule for rule in CONDITIONAL if rule.name == name)
    found, claim = found_for(rule), claim_of(rule)
    names = used_names(rule, claim, {})
    sizes = witness_sizes(claim, names, 0)
    assert sizes is not None
    views = views_at(rule, claim, operators(), {}, sizes)
    count = {True: 0, False: 0}
    for values in product(range(1, 5 if len(names) < 4 else 4), repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        run = Run(rule, claim, operators(), {}, views, sizes)
        try:
            agrees = all(run.difference(seed) is None for seed in (40, 41))
        except IllShaped:
            agrees = False
        expected = any(holds(conditions, sizes) for conditions in (found.conditions, *found.others))
        assert agrees == expected, sizes
        count[agrees] += 1
    assert min(count.values()) > 0


@pytest.mark.parametrize("rule", TODAY[::3], ids=lambda rule: rule.name)
def test_no_weaker_condition_of_the_grammar_is_proved(rule: RuleDecl) -> None:
    """Tries single comparisons that hold, among small sizes, wherever the condition holds and at other sizes too."""
    found, claim = found_for(rule), claim_of(rule)
    ranks = next(iter(ranks_of(rule, operators())))
    used, attributes = used_names(rule, claim, ranks), attribute_names(rule, claim, ranks)
    names = [name for name in used if name.isidentifier()]
    sizes = [dict(zip(used, values, strict=True)) for values in product(range(1, 4), repeat=len(used))]
    written = [claim.written(one) for one in sizes if claim.holds(one)]
    told = (found.conditions, *found.others)
    inside = {place for place, one in enumerate(written) if any(holds(conditions, one) for conditions in told)}
    weaker = []
    for atom in atoms(names, attributes):
        covered = {place for place, one in enumerate(written) if not atom.zeros and holds((atom.text,), one)}
        if inside < covered:
            weaker.append(atom)
    for atom in weaker[:12]:
        stated = replace(rule, conditions=(*rule.conditions, atom.comparison))
        assert not isinstance(prove_rule(stated, operators(), shrink=False), Proved), atom.text


# ---------------------------------------------------------------------------------------------- none


@pytest.mark.parametrize("rule", rules_of("proved")[::11], ids=lambda rule: rule.name)
def test_a_law_needs_no_condition(rule: RuleDecl) -> None:
    assert find_condition(rule, library()) is None


@pytest.mark.parametrize(
    "text",
    [
        "rule f(x: [m])\n  relu(x) => x\n",
        "rule f(x: [m, k])\n  x => negative(x)\n",
        "rule f(x: [m, k])\n  where m == 2 * k, k == 2 * m\n  x => relu(x)\n",
        "rule f(x: [p * e, n])\n  where q == p\n  partition[p; dim=0](x) => partition[q; dim=0](x)\n",
        "rule f(x: [m])\n  dropout(x) + dropout(x) => 2 * dropout(x)\n",
        "rule f(x: [@p, m])\n  where p == a * b\n  reduce[p](x) => reduce[p](x)\n",
        "rule f(x: [])\n  x => relu(x)\n",
    ],
    ids=["always", "never", "contradictory", "layouts", "random", "degree", "no_sizes"],
)
def test_no_condition_helps(text: str) -> None:
    assert find_condition(rule_of(text), library()) is None


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError):
        find_condition(rule_of("rule f(x: [m])\n  rleu(x) => x\n"), library())


def test_the_condition_is_the_same_on_every_run() -> None:
    for rule in TODAY[::4]:
        again = find_condition(rule, operators())
        assert again is not None
        assert (again.conditions, again.others, again.outside) == (
            found_for(rule).conditions,
            found_for(rule).others,
            found_for(rule).outside,
        )


def test_a_condition_of_the_rule_is_kept() -> None:
    text = "rule f(x: [m, k], y: [l, n])\n  where k >= 2\n  matmul(x, 2 * y) => 2 * matmul(x, y)\n"
    found = find_condition(rule_of(text), library())
    assert found is not None and found.conditions == ("k == l",) and len(found.rule.conditions) == 2
    assert found.outside.sizes == {"m": 1, "k": 2, "l": 1, "n": 1}


def test_equal_sizes_come_before_sizes_of_one_where_tensors_broadcast() -> None:
    found = find_condition(rule_of("rule f(x: [m, k], y: [m, l])\n  x + y => y + x\n"), library())
    assert found is not None
    assert (found.conditions, set(found.others), found.exact) == (("k == l",), {("k == 1",), ("l == 1",)}, True)


# ---------------------------------------------------------------------------------------------- grammar


def test_every_atom_is_read_as_it_is_written() -> None:
    every = atoms(["m", "n", "a"], frozenset({"a"}))
    assert len({atom.text for atom in every}) == len(every) == 1 + 3 + 3 + 6 * 3 + 3 * 3 + 3 * 4
    rule = rule_of(f"rule f(x: [m])\n  where {', '.join(atom.text for atom in every)}\n  x => x\n")
    assert rule.conditions == tuple(atom.comparison for atom in every)
    values = np.array(list(product(range(1, 5), repeat=3))).T
    for atom in every:
        found = atom.holds(dict(zip("mna", values, strict=True)))
        assert [bool(one) for one in found] == [
            holds((atom.text,), dict(zip("mna", row, strict=True))) for row in values.T.tolist()
        ]
    assert [atom.text for atom in every if atom.zeros] == ["a == 0"]
    multiple = next(atom for atom in every if atom.text == "m % a == 0")
    assert not multiple.holds({"m": np.array(3), "n": np.array(1), "a": np.array(0)})


def test_products_of_four_names_are_compared_in_every_pairing() -> None:
    every = atoms(["m", "n", "k"], frozenset(), ["a"])
    texts = {atom.text for atom in every}
    products = [text.split(" == ") for text in texts if text.count("*") == 2]
    assert {frozenset(frozenset(side.split(" * ")) for side in sides) for sides in products} == {
        frozenset({frozenset({"m", one}), frozenset({"n", "k", "a"} - {one})}) for one in "nka"
    }
    assert {"a == m", "a == n", "a == k"} <= texts


def test_implication_of_conditions() -> None:
    rule = rule_of("rule f(x: [m, n, k], y: [k * l])\n  where k == 2 * l\n  x => x\n")
    evidence = Evidence.of(rule, library())
    places = {atom.text: (place,) for place, atom in enumerate(evidence.atoms)}

    def entails(given: str, then: str) -> bool:
        return _entails(rule, evidence, places[given], places[then])

    assert entails("m == n", "m <= n") and not entails("m <= n", "m == n")
    assert entails("m < n", "m <= n") and not entails("m <= n", "m < n")
    assert entails("m == n + n", "n < m")
    assert entails("m == l * n", "m % n == 0") and not entails("m % n == 0", "m == l * n")
    assert not entails("m % n == 0", "n % m == 0")


# ---------------------------------------------------------------------------------------------- random rules


@cache
def near_true_rules() -> tuple[RuleDecl, ...]:
    """All mutants of the proved rules. The test makes them, so that collecting tests does not."""
    return tuple(mutant for rule in rules_of("proved") for _, mutant in mutants(rule, library()))


@settings(max_examples=12)
@given(st.deferred(lambda: st.sampled_from(range(len(near_true_rules())))))
def test_what_is_found_for_a_rule_near_a_true_one_is_proved_and_differs_outside(number: int) -> None:
    rule = near_true_rules()[number]
    try:
        found = find_condition(rule, library())
    except InputError:
        return
    if found is None:
        return
    assert isinstance(prove_rule(found.rule, library()), Proved)
    assert not list(differences(found.rule, library()))
    reals = found.outside.reals if isinstance(found.outside, Difference) else {}
    outside = {**claim_of(with_reals(rule, library())[0]).written(found.outside.sizes), **reals}
    for conditions in (found.conditions, *found.others):
        assert not holds(conditions, outside)
    if isinstance(found.outside, Difference):
        assert confirmed(found.outside, rule, library()) == found.outside

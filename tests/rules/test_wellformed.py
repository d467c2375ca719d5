"""Every file of cases/rule_error is refused with the message in the file of its name; well-formed rules pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prove.cases import library, rule_of, rules_of
from tests.prove.mutation import mutants
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import NotProved, Refuted
from unity_dsl.prove.normal_form.form import Unsupported
from unity_dsl.prove.refutation.numeric_run import IllShaped, Run
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.real_attributes import with_reals
from unity_dsl.prove.translation.rest_ranks import ranks_of
from unity_dsl.prove.translation.rule_forms import Claim, Ranks, claim_of, used_names, views
from unity_dsl.resources import folder
from unity_dsl.rules.wellformed import check_rule, load_rules
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import Diagnostic, InputError
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source

CASES = Path(__file__).parents[1] / "cases" / "rule_error"
FILES = sorted(CASES.glob("*.rules"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_fault_is_told(path: Path, golden: Callable[[Path, str], None]) -> None:
    source = replace(read_source(path), name=path.name)
    with pytest.raises(InputError) as caught:
        load_rules(source, library())
    assert caught.value.diagnostic.span is not None
    text = re.sub(r"\S*/ops/(\w+\.uop):\d+:\d+", r"ops/\1", render(caught.value.diagnostic))
    golden(path.with_suffix(".txt"), text + "\n")


def test_every_text_belongs_to_a_case() -> None:
    assert {path.with_suffix(".rules") for path in CASES.glob("*.txt")} == set(FILES)
    assert len(FILES) > 50


# ---------------------------------------------------------------------------------------------- rules without a fault

ILL_FORMED = {"degree_of_another_operand": "E506", "number_in_a_condition_alone": "E504"}
"""Wrong rules that are refused before any proof is tried. The prover cannot prove them either."""
KNOWN = tuple(rule for rule in (*rules_of("proved"), *rules_of("refuted")) if rule.name not in ILL_FORMED)


@pytest.mark.parametrize(("name", "code"), ILL_FORMED.items())
def test_a_wrong_rule_that_is_refused(name: str, code: str) -> None:
    (rule,) = (rule for rule in rules_of("refuted") if rule.name == name)
    with pytest.raises(InputError) as caught:
        check_rule(rule, library())
    assert caught.value.diagnostic.code == code


@pytest.mark.parametrize("rule", KNOWN, ids=lambda rule: rule.name)
def test_a_rule_with_an_answer_is_well_formed(rule: RuleDecl) -> None:
    """Wrong rules are well formed too: a false claim is not a fault of the text."""
    check_rule(rule, library())


@pytest.mark.parametrize("path", sorted(folder("rules").glob("*.rules")), ids=lambda path: path.name)
def test_shipped_rules_are_well_formed(path: Path) -> None:
    assert load_rules(read_source(path), load_library())


@pytest.mark.parametrize(
    "text",
    [
        "rule f(x: [m], y: [n])\n  x + y => y + x\n",
        "rule f(x: [m])\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n",
        "rule f(x: [m, k])\n  where m == 2 * k, k == 2 * m\n  x => relu(x)\n",
        "rule f(x: [m])\n  slice(x; dim=0, start=k, stop=k + n) => slice(x; dim=0, start=k, stop=k + n)\n",
        "rule f(x: [m])\n  x[(a b)] -> [a, b] => x[(a b)] -> [a, b]\n",
        "rule f(x: [m, k], y: [m, l])\n  relu(x + y) => relu(y + x)\n",
        "rule f(x: [m])\n  unreplicate[p](replicate[p](x)) => x\n",
        "rule f(x: [m])\n  where m == n, n == l + 1\n  relu(x) => relu(slice(x; dim=0, start=0, stop=l + 1))\n",
        "rule f(x: [m])\n  where m == p * e\n  relu(x) => combine[p; dim=0](relu(partition[p; dim=0](x)))\n",
        "rule f(x: [m], y: [n])\n  where m == 1\n  x + y => y + x\n",
    ],
)
def test_what_some_sizes_can_mend_is_left_to_the_prover(text: str) -> None:
    check_rule(rule_of(text), library())


def of_operators(operators: int) -> str:
    lines = [f"  y{n + 1} = relu({f'y{n}' if n else 'x'})\n" for n in range(operators - 1)]
    return "rule f(x: [m])\n" + "".join(lines) + f"  y{operators - 1} => relu(x)\n"


def of_names(names: int) -> str:
    lines = [f"  y{n + 1} = {f'y{n}' if n else 'x'}\n" for n in range(names)]
    return "rule f(x: [m])\n" + "".join(lines) + f"  relu(y{names}) => relu(x)\n"


def of_inputs(inputs: int) -> str:
    names = [f"x{n}" for n in range(inputs)]
    declared = ", ".join(f"{name}: [m]" for name in names)
    return f"rule f({declared})\n  {' + '.join(names)} => {' + '.join(names[::-1])}\n"


def of_conditions(conditions: int) -> str:
    where = ", ".join(f"m >= {n + 1}" for n in range(conditions))
    return f"rule f(x: [m])\n  where {where}\n  relu(relu(x)) => relu(x)\n"


def of_groups(groups: int) -> str:
    return f"rule f(x: [{', '.join(f'b{n}..' for n in range(groups))}])\n  relu(relu(x)) => relu(x)\n"


@pytest.mark.parametrize(
    ("made", "most", "what"),
    [
        (of_inputs, 64, "inputs"),
        (of_conditions, 64, "conditions"),
        (of_groups, 4, "groups of dimensions"),
        (of_names, 512, "local names"),
        (of_operators, 512, "operators"),
    ],
)
def test_a_rule_has_as_many_parts_as_are_allowed(made: Callable[[int], str], most: int, what: str) -> None:
    check_rule(rule_of(made(most)), library())
    with pytest.raises(InputError, match=what) as caught:
        check_rule(rule_of(made(most + 1)), library())
    assert caught.value.diagnostic.code == "E505"


# ---------------------------------------------------------------------------------------------- rules near those


@cache
def near() -> list[RuleDecl]:
    """A daily sample of rules with one change."""
    changed = [mutant for rule in KNOWN for _, mutant in mutants(rule, library())]
    return of_the_day(changed, 600)


@cache
def refused() -> tuple[tuple[RuleDecl, Diagnostic], ...]:
    """The changed rules that are refused, with their diagnostics."""
    found = []
    for rule in near():
        try:
            check_rule(rule, library())
        except InputError as error:
            found.append((rule, error.diagnostic))
    return tuple(found)


def is_well_formed(rule: RuleDecl) -> bool:
    try:
        check_rule(rule, library())
    except InputError:
        return False
    return True


def test_a_rule_that_is_refused_is_never_proved() -> None:
    """The prover, which is independent of these checks, proves no rule that they refuse."""
    print(f"UNITY_SAMPLE={SAMPLE}")
    assert 30 < len(refused()) < len(near()) / 2
    for rule, diagnostic in refused():
        if diagnostic.code == "E503" or (diagnostic.code == "E504" and is_well_formed(replace(rule, conditions=()))):
            continue  # an unused input or condition does not make a claim false
        try:
            answer = prove_rule(rule, library())
        except InputError:
            continue
        assert isinstance(answer, NotProved | Refuted), diagnostic.message


SHAPES = frozenset({"E121", "E122", "E126", "E507"})


def refused_for_their_shapes() -> Iterator[RuleDecl]:
    """Cases and changed rules that are refused for their shapes. Views are excluded: their sizes need the prover."""
    found = list(refused())
    for path in FILES:
        try:
            load_rules(read_source(path), library())
        except InputError as error:
            if error.diagnostic.code in SHAPES:
                found += [(rule, error.diagnostic) for rule in parse_rules(read_source(path)).rules]
    for rule, diagnostic in found:
        # The NumPy run does not distinguish integers from floats.
        if diagnostic.code in SHAPES and "integers" not in diagnostic.message and not any(views(rule)):
            yield rule


def test_what_is_refused_for_its_shapes_runs_at_no_sizes() -> None:
    """Brute force in NumPy: at some ranks of the groups, no small sizes give both sides of all outputs equal shapes."""
    print(f"UNITY_SAMPLE={SAMPLE}")
    tried = 0
    for written in refused_for_their_shapes():
        # Real numbers become tensors of rank 0, because an operator cannot have size conditions on them.
        rule, operators = with_reals(written, library())
        claim = claim_of(rule)
        tried += 1
        assert any(runs_at_no_sizes(rule, operators, claim, ranks) for ranks in ranks_of(rule, operators)), rule.name
    assert tried > 20


def runs_at_no_sizes(rule: RuleDecl, operators: Library, claim: Claim, ranks: Ranks) -> bool:
    names = used_names(rule, claim, ranks)
    for chosen in product(range(1, 4 if len(names) <= 2 else 3), repeat=len(names)):
        sizes = dict(zip(names, chosen, strict=True))
        if not claim.holds(sizes):
            continue
        try:
            found = [
                Run(replace(rule, left=(left,), right=(right,)), claim, operators, ranks, {}, sizes).difference(0)
                for left, right in zip(rule.left, rule.right, strict=True)
            ]
        except (IllShaped, Unsupported):
            continue
        if all(difference is None or difference.shapes is None for difference in found):
            return False
    return True


# ---------------------------------------------------------------------------------------------- damage

WORD = re.compile(r"[A-Za-z_]\w*|\d+|=>|->|==|[^\w\s]")
TEXTS = [
    path.read_text() for folder in ("proved", "refuted") for path in sorted((CASES.parent / folder).glob("*.rules"))
]
RULES = [part + "\n" for text in TEXTS for part in text.split("\n\n") if part.startswith("rule ")]


@given(st.data())
@settings(max_examples=200)
def test_a_text_with_words_exchanged_is_well_formed_or_has_one_fault(data: st.DataObject) -> None:
    """Words of a rule are replaced by other words, also of another rule; any other outcome is a failure."""
    text = data.draw(st.sampled_from(RULES))
    others = [match.group() for match in WORD.finditer(data.draw(st.sampled_from(RULES)))]
    for _ in range(data.draw(st.integers(1, 3))):
        words = list(WORD.finditer(text))
        place = words[data.draw(st.integers(0, len(words) - 1))]
        new = data.draw(st.sampled_from([*others, *(word.group() for word in words), ""]))
        text = text[: place.start()] + new + text[place.end() :]
    try:
        rules = load_rules(Source("f.rules", text), library())
    except InputError as error:
        assert error.diagnostic.code in CODES and error.diagnostic.span is not None
        assert render(error.diagnostic)
    else:
        for rule in rules:
            prove_rule(rule, library())

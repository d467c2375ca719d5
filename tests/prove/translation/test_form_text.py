"""Printed normal forms: parsed back, they have the values of the rule's sides in the reference evaluation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sampling import of_the_day
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.library import Library
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.normal_form.guard import compare
from unity_dsl.prove.normal_form.polynomial import ONE, Entry, Poly, fresh, number, of, power_of, quotient
from unity_dsl.prove.refutation.numeric_run import Numbers, Run
from unity_dsl.prove.rule_proof import Derivation, follow_rule, modes
from unity_dsl.prove.translation.form_text import LETTERS, Notation, notation_of, question_text, tensor_lines
from unity_dsl.prove.translation.operator_forms import Tensor
from unity_dsl.prove.translation.real_attributes import with_reals
from unity_dsl.prove.translation.real_conditions import drawn_reals
from unity_dsl.prove.translation.rule_forms import Graph, claim_of
from unity_dsl.prove.translation.symbolic_sizes import valued
from unity_dsl.syntax.parse_rules import RuleDecl

from ..cases import library, rules_of
from ..reading import Reader, table

UNREAD = {
    **dict.fromkeys(
        [
            "layer_norm_concat_rows",
            "layer_norm_by_rows",
            "conv_by_channels",
            "batch_to_height",
            "images_side_by_side",
            "dilated_as_dense_on_a_batch",
        ],
        "takes long to evaluate, sum by sum",
    ),
    "six_rows_of_one_matrix": "takes long to evaluate: twelve sums, one within another",
    "causal_mask_by_batch": "speaks of infinity",
    "factor_of_masked_scores": "speaks of infinity",
    "large_number_added_and_taken_off": "is one of real numbers: the reference evaluation rounds its left side off",
    **dict.fromkeys(
        ["top_of_a_sum_exchanged", "gathered_at_the_top", "order_on_every_device", "order_of_parts_put_together"],
        "speaks of the results of extern operators",
    ),
}
READ = [rule for rule in rules_of("proved") if rule.name not in UNREAD]


@pytest.mark.parametrize("rule", of_the_day(READ, 60), ids=lambda rule: rule.name)
def test_what_is_printed_has_the_values_of_the_rule(rule: RuleDecl) -> None:
    """In training and in evaluation, wherever the left side has a value."""
    _, derivations = follow_rule(rule, library())
    rule, own = with_reals(rule, library())
    declared = [mode for _, mode in modes(rule, own)]
    ranks = len(derivations) // len(declared)
    assert len(derivations) == ranks * len(declared)
    for place, mode in enumerate(declared):
        has_its_values(rule, derivations[place * ranks + ranks // 2], mode)


def has_its_values(rule: RuleDecl, derivation: Derivation, declared: Library) -> None:
    inputs, expectations = drawn_inputs(rule, derivation, declared)
    factored = {name: inputs[name].array.reshape(extents(derivation.inputs[name], derivation)) for name in inputs}
    notation = notation_of(derivation.inputs, derivation.witness)
    assert len(derivation.outputs) == len(rule.left)
    for sides, expected in zip(derivation.outputs, expectations, strict=True):
        there = ~np.isnan(expected)
        for side in sides:
            # Random operators are elementwise: one random number per output position, in row-major order.
            drawn = uniform(np.arange(expected.size)).reshape(extents(side, derivation))
            found = table(tensor_lines(side, notation, "output"), {**factored, "uniform": drawn}, derivation.witness)
            np.testing.assert_allclose(found.reshape(expected.shape)[there], expected[there], rtol=1e-9, atol=1e-9)


def drawn_inputs(
    rule: RuleDecl, derivation: Derivation, declared: Library
) -> tuple[dict[str, Numbers], list[npt.NDArray[Any]]]:
    """The first drawn inputs at which every left output has a value somewhere, and these outputs."""
    for seed in range(3, 50):
        random = np.random.default_rng(seed)
        inputs = {name: numbers_of(tensor, derivation, random) for name, tensor in derivation.inputs.items()}
        claim = claim_of(rule)
        reals = drawn_reals(claim, sorted(claim.reals), derivation.witness, seed)
        assert reals is not None
        inputs |= {name: Numbers((), np.array(value)) for name, value in reals.items()}
        expected = expected_values(rule, derivation, inputs, declared)
        if not any(np.isnan(output).all() for output in expected):
            return inputs, expected
    raise AssertionError("the left side has a value at none of the inputs drawn")


def numbers_of(tensor: Tensor, derivation: Derivation, random: np.random.Generator) -> Numbers:
    sizes = derivation.witness
    devices = [valued(var.size, sizes) for _, var in tensor.devices]
    shape = (*devices, *(prod(valued(var.size, sizes) for var in dim) for dim in tensor.dims))
    bound = None if tensor.bound is None else valued(tensor.bound, sizes)
    values = random.normal(size=shape) if bound is None else random.integers(0, bound, shape)
    return Numbers(tuple(name for name, _ in tensor.devices), values, bound)


def extents(tensor: Tensor, derivation: Derivation) -> list[int]:
    axes = [*(var for _, var in tensor.devices), *(var for dim in tensor.dims for var in dim)]
    return [valued(var.size, derivation.witness) for var in axes]


def expected_values(
    rule: RuleDecl, derivation: Derivation, inputs: dict[str, Numbers], declared: Library
) -> list[npt.NDArray[Any]]:
    """The left outputs by the reference evaluation, with device axes in the order of the normal form."""
    claim, sizes = claim_of(rule), derivation.witness
    graph = Graph(rule, claim, declared, derivation.ranks, sizes, Arithmetic(claim.conditions))
    graph.sides()
    run = Run(rule, claim, declared, derivation.ranks, graph.views, sizes, dict(inputs))
    for name, expr in rule.definitions:
        run.tensors[name] = run.value(expr)
    found = []
    for expr, (tensor, _) in zip(rule.left, derivation.outputs, strict=True):
        value = run.value(expr)
        order = [value.devices.index(name) for name, _ in tensor.devices]
        found.append(value.array.transpose(*order, *range(len(order), value.array.ndim)))
    return found


# ---------------------------------------------------------------------------------------------- whole numbers

I, J = fresh(of("n")), fresh(of("k"))  # noqa: E741
NAMED = Notation(frozenset({"n", "k"})).binding([I, J])


@pytest.mark.parametrize(
    ("poly", "text"),
    [
        (number(0), "0"),
        (of(I) - ONE, "i - 1"),
        (-of(I), "-i"),
        (of(I).scaled(2) + of("n") * of("k") - of(J), "2*i + k*n - j"),
        (of("n") * power_of(of("k"), -1), "n/k"),
        (power_of(of("n") * of("k"), -2).scaled(3), "3/(k^2*n^2)"),
        (quotient(of(I) + of(J), number(2)) + ONE, "((i + j) // 2) + 1"),
        (of(Entry("ids", (of(I), of(J) + ONE), of("v"))), "ids[i, j + 1]"),
        (of(Entry("ids", (), of("v"))), "ids"),
    ],
)
def test_polynomials(poly: Poly, text: str) -> None:
    assert NAMED.poly(poly).replace("j + i", "i + j") == text


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("left", [of(I), of(I) - of(J), of("n") - ONE, of(J).scaled(2) + number(3)])
@pytest.mark.parametrize("right", [number(0), number(1), number(-2), of("k"), of("k") - of(J), of(I) + ONE])
def test_a_printed_guard_is_true_where_the_comparison_is(sign: str, left: Poly, right: Poly) -> None:
    guard = compare(sign, left, right)
    read = Reader(f"[{NAMED.guard(guard)}] 1", {}).value()
    for i in range(3):
        for j in range(3):
            env = {"i": i, "j": j, "n": 3, "k": 2}
            value = {side: Reader(NAMED.poly(side), {}).value()(env) for side in (left, right)}
            assert read(env) == int(eval(f"{value[left]} {sign} {value[right]}")), NAMED.guard(guard)


def test_names_clash_with_nothing() -> None:
    indices = [fresh(of("n")) for _ in range(30)]
    notation = Notation(frozenset({"i", "n", "i2"})).binding(indices)
    names = [notation.indices[var] for var in indices]
    assert len(set(names)) == 30 and not {"i", "n", "i2"} & set(names)
    assert names[:3] == [LETTERS[1], "k", "l"]


def test_a_question_in_words() -> None:
    arithmetic = Arithmetic(record=[])
    arithmetic.covered([[compare("<", of(I), of("k"))], [compare(">=", of(I), of("k"))]], [compare(">", of(I), ONE)])
    arithmetic.contradictory([compare(">", of(I), ONE)])
    arithmetic.balanced([(ONE.terms[0][1], [compare(">", of(I), ONE)]), (-ONE.terms[0][1], [])])
    assert arithmetic.record is not None
    notation = Notation(frozenset({"n", "k"}))
    assert [question_text(question, notation) for question in arithmetic.record] == [
        "where i >= 2: i < k, or i >= k",
        "i >= 2: cannot be",
        "+1 if i >= 2, -1 if true: these add up to 0",
    ]
    assert [question.answer for question in arithmetic.record] == ["unsat", "sat", "sat"]

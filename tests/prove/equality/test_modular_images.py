"""Images of normal forms modulo a prime distinguish different forms and never separate equal ones."""

from __future__ import annotations

from contextlib import suppress

import pytest

from unity_dsl.prove.answer import Proved
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.equality.form_equality import Comparison
from unity_dsl.prove.equality.modular_images import Images
from unity_dsl.prove.normal_form.form import Unsupported
from unity_dsl.prove.normal_form.guard import compare
from unity_dsl.prove.normal_form.polynomial import of
from unity_dsl.prove.rule_proof import follow_rule
from unity_dsl.syntax.parse_rules import RuleDecl

from ..cases import library, rule_of, rules_of


@pytest.mark.parametrize("rule", rules_of("proved")[::3], ids=lambda rule: rule.name)
def test_sides_that_are_proved_equal_have_one_image(rule: RuleDecl) -> None:
    """Exempt are sides that are equal only by case distinction (conditional/), whose forms differ."""
    answer, derivations = follow_rule(rule, library())
    assert isinstance(answer, Proved)
    images = Images(disabled=False)
    for derivation in derivations:
        for left, right in derivation.outputs:
            if images.differ(left.value, right.value):
                comparison = Comparison(Arithmetic())
                comparison.images = Images(disabled=True)
                with suppress(Unsupported):
                    assert not comparison.equal(left.value, right.value)


@pytest.mark.parametrize(
    "body",
    [
        "x + y => x + 2 * y",
        "exp(x) + y => exp(y) + y",
        "relu(x) * y => relu(y) * x",
        "reduce_sum(x[i, j] -> [i]), y => reduce_mean(x[i, j] -> [i]), y",
        "sqrt(x * x), y => sqrt(x * x * x), y",
    ],
)
def test_forms_that_differ_have_different_images(body: str) -> None:
    _, derivations = follow_rule(rule_of(f"rule f(x: [m, n], y: [m, n])\n  {body}\n"), library())
    left, right = derivations[0].outputs[0]
    images = Images(disabled=False)
    assert images.differ(left.value, right.value) and not images.differ(left.value, left.value)


def test_sizes_that_may_be_equal_have_no_image() -> None:
    assert Images.under([compare("==", of("m"), of("n"))]).disabled
    assert not Images.under([compare(">=", of("m"), of("n"))]).disabled

"""Products of infinity and finite forms of known sign."""

from __future__ import annotations

import pytest

from unity_dsl.prove.decision.extended_reals import BOTTOM, TOP, infinite_product
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.decision.signs import Sign, Signs
from unity_dsl.prove.normal_form.form import Form, constant
from unity_dsl.prove.normal_form.polynomial import number

SIGNS = Signs(Arithmetic(), lambda _: Sign.UNKNOWN, {})


@pytest.mark.parametrize(("factor", "product"), [(3, TOP), (-3, BOTTOM)])
def test_infinity_has_the_sign_of_its_factor(factor: int, product: Form) -> None:
    finite = constant(number(factor))
    assert infinite_product(TOP, finite, SIGNS) == product
    assert infinite_product(finite, TOP, SIGNS) == product


def test_nothing_is_known_of_infinity_times_zero() -> None:
    assert infinite_product(TOP, constant(number(0)), SIGNS) is None

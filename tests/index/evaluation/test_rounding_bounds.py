"""Bounds on rounding errors: what certainly has a value, what certainly has none, and what float64 cannot decide."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.index.evaluation.rounding_bounds import Bounded, evaluate_bounded
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

from ..declare import declare


def at(expression: str, number: float) -> Bounded:
    """An operator of one number, evaluated at that number, which is exact."""
    library = declare(f"op f(x: [n]) -> y: [n]\n  where m == n\n  y[n] = {expression}\n")
    instance = instantiate(library.operators["f"], [Shape((1,))], {})
    return evaluate_bounded(instance, {"x": np.array([number])}, library)["y"]


@pytest.mark.parametrize(
    ("expression", "x"),
    [
        ("1 / x[n]", 0),
        ("x[n] / x[n]", 0),
        ("log(x[n])", 0),
        ("log(x[n])", -1),
        ("sqrt(x[n])", -1),
        ("sqrt(x[n] / 3)", -1),
        ("x[n] * inf", 0),
        ("inf * x[n] - inf", 1),
        ("[x[n] > 0] * log(x[n])", -1),
        ("maximum(log(x[n]), 0)", 0),
        ("1 / (1 / x[n])", 0),
        ("select(x[n] > 0, 1, log(x[n]))", 0),
    ],
)
def test_what_certainly_has_no_value(expression: str, x: float) -> None:
    found = at(expression, x)
    assert found.undefined and not found.decided


@pytest.mark.parametrize(
    ("expression", "x"),
    [
        ("exp(x[n])", 1000),
        ("exp(x[n]) / exp(x[n])", 1000),
        ("exp(x[n]) - exp(x[n])", 1000),
        ("(max(m) exp(x[m])) - (max(m) exp(x[m]))", 1000),
        ("(min(m) -exp(x[m])) + (max(m) exp(x[m]))", 1000),
        ("1 / (x[n] / 3 - 1 / 3)", 1),
        ("1 / (1 + x[n] * x[n] - x[n] * x[n] - 1)", 123456789.5),
        ("log(x[n] / 3 - x[n] * (1 / 3))", 5),
        ("log(exp(x[n]))", -1000),
        ("1 / exp(x[n])", -1000),
        ("1 / (exp(x[n]) * exp(x[n]))", -600),
        ("1 / (exp(x[n]) / exp(0 - x[n]))", -600),
        ("log(exp(x[n]) * exp(x[n]) * 12)", -2760),
        ("log(12 * exp(x[n]) * exp(x[n]))", -2760),
        ("x[n] * exp(1000)", 0),
        ("select(x[n] / 3 - 1 / 3 > 0, log(0), 1)", 1),
    ],
)
def test_what_float64_cannot_tell(expression: str, x: float) -> None:
    found = at(expression, x)
    assert not found.undefined and not found.decided


@pytest.mark.parametrize(
    ("expression", "x", "value"),
    [
        ("select(x[n] > 0, log(x[n]), 3)", -1, 3),
        ("[log(x[n]) > 0]", -1, 0),
        ("[log(x[n]) != 0]", -1, 1),
        ("[x[n] > 0] * inf + 1 / inf", 1, np.inf),
        ("1 / (x[n] * inf)", -2, 0),
    ],
)
def test_what_certainly_has_a_value(expression: str, x: float, value: float) -> None:
    found = at(expression, x)
    assert found.decided and not found.undefined and found.value == value

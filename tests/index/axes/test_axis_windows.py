"""Axes along which inputs are read in windows: how far, in which steps, and why an axis has no such window."""

from __future__ import annotations

import pytest

from unity_dsl.index.axes.axis_classes import AxisKind
from unity_dsl.index.axes.axis_windows import Reach, Windowed, windowed
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate

from ..declare import declare

CONV = """
op conv(x: [n, c, l], w: [o, c, r]; stride = 1, dilation = 1, pad = 0) -> y: [n, o, q]
  where q == (l + 2 * pad - (r - 1) * dilation - 1) // stride + 1
  y[n, o, q] = sum(c, r) x[n, c, q * stride + r * dilation - pad else 0] * w[o, c, r]
"""


def found(text: str, *shapes: tuple[int, ...], **attributes: int) -> dict[str, Windowed | str]:
    library = declare(text)
    (operator,) = library.operators.values()
    made: Instance = instantiate(operator, [Shape(shape) for shape in shapes], attributes)
    return windowed(made, library)


@pytest.mark.parametrize(
    ("attributes", "width", "expected"),
    [
        ({"pad": 1}, 3, Reach("x", 2, 1, -1, 1)),
        ({"pad": 2, "dilation": 2}, 3, Reach("x", 2, 1, -2, 2)),
        ({"pad": 1, "stride": 2}, 4, Reach("x", 2, 2, -1, 2)),
        ({"stride": 4}, 4, Reach("x", 2, 4, 0, 3)),
    ],
    ids=["same", "dilated", "strided", "apart"],
)
def test_how_far_a_convolution_reaches(attributes: dict[str, int], width: int, expected: Reach) -> None:
    window = found(CONV, (1, 2, 16), (3, 2, width), **attributes)["q"]
    assert isinstance(window, Windowed) and window.reaches == (expected,)
    assert window.entry.kind is AxisKind.MAPPED


def test_the_kernel_is_an_axis_that_nothing_steps_along() -> None:
    windows = found(CONV, (1, 2, 16), (3, 2, 3), pad=1)
    assert "drift apart" in str(windows["r"])
    assert set(windows) == {"q", "r"}


def test_all_reads_of_a_dimension_count() -> None:
    text = "op f(x: [l], z: [l]) -> y: [l]\n  y[i] = x[i] * x[i - 2 else 0] + z[i + 3 else 0]\n"
    window = found(text, (8,), (8,))["l"]
    assert isinstance(window, Windowed)
    assert window.reaches == (Reach("x", 0, 1, -2, 0), Reach("z", 0, 1, 3, 3))


def test_a_sum_over_the_axis_is_summed() -> None:
    window = found("op f(x: [l]) -> y: []\n  y[] = sum(l) x[l] * x[l - 1 else 0]\n", (8,))["l"]
    assert isinstance(window, Windowed) and window.entry.kind is AxisKind.SUMMED


@pytest.mark.parametrize(
    ("text", "shapes", "why"),
    [
        ("op f(x: [l]) -> y: [l]\n  y[i] = x[|l| - 1 - i]\n", [(8,)], "do not grow"),
        ("op f(x: [l]) -> y: [l]\n  y[i] = x[i] + x[2 * i else 0]\n", [(8,)], "steps of 1 and 2"),
        ("op f(x: [l]) -> y: [l]\n  y[i] = x[i - 1 else 0] + x[0]\n", [(8,)], "do not grow"),
        ("op f(x: [l]) -> y: [l]\n  t[l] = tanh(x[l])\n  y[i] = t[i - 1 else 0]\n", [(8,)], "computes itself"),
        ("op f(x: [l, l]) -> y: [l]\n  y[i] = x[i, i - 1 else 0]\n", [(8, 8)], "2 dimensions"),
        ("op f(x: [l]) -> y: [q]\n  where q == l - 2\n  y[q] = x[q] + x[q + 2]\n", [(8,)], "drift apart"),
        (
            "op f(x: [l], z: [l]) -> y: [q]\n  where l == 2 * q\n  y[q] = x[2 * q] * z[0]\n",
            [(8,), (8,)],
            "something else",
        ),
    ],
    ids=["reversed", "two steps", "fixed", "intermediate", "diagonal", "shrinks", "shared"],
)
def test_why_an_axis_cannot_be_divided(text: str, shapes: list[tuple[int, ...]], why: str) -> None:
    reasons = [reason for reason in found(text, *shapes).values() if isinstance(reason, str)]
    assert any(why in reason for reason in reasons), reasons


def test_axes_that_are_read_at_themselves_are_none_of_these() -> None:
    assert found("op f(x: [a, b], w: [b]) -> y: [a]\n  y[a] = sum(b) x[a, b] * w[b]\n", (4, 3), (3,)) == {}

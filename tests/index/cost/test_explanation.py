"""What `unityc explain` says about operators: all of it derived, and readable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.index.cost.explanation import derived, describe_function, describe_operator, describe_parallel
from unity_dsl.index.library import Library

from ..declare import declare

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize("name", ["linear", "softmax", "cross_entropy", "embedding", "concat"])
def test_description(name: str, library: Library, golden: Any) -> None:
    golden(GOLDEN / f"{name}.txt", describe_operator(library.operators[name], library) + "\n")


def test_every_declaration_can_be_described(library: Library) -> None:
    for operator in library.operators.values():
        text = describe_operator(operator, library)
        assert "axis" in text and "lowering" in text
    assert all(describe_parallel(parallel) for parallel in library.parallels.values())
    assert all(describe_function(function) for function in library.functions.values())


def test_names_are_those_of_the_declaration(library: Library) -> None:
    text = describe_operator(library.operators["linear"], library)
    assert "dx[b.., i] = sum(o) dy[b.., o] * w[o, i]" in text
    assert "2 * |b..| * |o| * |i|" in text


def test_attributes_appear_by_name(library: Library) -> None:
    assert "dy[b..] * factor" in describe_operator(library.operators["scale"], library)
    assert "dy[f.., d - start, g.. else 0]" in describe_operator(library.operators["slice"], library)
    assert "dy[b..] / (1 - p)" in describe_operator(library.operators["dropout"], library)


@pytest.mark.parametrize("value", [0, 0.25])
def test_nothing_depends_on_the_default_of_a_number(library: Library, value: float) -> None:
    """For attributes that place no element, the text is the same for every default, except for the declaration."""
    for name in ("elu", "leaky_relu", "power", "scale", "shift", "clamp", "dropout", "layer_norm", "rope"):
        operator = library.operators[name]
        changed = replace(operator, attributes=tuple(replace(a, default=value) for a in operator.attributes))
        assert derived(changed, library) == derived(operator, library), name


def test_a_number_whose_default_is_0_or_1_keeps_its_name(library: Library) -> None:
    assert "select(x[b..] > 0, 1, alpha * exp(" in describe_operator(library.operators["elu"], library)
    assert "exponent * pow(x[b..], exponent - 1)" in describe_operator(library.operators["power"], library)
    text = "op f(a: [b..]; beta = 0) -> y: [b..]\n  y[b..] = tanh(beta * a[b..]) + a[b..]\n"
    found = describe_operator(declare(text).operators["f"], declare(text))
    (gradient,) = (line for line in found.splitlines() if line.startswith("gradient"))
    assert "beta" in gradient and "tanh(beta * a[b..])" in gradient
    assert "backward  0" not in found


def test_attributes_that_place_elements_are_told_with_their_values(library: Library) -> None:
    """The gradient of a convolution differs with the stride; that of a slice names `start` itself."""
    told = "at        stride = 1, pad = 0, dilation = 1: gradient, flops and bytes of other values differ"
    assert told in describe_operator(library.operators["conv1d"], library).splitlines()
    assert "size = 3, stride = 7" in describe_operator(library.operators["max_pool2d"], library)
    assert "other values differ" not in describe_operator(library.operators["slice"], library)


@pytest.mark.parametrize(
    "text",
    [
        "op f(x: [a, b]) -> y: [a]\n  where a == 2 * b\n  y[a] = sum(b) x[a, b]\n",
        "op f(x: [h], k: [r]) -> y: [p]\n  where p == h - r + 1\n  y[p] = sum(r) x[p + r] * k[r]\n",
        "op f(x: [a]; n) -> y: [b, c]\n  where a == b * n, c == n\n  y[b, c] = x[b * |c| + c]\n",
        "op f(ids: int<v>[n]) -> y: [n]\n  y[n] = ids[n] / 2\n",
        "op f(x: [a]) -> y: [a], s: []\n  y[a] = x[a] * 2\n  s[] = sum(a) x[a]\n",
    ],
)
def test_sizes_are_found_that_meet_the_conditions(text: str) -> None:
    library = declare(text)
    found = describe_operator(library.operators["f"], library)
    assert "lowering" in found and "no sizes" not in found


def test_conditions_that_nothing_meets_are_said() -> None:
    library = declare("op f(x: [a]) -> y: [a]\n  where a == 1000003, a == 1000004\n  y[a] = x[a]\n")
    assert "no sizes were found" in describe_operator(library.operators["f"], library)

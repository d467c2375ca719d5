"""The price of each side of a rule against operations, bytes and seconds counted by hand."""

from __future__ import annotations

import pytest

from tests.prove.cases import library
from unity_dsl.machine.machine import Link, Machine
from unity_dsl.machine.rule_price import price_sides
from unity_dsl.rules.partial_equivalence.candidate import Candidate
from unity_dsl.rules.partial_equivalence.correction import corrected
from unity_dsl.rules.partial_equivalence.moves import candidates
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

PEAK = {"f64": 1e12, "f32": 2e12, "bf16": 8e12, "f16": 8e12}
MACHINE = Machine("m", "cuda", PEAK, 1e12, 1e10, 5e-6, 0.5, 0.8, (Link("node", 4, 100e9, 1e-6),))
SIZES = {"n": 2, "b": 3, "c": 2, "o": 3, "h": 9, "w": 8, "a": 2, "e": 1}


def rule(text: str) -> RuleDecl:
    (read,) = parse_rules(Source("law.rules", f"rule law{text}\n")).rules
    return read


def form(name: str) -> Candidate:
    (found,) = (candidate for candidate in candidates() if candidate.name == name)
    return found


def test_both_sides_of_a_partially_equal_form_are_priced() -> None:
    found = corrected(form("conv2d_batch_to_height"), library())
    assert found is not None

    left, right = price_sides(found.rule.rule(library()), library(), SIZES, MACHINE)
    # One multiplication and one addition per position of the result, channel and position of the kernel.
    assert left.flops == 2 * (6 * 3 * 9 * 8) * (2 * 5 * 3)
    assert left.bytes == 4 * (6 * 2 * 9 * 8 + 3 * 2 * 5 * 3 + 6 * 3 * 9 * 8)
    assert left.kernels == 1
    assert left.seconds == pytest.approx(max(left.flops / 1e12, left.bytes / 0.8e12) + 5e-6)
    # The tall image, and borders above and below of 2a rows each. Each of their rows takes as many products.
    assert right.flops == left.flops * (9 + 4 + 4) // 9
    # One copy of the image to another layout, one product and two for the borders, one copy back, two concatenations.
    assert right.kernels == 1 + 3 + 1 + 2
    assert right.seconds >= right.bytes / 0.8e12 + right.kernels * 5e-6


def test_a_view_costs_nothing_and_what_occurs_twice_is_computed_once() -> None:
    law = rule("(x: [m, n])\n  y = relu(x)\n  y + y => relu(x[m, n] -> [n, m])[n, m] -> [m, n] + relu(x)")
    left, right = price_sides(law, library(), {"m": 1000, "n": 500}, MACHINE)
    size = 1000 * 500 * 4
    assert (left.kernels, left.bytes) == (2, size * (2 + 3)) and (right.kernels, right.bytes) == (3, size * (4 + 3))
    assert right.seconds == pytest.approx(right.bytes / 0.8e12 + 3 * 5e-6)


def test_a_narrower_type_takes_fewer_bytes_and_a_faster_unit() -> None:
    law = rule("(x: [m, k], w: [n, k])\n  linear(x, w) => matmul(x, w[n, k] -> [k, n])")
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    wide, narrow = (price_sides(law, library(), sizes, MACHINE, dtype)[1] for dtype in ("f32", "bf16"))
    assert narrow.bytes * 2 == wide.bytes and narrow.flops == wide.flops == 2 * 4096**3
    assert wide.seconds - 5e-6 == pytest.approx(4 * (narrow.seconds - 5e-6))

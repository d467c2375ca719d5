"""Prices of casts against sums computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unity_dsl.graph.graph import Node, Value
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.layout_typing import type_operator
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.cast_price import price_casts, price_operand_casts, price_stored_cast
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.measured_operators import MeasuredOperators
from unity_dsl.search.choices.operator_options import price_node
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
MACHINE = replace(load_machine("dgx-h100"), measured=MeasuredOperators())
PER_BYTE = 1 / (MACHINE.memory_bandwidth * MACHINE.memory_efficiency)
MODEL = """
model m[b = 64, d = 32, c = 10]
  input x: f32[b, d]
  input target: int<c>[b]
  weight w: f32[c, d] ~ normal(0.1)
  logits = linear(x, w)
  loss cross_entropy(logits, target)
  output logits
"""


def nodes(precision: str) -> dict[str, Node]:
    model = build_model(parse_model(Source("m.udl", MODEL.lstrip())), LIBRARY, precision=precision)
    return {node.instance.name: node for node in model.graph.nodes()}


def test_a_cast_reads_one_type_and_writes_the_other() -> None:
    assert price_casts(np.array(1000.0), "f32", "bf16", MACHINE) == pytest.approx(
        MACHINE.launch_seconds + 6000 * PER_BYTE
    )
    weight = Value("w", (10, 100), "bf16", cast_from="f32")
    assert price_stored_cast(weight, 0.25, MACHINE) == pytest.approx(MACHINE.launch_seconds + 250 * 6 * PER_BYTE)
    assert price_stored_cast(Value("w", (10, 100)), 0.25, MACHINE) == 0


def test_operands_are_cast_there_and_cotangents_back() -> None:
    """`linear` casts its input, which has no gradient, and the gradient of its weight. The loss casts logits in both
    directions.
    """
    mesh = Mesh((MeshAxis("a", 2, 0),))
    for name, casts in {"linear": [64 * 32, 10 * 32], "cross_entropy": [64 * 10, 64 * 10]}.items():
        node = nodes("bf16")[name]
        typed = type_operator(node.instance, _whole(node), mesh, LIBRARY)
        assert not isinstance(typed, str) and set(map(str, typed.configuration)) <= {"I"}
        expected = sum(MACHINE.launch_seconds + count * 6 * PER_BYTE for count in casts)
        assert price_operand_casts(node, [typed], node.dtype, MACHINE)[0] == pytest.approx(expected)
        assert price_operand_casts(nodes("f32")[name], [typed], "f32", MACHINE)[0] == 0


def test_products_run_at_the_peak_of_their_type() -> None:
    mesh = Mesh(())
    large = MODEL.replace("b = 64, d = 32, c = 10", "b = 8192, d = 8192, c = 8192")
    seconds = {}
    for precision in ("f32", "bf16"):
        model = build_model(parse_model(Source("m.udl", large.lstrip())), LIBRARY, precision=precision)
        node = next(node for node in model.graph.nodes() if node.instance.name == "linear")
        typed = type_operator(node.instance, (), mesh, LIBRARY)
        assert not isinstance(typed, str)
        casts = price_operand_casts(node, [typed], node.dtype, MACHINE)
        seconds[precision] = float((price_node(node, [typed], mesh, MACHINE, LIBRARY) - casts)[0])
    assert seconds["f32"] / seconds["bf16"] == pytest.approx(MACHINE.peak["bf16"] / MACHINE.peak["f32"], rel=0.01)


def _whole(node: Node):  # type: ignore[no-untyped-def]
    from unity_dsl.graph.layout import Invariant
    from unity_dsl.graph.layout_typing import Uniformly

    return (Uniformly(Invariant()),)

"""Float type of every value of a model in mixed precision."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

from unity_dsl.graph.graph import Graph, Model, Node, Segment, Value
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.precision import arithmetic, emitted_arithmetic, is_mixed, operand_types, with_precision
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()

CONVOLUTIONAL = """
model m[b = 4, c = 3]
  input x: f32[b, c, 8, 8]
  input target: int<10>[b]
  weight k: f32[c, c, 3, 3] ~ normal(0.1)
  weight gain: f32[c] ~ ones
  weight bias: f32[c] ~ zeros
  weight head: f32[10, c] ~ normal(0.1)
  buffer mean: f32[c] ~ zeros
  buffer variance: f32[c] ~ ones
  y, new_mean, new_variance = batch_norm(conv2d(x, k), gain, bias, mean, variance)
  update mean = new_mean
  update variance = new_variance
  logits = linear(global_avg_pool2d(relu(y)), head)
  loss cross_entropy(logits, target)
  output logits
"""

RECURRENT = """
model m[b = 4, s = 6, d = 8]
  input x: f32[b, s, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.1)
  weight scale: f32[d] ~ ones
  buffer state: f32[b, d] ~ zeros
  h = state
  total = reduce_sum(state[b, d] -> [])
  scan z in x along 1 as step
    h = tanh(z + linear(h, w))
    total = total + reduce_mean(h[b, d] -> [])
  update state = h
  loss mse(sigmoid(h * scale), target) + total
"""


def build(text: str, precision: str | None) -> Model:
    return build_model(parse_model(Source("m.udl", dedent(text).lstrip())), LIBRARY, precision=precision)


def values(graph: Graph) -> Iterator[Value]:
    """Every value, including those of bodies."""
    for stored in (*graph.inputs, *graph.weights, *graph.buffers):
        yield stored.value
    for step in graph.steps:
        yield from step.makes
        if isinstance(step, Segment):
            yield from (*step.entry, *(series.part for series in step.sliced))
            yield from values(step.body)


def types(model: Model) -> dict[str, str]:
    return {value.name: value.dtype for value in values(model.graph) if value.dtype != "int"}


def node(model: Model, operator: str) -> Node:
    return next(found for found in model.graph.nodes() if found.instance.name == operator)


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
def test_activations_are_narrow_and_statistics_are_not(narrow: str) -> None:
    model = build(CONVOLUTIONAL, narrow)
    found = types(model)
    assert model.loss is not None and model.loss.dtype == "f32"
    assert {found[name] for name in ("y", "logits", "k", "head")} == {narrow}
    assert {found[name] for name in ("x", "mean", "variance", "new_mean", "new_variance", "gain", "bias")} == {"f32"}
    cast = {value.name: value.stored_dtype for value in values(model.graph) if value.is_cast}
    assert cast == {"k": "f32", "head": "f32"}
    assert operand_types(node(model, "batch_norm"), narrow) == (narrow, "f32", "f32", "f32", "f32")
    assert operand_types(node(model, "conv2d"), narrow) == (narrow, narrow)
    assert operand_types(node(model, "cross_entropy"), "f32") == ("f32", "int")


@pytest.mark.parametrize("declared", ["f64", "bf16", "f16"])
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_with_a_precision_declared_types_do_not_matter(declared: str, precision: str) -> None:
    """Except for buffers, which a model may store in fewer bytes."""
    text = """
    model m[b = 4, d = 8]
      input x: f32[b, d]
      weight w: f32[d, d] ~ normal(0.1)
      weight gain: f32[d] ~ ones
      h = softmax(linear(x, w))
      loss mse(h * gain, x)
      output h
    """
    found = types(build(text.replace("f32", declared), precision))
    assert found == types(build(text, precision)) and len(found) > 6


def test_bytes_are_of_what_is_read_and_of_what_is_stored() -> None:
    (weight,) = (weight.value for weight in build(CONVOLUTIONAL, "bf16").graph.weights if weight.value.name == "head")
    assert (weight.bytes, weight.stored_bytes) == (10 * 3 * 2, 10 * 3 * 4)


def test_what_a_loss_alone_reads_is_computed_in_float32() -> None:
    """The sigmoid and the product contract nothing, so they and the scale are in float32. The scan is not: its result
    is kept.
    """
    found = types(build(RECURRENT, "bf16"))
    assert found["h"] == found["w"] == "bf16"
    assert found["scale"] == found["total"] == found["state"] == found["x"] == "f32"
    assert {n.dtype for n in build(RECURRENT, "bf16").graph.nodes() if n.instance.name in ("sigmoid", "mul")} == {"f32"}


def test_carried_values_have_one_type() -> None:
    (scan,) = (step for step in build(RECURRENT, "bf16").graph.steps if isinstance(step, Segment))
    pairs = zip(scan.initial, scan.entry, scan.exit, scan.results, strict=True)
    found = {tuple(value.dtype for value in every) for every in pairs}
    assert found == {("f32", "bf16", "bf16", "bf16"), ("f32", "f32", "f32", "f32")}


def test_statements_that_sum_are_in_float32_and_native_calls_are_not() -> None:
    model = build(CONVOLUTIONAL, "bf16")
    for operator, by_statements in {"batch_norm": "f32", "linear": "bf16", "relu": "bf16"}.items():
        found = node(model, operator)
        assert arithmetic(found, True, LIBRARY) == "bf16" and arithmetic(found, False, LIBRARY) == by_statements
    declared = node(build(CONVOLUTIONAL.replace("f32", "bf16"), None), "batch_norm")
    assert arithmetic(declared, False, LIBRARY) == "bf16", "not without a precision"


@pytest.mark.parametrize(
    ("rows", "tied", "whole"), [(2**20, False, False), (2**20 - 1, False, True), (2**20, True, True)]
)
def test_rows_of_a_large_table_are_cast_and_not_the_table(rows: int, tied: bool, whole: bool) -> None:
    """If a product reads the table as well, the whole table is cast."""
    text = f"""
model m[b = 16, d = 8, rows = {rows}]
  input ids: int<rows>[b]
  input target: int<rows>[b]
  weight table: f32[rows, d] ~ normal(1)
  weight head: f32[rows, d] ~ normal(1)
  x = embedding(ids, table)
  loss cross_entropy(linear(x, {"table" if tied else "head"}), target)
"""
    if tied:
        text = text.replace("  weight head: f32[rows, d] ~ normal(1)\n", "")
    model = build_model(parse_model(Source("m.udl", text)), LIBRARY, precision="bf16")
    (table,) = (weight.value for name, weight in model.weights() if name == "table")
    (look_up,) = (node for node in model.graph.nodes() if node.instance.name == "embedding")
    assert table.is_cast == whole
    assert arithmetic(look_up, True, LIBRARY) == ("bf16" if whole else "f32")
    assert look_up.results[0].dtype == "bf16"


def test_calls_that_only_gpus_add_up_in_float32_are_emitted_with_a_type_of_the_device() -> None:
    """torch on a CPU sums lookups and gains of layer_norm in bfloat16 (tests/program/test_long_sums.py)."""
    text = """
model m[n = 8, d = 4, v = 3]
  input i: int<v>[n]
  input j: int<v>[n, d]
  weight w: f32[v, d] ~ normal(1)
  weight gain: f32[d] ~ ones
  weight bias: f32[d] ~ zeros
  weight h: f32[d, d] ~ normal(1)
  a = embedding(i, w)
  y = rms_norm(layer_norm(a, gain, bias), gain)
  z = linear(y + gather(w, j; dim=0), h)
  s = reduce_sum(z[a, b] -> [])
  loss s
"""
    model = build(text, "bf16")
    expected = {"embedding": "summed", "layer_norm": "summed", "rms_norm": "bf16", "gather": "f32"}
    found = {operator: emitted_arithmetic(node(model, operator), True, LIBRARY) for operator in expected}
    assert found == expected
    assert arithmetic(node(model, "embedding"), True, LIBRARY) == "bf16", "what a GPU computes in is priced"


@pytest.mark.parametrize("text", [CONVOLUTIONAL, RECURRENT])
def test_types_are_found_again_from_types(text: str) -> None:
    for precision in ("f32", "bf16", "tf32"):
        model = build(text, precision)
        assert with_precision(model) == model


def test_float32_and_no_precision_are_the_same_of_a_model_in_float32() -> None:
    plain, full = build(CONVOLUTIONAL, None), build(CONVOLUTIONAL, "f32")
    assert plain.graph == full.graph and not is_mixed(plain) and not is_mixed(full)
    assert set(types(build(CONVOLUTIONAL.replace("f32", "bf16"), "f32")).values()) == {"f32"}


@pytest.mark.parametrize("text", [CONVOLUTIONAL, RECURRENT])
def test_tf32_stores_and_computes_in_float32(text: str) -> None:
    full, rounded = build(text, "f32"), build(text, "tf32")
    assert types(full) == types(rounded) and set(types(rounded).values()) == {"f32"} and not is_mixed(rounded)
    assert {found.factor_type for found in rounded.graph.nodes()} == {"tf32"}
    assert {found.factor_type for found in full.graph.nodes()} == {"f32"}


SAYS = CONVOLUTIONAL.replace("  input x:", "  precision bf16\n  input x:")


@pytest.mark.parametrize("asked", [None, "f32", "bf16", "f16", "tf32"])
def test_what_is_asked_for_wins_over_what_the_model_says(asked: str | None) -> None:
    model, expected = build(SAYS, asked), build(CONVOLUTIONAL, asked or "bf16")
    assert model.precision == expected.precision and types(model) == types(expected)


def test_a_model_that_says_none_is_as_it_was() -> None:
    assert build(CONVOLUTIONAL, None).precision is None


def test_an_unknown_precision_of_a_model_is_told_where_it_stands() -> None:
    for asked in (None, "f32"):
        with pytest.raises(InputError) as caught:
            build(SAYS.replace("bf16", "fp16"), asked)
        found = caught.value.diagnostic
        assert found.code == "E314" and found.span is not None and found.span.text == "precision fp16"


def test_an_unknown_precision_is_told() -> None:
    with pytest.raises(InputError) as caught:
        build(CONVOLUTIONAL, "fp16")
    assert caught.value.diagnostic.code == "E314" and "f16" in (caught.value.diagnostic.help or "")

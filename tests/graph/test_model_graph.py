"""From the text of a model to its graph: names, shapes, numbers, blocks, repeats."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_dsl.graph.dead_code import finish
from unity_dsl.graph.graph import Graph, Model, Node, Segment, Value
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source

from .evaluation import evaluate_model

LIBRARY = load_library()


def build(text: str, preset: str | None = None, library: Library = LIBRARY, **parameters: str | float) -> Model:
    return build_model(parse_model(Source("model.udl", dedent(text))), library, parameters, preset)


def body(*lines: str, parameters: str = "b = 2, d = 4") -> str:
    """A model of these lines, with a loss that reads `y` and trains `w`."""
    text = [f"model tiny[{parameters}]", "  input x: f32[b, d]", "  weight w: f32[d, d] ~ normal(0.02)"]
    return "\n".join([*text, *(f"  {line}" for line in lines), "  loss mse(y, linear(x, w))"])


def fault(text: str, **parameters: str | float) -> str:
    with pytest.raises(InputError) as error:
        build(text, **parameters)
    return error.value.diagnostic.code


def values(graph: Graph) -> Iterator[Value]:
    """Every stored or computed value of the graph, and of its segments' bodies."""
    for stored in (*graph.inputs, *graph.weights, *graph.buffers):
        yield stored.value
    for step in graph.steps:
        yield from step.results
        if isinstance(step, Segment):
            yield from step.entry
            yield from values(step.body)


def segment(model: Model, name: str) -> Segment:
    return next(step for step in model.graph.steps if isinstance(step, Segment) and step.name == name)


def operators(graph: Graph) -> list[str]:
    return [step.instance.name for step in graph.steps if isinstance(step, Node)]


# ---------------------------------------------------------------------------------------------- parameters

PRECEDENCE = """
    model tiny[a = 2, b = 3 * a, c = a + b]
      preset small: b = a + 1
      input x: f32[a, b, c]
      weight w: f32[c] ~ ones
      loss mse(x, x * w)
"""


def test_settings_beat_the_preset_which_beats_defaults_that_use_earlier_parameters() -> None:
    assert build(PRECEDENCE).parameters == {"a": 2, "b": 6, "c": 8}
    assert build(PRECEDENCE, "small").parameters == {"a": 2, "b": 3, "c": 5}
    assert build(PRECEDENCE, "small", a=4).parameters == {"a": 4, "b": 5, "c": 9}
    assert build(PRECEDENCE, "small", a="4", b=1).parameters == {"a": 4, "b": 1, "c": 5}


expressions = st.recursive(
    st.integers(0, 9).map(str) | st.sampled_from(["p", "q"]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=8,
)


@given(expressions, st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=60)
def test_arithmetic_is_python_s_on_whole_numbers(text: str, p: int, q: int) -> None:
    try:
        expected = eval(text, {}, {"p": p, "q": q})
    except ZeroDivisionError:
        assert fault(body("y = x", parameters=f"p = {p}, q = {q}, value = {text}, b = 2, d = 4")) == "E204"
        return
    model = build(body("y = x", parameters=f"p = {p}, q = {q}, value = {text}, b = 2, d = 4"))
    assert model.parameters["value"] == expected


def test_a_quotient_is_whole_where_it_is_exact() -> None:
    assert build(body("y = x", parameters="b = 2, d = 8 / 2")).parameters["d"] == 4
    assert build(body("y = x", parameters="b = 2, d = 4, half = 1 / 2")).parameters["half"] == 0.5
    assert fault(body("y = x", parameters="b = 2, d = 9 / 2")) == "E205"


# ---------------------------------------------------------------------------------------------- names, liveness


def test_rebound_names_are_numbered_and_temporaries_are_named_after_their_operator() -> None:
    model = build(body("x = relu(x)", "x = relu(x) + 1", "y = x"))
    assert [value.name for value in values(model.graph)] == ["x", "w", "x_1", "relu_1", "x_2", "linear_1", "loss"]
    assert [step.name for step in model.graph.steps] == ["x_1", "relu_1", "x_2", "linear_1", "loss"]


def test_numbered_names_keep_clear_of_names_in_the_text() -> None:
    model = build(body("relu_1 = x * 2", "x_1 = x", "x = relu(x) + relu_1", "y = relu(x) + x_1"))
    names = [value.name for value in values(model.graph)]
    assert len(set(names)) == len(names)
    assert "relu_1" in names and "x_2" in names


def test_names_are_identifiers_save_for_dots_and_unique_in_every_graph() -> None:
    for path in sorted(folder("examples").glob("*.udl")):
        model = build_model(parse_model(read_source(path)), LIBRARY)
        for graph in (model.graph, *(step.body for step in model.graph.steps if isinstance(step, Segment))):
            stored = [item.value for item in (*graph.inputs, *graph.weights, *graph.buffers)]
            names = [value.name for value in (*stored, *(v for step in graph.steps for v in step.results))]
            assert len(set(names)) == len(names)
            assert all(part.isidentifier() for name in names for part in name.split("."))


def test_dead_code_is_dropped() -> None:
    model = build(body("dead = exp(x)", "gone = softmax(dead)", "y = relu(x)"))
    assert operators(model.graph) == ["relu", "linear", "mse"]


def test_a_carried_value_that_nothing_needs_is_dropped_with_what_computes_it() -> None:
    model = build(
        body(
            "y = x",
            "p = x",
            "q = x",
            "repeat 3 as layer",
            "  p = exp(p)",
            "  q = q + p",
            "  y = relu(y)",
        )
    )
    assert [value.name for value in segment(model, "layer").entry] == ["y"]
    assert operators(segment(model, "layer").body) == ["relu"]
    kept = build(body("y = x", "p = x", "repeat 3 as layer", "  p = exp(p)", "  y = relu(y) + p"))
    assert {value.name for value in segment(kept, "layer").entry} == {"y", "p"}


def test_every_value_and_node_says_where_it_comes_from() -> None:
    model = build(body("y = x", "repeat 2 as layer", "  y = relu(y) * 2"))
    assert all(value.span is not None for value in values(model.graph))
    assert all(step.span is not None for step in (*model.graph.steps, *model.graph.nodes()))


def test_only_what_depends_on_a_weight_needs_a_gradient() -> None:
    model = build(body("fixed = relu(x)", "y = fixed + linear(fixed, w)"))
    needs = {value.name: value.needs_gradient for value in values(model.graph)}
    assert not needs["x"] and not needs["fixed"]
    assert needs["w"] and needs["y"] and needs["linear_1"] and needs["loss"]


def test_a_carried_value_needs_a_gradient_if_a_later_iteration_gives_it_one() -> None:
    # q of iteration i is p of iteration i - 1, and p reads a weight: only the first q has no gradient.
    model = build(
        body("p = x", "q = x", "repeat 3 as layer", "  q = relu(p)", "  p = q * w", "y = q", parameters="b = 4, d = 4")
    )
    found = segment(model, "layer")
    assert all(value.needs_gradient for value in (*found.entry, *found.exit, *found.results))
    assert not any(value.needs_gradient for value in found.initial)
    weightless = build(body("p = x", "repeat 3 as layer", "  p = relu(p)", "y = p"))
    assert not segment(weightless, "layer").results[0].needs_gradient


def test_operators_of_a_finished_model_stay_what_they_are() -> None:
    model = build(body("y = dropout(relu(linear(x, w)))"))
    again = finish(model, None)
    assert again.graph == model.graph
    assert all(one is other for one, other in zip(again.graph.nodes(), model.graph.nodes(), strict=True))


def test_random_sites_are_numbered_once_per_operator() -> None:
    model = build(body("y = dropout(x)", "repeat 3 as layer", "  y = dropout(y)", "y = dropout(relu(y))"))
    assert [(node.instance.name, node.site) for node in model.graph.nodes() if node.site] == [
        ("dropout", 1), ("dropout", 2), ("dropout", 3),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- blocks, repeats

NESTED = """
    block inner[width](x)
      weight w: f32[width, d] ~ normal(0.5)
      return relu(linear(x, w))

    block outer(x)
      f = inner[width=d](x)
      repeat 2 as step
        weight g: f32[d] ~ normal(0.5)
        h = inner[width=d](f)
        f = f * g + h
      return f

    model nested[b = 2, d = 3]
      input x: f32[b, d]
      weight shared: f32[d] ~ normal(0.5)
      skip = x * shared
      repeat 2 as layer
        y = outer(x)
        x = x + y + skip
      loss mse(x, x * 0)
      output x as final
"""


def test_weights_of_blocks_and_repeats_have_their_path_as_prefix() -> None:
    names = [name for name, _ in build(NESTED).weights()]
    per_layer = ["y.f.w", "y.step.0.g", "y.step.0.h.w", "y.step.1.g", "y.step.1.h.w"]
    assert names == ["shared", *(f"layer.{i}.{name}" for i in range(2) for name in per_layer)]


def test_a_repeat_says_what_it_carries_and_what_it_captures() -> None:
    found = segment(build(NESTED), "layer")
    assert [value.name for value in found.initial] == [value.name for value in found.entry] == ["x"]
    assert [value.name for value in found.captured] == ["skip"]
    assert found.exit[0].name in {value.name for step in found.body.steps for value in step.results}
    step = found.body.steps[2]
    assert isinstance(step, Segment) and step.name == "y.step"
    assert step.captured == ()


def test_blocks_and_repeats_compute_what_they_say() -> None:
    random = np.random.default_rng(0)
    model = build(NESTED)
    stored = {name: random.standard_normal(weight.value.shape) for name, weight in model.weights()}
    start = random.standard_normal((2, 3))

    def inner(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.maximum(x @ w.T, 0)

    x, skip = start, start * stored["shared"]
    for i in range(2):
        f = inner(x, stored[f"layer.{i}.y.f.w"])
        for j in range(2):
            prefix = f"layer.{i}.y.step.{j}"
            f = f * stored[f"{prefix}.g"] + inner(f, stored[f"{prefix}.h.w"])
        x = x + f + skip
    found = evaluate_model(model, LIBRARY, {"x": start}, stored)
    np.testing.assert_allclose(found.outputs["final"], x, rtol=1e-12)
    assert found.loss == pytest.approx((x**2).mean(), rel=1e-12)


def test_values_that_trade_places_or_leave_twice_are_copied() -> None:
    text = body(
        "p = x",
        "q = x * 2",
        "r = x",
        "repeat 3 as layer",
        "  t = p",
        "  p = q",
        "  q = t",
        "  r = t",
        "y = p + 10 * q + 100 * r",
    )
    model = build(text)
    found = segment(model, "layer")
    made = [value.name for step in found.body.steps for value in step.results]
    assert {value.name for value in found.exit} <= set(made) and len({v.name for v in found.exit}) == 3
    x = np.arange(8.0).reshape(2, 4)
    expected = 2 * x + 10 * x + 100 * x
    w = np.zeros((4, 4))
    assert evaluate_model(model, LIBRARY, {"x": x}, {"w": w}).loss == pytest.approx((expected**2).mean())


def test_a_start_that_the_body_never_reads_is_still_there() -> None:
    model = build(body("p = exp(x)", "repeat 2 as layer", "  p = x * 3", "y = p"))
    assert "exp" in operators(model.graph)
    x = np.arange(8.0).reshape(2, 4)
    found = evaluate_model(model, LIBRARY, {"x": x}, {"w": np.zeros((4, 4))})
    assert found.loss == pytest.approx((9 * x**2).mean())


def test_buffers_and_tied_weights_are_read_where_they_are_named() -> None:
    model = build("""
        model tied[b = 2, v = 3, d = 4]
          input ids: int<v>[b]
          buffer offset: f32[d] ~ constant(0.5)
          weight table: f32[v, d] ~ normal(1)
          loss cross_entropy(linear(embedding(ids, table) + offset, table), ids)
    """)
    readers = [node.instance.name for node in model.graph.nodes() if "table" in {v.name for v in node.arguments}]
    assert readers == ["embedding", "linear"]
    assert [buffer.value.name for buffer in model.graph.buffers] == ["offset"]


# ---------------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x + 3", lambda x: x + 3), ("x - 3", lambda x: x - 3), ("x * 3", lambda x: x * 3), ("x / 4", lambda x: x / 4),
        ("3 + x", lambda x: 3 + x), ("3 - x", lambda x: 3 - x), ("3 * x", lambda x: 3 * x), ("3 / x", lambda x: 3 / x),
        ("1 / x", lambda x: 1 / x), ("0 - x", lambda x: -x), ("-x", lambda x: -x), ("x - x * x", lambda x: x - x * x),
        ("x / (x + 1)", lambda x: x / (x + 1)), ("x * (b + d / 2)", lambda x: x * 4), ("-(2 - x)", lambda x: x - 2),
    ],
)  # fmt: skip
def test_infix_arithmetic_is_elementwise(text: str, expected: Callable[[np.ndarray], np.ndarray]) -> None:
    x = np.arange(1.0, 9.0).reshape(2, 4)
    model = build(body(f"y = {text}") + "\n  output y")
    found = evaluate_model(model, LIBRARY, {"x": x}, {"w": np.eye(4)}).outputs["y"]
    np.testing.assert_allclose(found, expected(x), rtol=1e-14)


def test_views_split_merge_and_permute_axes() -> None:
    x = np.arange(12.0).reshape(3, 4)
    model = build(
        body(
            "n = x[b, (h=d // 2 k)] -> [k, 1, (h b)]",
            "y = n[k, 1, (h=2 b)] -> [b, (h k)]",
            "z = x[b, (2 k)] -> [k, 2, b]",
            parameters="b = 3, d = 4",
        )
        + "\n  output n\n  output y\n  output z"
    )
    outputs = evaluate_model(model, LIBRARY, {"x": x}, {"w": np.eye(4)}).outputs
    np.testing.assert_array_equal(outputs["n"], x.reshape(3, 2, 2).transpose(2, 1, 0).reshape(2, 1, 6))
    np.testing.assert_array_equal(outputs["y"], x)
    np.testing.assert_array_equal(outputs["z"], x.reshape(3, 2, 2).transpose(2, 1, 0))


def test_a_view_that_changes_nothing_is_no_operator() -> None:
    assert operators(build(body("y = relu(x[i, j] -> [i, j])")).graph) == ["relu", "linear", "mse"]


def test_a_view_of_integers_looks_values_up() -> None:
    model = build("""
        model tiny[b = 6, v = 5]
          input ids: int<v>[b]
          weight w: f32[v, 3] ~ normal(0.02)
          bags = ids[(n k=2)] -> [k, n]
          y = embedding(bags, w)
          loss reduce_mean(y[k, n, d] -> [])
          output y
    """)
    ids, w = np.array([4, 0, 2, 2, 1, 3]), np.random.default_rng(0).standard_normal((5, 3))
    outputs = evaluate_model(model, LIBRARY, {"ids": ids}, {"w": w}).outputs
    np.testing.assert_array_equal(outputs["y"], w[ids.reshape(3, 2).T])


def test_a_pattern_at_a_reduction_says_what_is_kept() -> None:
    lines = ("m = reduce_mean(x[b, (h=2 k)] -> [k, b])", "s = reduce_sum(x[b, d] -> [])", "y = x")
    model = build(body(*lines) + "\n  output m\n  output s")
    x = np.random.default_rng(0).standard_normal((2, 4))
    outputs = evaluate_model(model, LIBRARY, {"x": x}, {"w": np.eye(4)}).outputs
    np.testing.assert_allclose(outputs["m"], x.reshape(2, 2, 2).mean(1).T)
    np.testing.assert_allclose(outputs["s"], x.sum())
    assert "rearrange" not in operators(model.graph)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_concat_of_any_number_keeps_the_order(count: int) -> None:
    """Concatenation is a balanced tree: an element passes through at most ceil(log2(count)) operators."""
    names = [f"x{part}" for part in range(count)]
    inputs = [f"  input {name}: f32[{part + 1}, 3]" for part, name in enumerate(names)]
    whole = [f"  y = concat({', '.join(names)}; dim=0)", "  loss mse(linear(y, w), y)", "  output y"]
    model = build("\n".join(["model joined[d = 3]", *inputs, "  weight w: f32[d, d] ~ zeros", *whole]))
    joins = [step for step in model.graph.steps if isinstance(step, Node) and step.instance.name == "concat"]
    assert len(joins) == count - 1 and joins[-1].results[0].name == "y"
    given = {name: np.full((part + 1, 3), float(part)) for part, name in enumerate(names)}
    found = evaluate_model(model, LIBRARY, given, {"w": np.zeros((3, 3))})
    np.testing.assert_array_equal(found.outputs["y"], np.concatenate([given[name] for name in names]))
    depth = dict.fromkeys(names, 0)
    for join in joins:
        depth[join.results[0].name] = 1 + max(depth[value.name] for value in join.arguments)
    assert depth["y"] == (count - 1).bit_length()


@given(st.integers(1, 4), st.integers(1, 4), st.integers(-3, 2))
@settings(max_examples=20)
def test_split_is_equal_slices(parts: int, size: int, dim: int) -> None:
    shape = [2, 3, 2]
    shape[dim] = parts * size
    names = [f"p{i}" for i in range(parts)]
    model = build(
        "\n".join(
            [
                "model tiny",
                f"  input x: f32{shape}",
                "  weight w: f32[1] ~ ones",
                f"  {', '.join(names)} = split(x; dim={dim}, parts={parts})",
                f"  loss mse({' * w + '.join(names)} * w, p0)",
                *(f"  output {name}" for name in names),
            ]
        )
    )
    x = np.random.default_rng(0).standard_normal(shape)
    outputs = evaluate_model(model, LIBRARY, {"x": x}, {"w": np.ones(1)}).outputs
    for name, expected in zip(names, np.split(x, parts, axis=dim), strict=True):
        np.testing.assert_array_equal(outputs[name], expected)


def test_outputs_keep_their_names() -> None:
    model = build(body("x = relu(x)", "y = x") + "\n  output x\n  output y as again\n  output softmax(y) as chances")
    assert model.output_names == ("x", "again", "chances")
    assert [value.name for value in model.outputs] == ["x_1", "x_1", "chances"]


def test_float_types_follow_the_declarations() -> None:
    model = build("""
        model half[b = 2, d = 4]
          input x: bf16[b, d]
          weight w: bf16[d, d] ~ xavier_uniform
          loss mse(linear(x, w), x)
    """)
    assert {value.dtype for value in values(model.graph)} == {"bf16"}


# ---------------------------------------------------------------------------------------------- faults

CASES = sorted((Path(__file__).parents[1] / "cases" / "model_error").glob("*.udl"))


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_a_faulty_model_is_told_in_one_diagnostic(case: Path) -> None:
    with pytest.raises(InputError) as error:
        build_model(parse_model(Source(case.name, case.read_text())), LIBRARY)
    text = re.sub(r"\S*/ops/", "ops/", render(error.value.diagnostic)) + "\n"
    expected = case.with_suffix(".txt")
    if os.environ.get("UNITY_UPDATE"):
        expected.write_text(text)
    assert text == expected.read_text()


WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\w\s]")
EXAMPLES = [path.read_text() for path in sorted(folder("examples").glob("*.udl"))]


@given(st.data())
@settings(max_examples=150)
def test_a_text_with_words_exchanged_is_a_model_or_has_a_fault(data: st.DataObject) -> None:
    """Whatever words are exchanged, only an InputError is raised."""
    text = data.draw(st.sampled_from(EXAMPLES + [case.read_text() for case in CASES]))
    for _ in range(data.draw(st.integers(1, 3))):
        words = list(WORD.finditer(text))
        here, there = (words[data.draw(st.integers(0, len(words) - 1))] for _ in range(2))
        text = text[: here.start()] + there.group() + text[here.end() :]
    try:
        model = build_model(parse_model(Source("model.udl", text)), LIBRARY)
    except InputError as error:
        render(error.diagnostic)
    else:
        assert model.loss.shape == ()


def test_every_code_for_models_has_a_case() -> None:
    told = {code for case in CASES for code in re.findall(r"error\[(E2\d\d)\]", case.with_suffix(".txt").read_text())}
    from_outside = {"E200", "E201"}
    assert told | from_outside == {code for code in CODES if code.startswith("E2")}


def test_settings_and_presets_are_checked() -> None:
    assert fault(PRECEDENCE, aa=3) == "E200"
    assert fault(PRECEDENCE, a="wide") == "E202"
    assert fault(PRECEDENCE, a="nan") == "E204"
    assert fault(PRECEDENCE, a=0) == "E205"
    assert fault(PRECEDENCE, a=-1) == "E205"
    assert fault(PRECEDENCE, a=2.5) == "E205"
    assert fault(PRECEDENCE, a=10**30) == "E204"
    assert fault(PRECEDENCE, a=10**9, b=10**9, c=10**9) == "E225"
    with pytest.raises(InputError, match="E201"):
        build(PRECEDENCE, "smal")


def test_calls_that_are_alike_share_an_instance() -> None:
    lines = ["a = linear(x, w)", "c = linear(a, w)", "e = scale(a; factor=2)", "f = scale(c; factor=2)"]
    graph = build(body(*lines, "g = scale(a; factor=2.0)", "y = e + f + g")).graph
    nodes = [step for step in graph.steps if isinstance(step, Node)]
    first, second = [node for node in nodes if node.instance.name == "linear"][:2]
    assert first.instance is second.instance and first.span != second.span
    scales = [node.instance for node in nodes if node.instance.name == "scale"]
    assert scales[0] is scales[1] and scales[2] is not scales[0]
    assert [type(scale.attributes["factor"]) for scale in scales] == [int, int, float]

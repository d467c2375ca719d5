"""Infinities that values may have: against NumPy's results, and as a restriction on where rules are used."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.graph.evaluation import evaluate_model
from tests.prove.cases import library, rule_of
from unity_dsl.graph.graph import Model, Segment
from unity_dsl.graph.model_graph import build_model
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.resources import folder
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.infinities import infinities
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .models import substitution
from .side_models import build

NONE, BELOW, ABOVE, BOTH = frozenset[int](), frozenset({-1}), frozenset({1}), frozenset({-1, 1})

VALUES = {
    "causal_mask(x)": BELOW,
    "-causal_mask(x)": ABOVE,
    "causal_mask(x) + x": BELOW,
    "x - causal_mask(x)": ABOVE,
    "scale(causal_mask(x); factor=2)": BELOW,
    "scale(causal_mask(x); factor=-2)": ABOVE,
    "root_scale(causal_mask(x))": BOTH,
    "causal_mask(x) * x": BOTH,
    "relu(causal_mask(x))": NONE,
    "relu(-causal_mask(x))": ABOVE,
    "exp(causal_mask(x))": NONE,
    "exp(-causal_mask(x))": ABOVE,
    "sigmoid(causal_mask(x))": NONE,
    "tanh(causal_mask(x))": NONE,
    "softmax(causal_mask(x))": NONE,
    "log_softmax(causal_mask(x))": BELOW,
    "matmul(softmax(causal_mask(x)), x)": NONE,
    "matmul(causal_mask(x), x)": BOTH,
    "padding_mask(scores, mask)": NONE,
    "causal_mask(x)[a, b] -> [b, a]": BELOW,
    "slice(causal_mask(x); dim=1, start=0, stop=2)": BELOW,
    "concat(x, causal_mask(x); dim=0)": BELOW,
    "top_k(causal_mask(x); count=2)": NONE,
    "layer_norm(x, gain, gain)": NONE,
    "max_pool2d(image; size=3, stride=2, pad_h=1, pad_w=1)": NONE,
    "max_pool2d(-image; size=2, stride=1, pad_h=1)": NONE,
    "x / x": NONE,
    "log(x)": NONE,
}
"""Terms over inputs with finite elements, and the infinities that the analysis must find."""


GIVEN = {
    "x": "input x: f32[4, 4]",
    "image": "input image: f32[1, 2, 5, 6]",
    "scores": "input scores: f32[2, 1, 4, 4]",
    "mask": "input mask: int<2>[2, 4]",
}


def model_of(*lines: str) -> Model:
    """A model of the given lines with the output `y` and the weight `gain`."""
    used = [line for name, line in GIVEN.items() if name == "x" or re.search(rf"\b{name}\b", " ".join(lines))]
    last = ["loss mse(layer_norm(x, gain, gain), x)", "output y"]
    return build("\n  ".join(["model m[unused = 1]", *used, "weight gain: f32[4] ~ ones", *lines, *last]) + "\n")


@pytest.mark.parametrize("term", VALUES)
def test_the_infinities_of_a_term_bound_those_that_it_has(term: str) -> None:
    model = model_of(f"y = {term}")
    rng = np.random.default_rng(7)
    drawn = {
        one.value.name: rng.normal(size=one.value.shape)
        if one.value.integer_range is None
        else rng.integers(0, one.value.integer_range, one.value.shape)
        for one in model.graph.inputs
    }
    stored = {one.value.name: rng.normal(size=one.value.shape) for one in model.graph.weights}
    with np.errstate(all="ignore"):
        y = evaluate_model(model, library(), drawn, stored).outputs["y"]
    found = infinities(model, library())[()][model.outputs[0].name]
    assert {int(np.sign(one)) for one in y[np.isinf(y)]} <= found
    assert found == VALUES[term]


def test_what_a_loop_carries_is_what_any_iteration_leaves() -> None:
    """`p` is finite in the first iteration only, `q` in the first two, and `r` in all."""
    model = model_of("p = x", "q = x", "r = x", *LOOP, "y = p + q + r")
    known = infinities(model, library())
    (segment,) = (step for step in model.graph.steps if isinstance(step, Segment))
    names = {entry.name: known["layer",][entry.name] for entry in segment.entry}
    assert sorted(map(sorted, names.values())) == [[], [-1], [-1]]
    assert sorted(sorted(known[()][value.name]) for value in segment.results) == [[], [-1], [-1]]


LOOP = ["repeat 3 as layer", "  q = p + x", "  p = causal_mask(p)", "  r = softmax(q + r)"]


def test_a_buffer_is_what_an_update_leaves_there() -> None:
    model = model_of("buffer kept: f32[4, 4] ~ zeros", "buffer mean: f32[4, 4] ~ zeros", "y = kept + mean", *UPDATES)
    known = infinities(model, library())[()]
    assert known["kept"] == BELOW and known["mean"] == NONE and known[model.outputs[0].name] == BELOW


UPDATES = ["update kept = causal_mask(kept)", "update mean = softmax(kept)"]

# ---------------------------------------------------------------------------------------------- rules

ZEROS = "rule zeros(x: [b..])\n  scale(relu(x); factor=0) => scale(x; factor=0)\n"
"""A rule proved for finite elements. At minus infinity the left side is 0 and the right side has no value."""


def test_a_rule_is_not_used_on_what_may_be_infinite() -> None:
    model = model_of(
        "masked = scale(relu(causal_mask(x)); factor=0)",
        "plain = scale(relu(x); factor=0)",
        "again = scale(relu(softmax(causal_mask(x))); factor=0)",
        "y = masked + plain + again",
    )
    assert isinstance(prove_rule(rule_of(ZEROS), library()), Proved)
    assert [match.place for match in matches(substitution(rule_of(ZEROS)), model)] == ["plain", "again"]


def test_a_rule_is_not_used_on_what_is_infinite_in_a_later_iteration() -> None:
    lines = ["p = x", "repeat 2 as layer", "  h = scale(relu(p); factor=0)", "  p = causal_mask(p + h)", "y = p"]
    assert not list(matches(substitution(rule_of(ZEROS)), model_of(*lines)))
    finite = [line.replace("causal_mask", "softmax") for line in lines]
    assert [match.place for match in matches(substitution(rule_of(ZEROS)), model_of(*finite))] == ["layer.h"]


@pytest.mark.parametrize(
    ("example", "rule", "masked"),
    [
        ("gpt2", "causal_attention_of_products", {"attn.causal_mask_1"}),
        ("gpt2", "linear_with_bias", {"attn.causal_mask_1"}),
        ("bert_large", "padded_attention_of_products", set()),
        ("bert_large", "linear_with_bias", set()),
    ],
)
def test_masks_in_a_pattern_or_before_a_softmax_hinder_no_fusion(example: str, rule: str, masked: set[str]) -> None:
    text = folder("examples").joinpath(f"{example}.udl").read_text().replace("dropout = 0.1", "dropout = 0")
    model = build_model(parse_model(Source(f"{example}.udl", text)), library())
    path = folder("rules") / "fusion.rules"
    (fusion,) = (one for one in load_rules(Source(str(path), path.read_text()), library()) if one.name == rule)
    assert {match.path for match in matches(substitution(fusion), model)} >= {("layer",)}
    known = [entry for values in infinities(model, library()).values() for entry in values.items()]
    assert {name for name, found in known if found} == masked

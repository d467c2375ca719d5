"""Padded models compute the model's numbers in the unpadded region. Random models and the examples, in float64 with
NumPy.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.models import random_model
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_flops import model_flops
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.padding import is_masked, paddable, padded, padding_words
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

from .padded import largest_difference, random_padding
from .test_shared_axes import ATTENTION, model_of

EXAMPLES = sorted(Path(__file__, "../../../examples").resolve().glob("*.udl"))
LIBRARY = library_of(library_sources(()))
CASES = int(os.environ.get("UNITY_FUZZ_CASES", "60"))


def small(path: Path) -> Model:
    return build_model(parse_model(read_source(path)), LIBRARY, {}, "small", "f32")


def test_random_models_are_the_same_in_front() -> None:
    tried = 0
    for case in range(SAMPLE * CASES, (SAMPLE + 1) * CASES):
        print(f"seed {case}")
        random = Random(case)
        text = random_model(random)
        model = build_model(parse_model(Source("fuzz.udl", text)), LIBRARY)
        if padding := random_padding(model, random):
            tried += 1
            longer = padded(model, padding, LIBRARY)
            for training in (True, False):
                assert largest_difference(model, longer, LIBRARY, case, training) < 1e-9, (padding, text)
    assert tried > CASES / 2


@pytest.mark.parametrize("path", of_the_day(EXAMPLES, 6), ids=lambda path: path.stem)
def test_padded_examples_are_the_same_in_front(path: Path) -> None:
    model, random = small(path), Random(SAMPLE)
    print(f"seed {SAMPLE}")
    padding = random_padding(model, random, 1.0)
    assert padding
    assert largest_difference(model, padded(model, padding, LIBRARY), LIBRARY, SAMPLE) < 1e-12


def test_only_what_must_be_is_masked() -> None:
    """Padding of weights is zero, so products need no mask. Minus infinity is added before a softmax."""
    model = model_of(ATTENTION)
    heads = padded(model, {"q:0": 4}, LIBRARY) if "q:0" in paddable(model) else None
    assert heads is None, "the fused weight has the heads behind another axis"
    classes = padded(model, {"table:0": 8}, LIBRARY)
    assert not any(map(is_masked, classes.graph.nodes()))
    assert [node.instance.name for node in classes.graph.nodes()].count("tail") == 1
    batch = padded(model, {"tokens:0": 8}, LIBRARY)
    assert [node.instance.name for node in batch.graph.nodes() if is_masked(node)] == ["cross_entropy_without_padding"]


def test_a_padded_model_knows_its_sizes() -> None:
    model = model_of(ATTENTION)
    longer = padded(model, {"tokens:0": 8, "table:0": 8}, LIBRARY)
    assert padding_words(longer) == "tokens:0 6 -> 8 (+33 %), table:0 7 -> 8 (+14 %)"
    assert [weight.value.shape[0] for name, weight in longer.weights() if name == "table"] == [8]
    assert [weight.value.model_shape for _, weight in longer.weights()] == [w.value.shape for _, w in model.weights()]
    assert model_flops(longer) == model_flops(model), "padding is no work of the model"
    with pytest.raises(ValueError, match="keeps its size"):
        padded(model, {"fused:0": 48}, LIBRARY)
    with pytest.raises(ValueError, match="cannot be padded to 5"):
        padded(model, {"tokens:0": 5}, LIBRARY)

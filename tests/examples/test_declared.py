"""Every example, evaluated with NumPy from its declarations, agrees with an independent module of torch.nn.

Dropout is off: its mask is a function of ours, which no module of torch shares.
"""

from __future__ import annotations

import pytest
import torch

from unity_dsl.graph.graph import Model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library

from ..graph.evaluation import evaluate_model
from .agreement import EXAMPLES, build_example, error, run_reference, sizes_of

PUBLISHED = [
    ("gpt2", "medium", 354_823_168),
    ("gpt2", "large", 774_030_080),
    ("gpt2", "xl", 1_557_611_200),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_declarations_compute_what_the_module_computes(name: str, library: Library) -> None:
    expected = run_reference(name, library)
    inputs = {key: tensor.numpy() for key, tensor in expected.inputs.items()}
    stored = {key: tensor.numpy() for key, tensor in expected.stored.items()}
    found = evaluate_model(expected.model, library, inputs, stored)
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    assert set(found.outputs) == set(expected.outputs)
    for key, tensor in expected.outputs.items():
        assert error(torch.from_numpy(found.outputs[key]), tensor) < 1e-12, key
    assert set(found.updated) == set(expected.updated)
    for key, tensor in expected.updated.items():
        assert error(torch.from_numpy(found.updated[key]), tensor) < 1e-12, key


@pytest.mark.parametrize("name", EXAMPLES)
def test_at_full_size_an_example_has_the_published_number_of_parameters(name: str, library: Library) -> None:
    model = build_example(name, library)
    assert _parameters(model) == EXAMPLES[name].count
    with torch.device("meta"):
        module = EXAMPLES[name].module(sizes_of(model))
    assert sum(parameter.numel() for parameter in module.parameters()) == EXAMPLES[name].count


@pytest.mark.parametrize("name, preset, count", PUBLISHED)
def test_presets_have_the_published_number_of_parameters(name: str, preset: str, count: int, library: Library) -> None:
    assert _parameters(build_example(name, library, preset=preset)) == count


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_small_preset_keeps_the_structure(name: str, library: Library) -> None:
    """The same operators in the same order on the same values. Sizes are divisible by 4, and there are at least two
    layers.
    """
    full, small = build_example(name, library), build_example(name, library, preset="small")
    assert _structure(full) == _structure(small)
    parameters = small.parameters
    assert parameters.get("layers", 2) >= 2 and parameters.get("heads", 4) >= 4
    assert all(parameters[key] % 4 == 0 for key in parameters.keys() & {"b", "d", "h", "hidden", "s", "vocabulary"})
    assert _parameters(small) < EXAMPLES[name].largest


def _structure(model: Model) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.instance.name, tuple(value.name for value in node.arguments)) for node in model.graph.nodes()]


def _parameters(model: Model) -> int:
    return sum(weight.value.elements for _, weight in model.weights())

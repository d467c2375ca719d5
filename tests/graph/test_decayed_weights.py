"""Which weights decay: those of products, convolutions and lookups, not those that are added or
multiplied elementwise.
"""

from __future__ import annotations

import re

import pytest

from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
ADDED = (".position", ".wpe", ".bias", "vit_l16.token")
"""Name endings of weights in the examples that may be initialised randomly but are only added: position tables, a token
in front of all rows, biases of an LSTM.
"""


def decaying(text: str) -> set[str]:
    """The names of the weights that decay; `layer.*.w` for weights of a repeat."""
    model = build_model(parse_model(Source("m.udl", text)), LIBRARY)
    return {re.sub(r"\.\d+\.", ".*.", name) for name, weight in model.weights() if weight.decays}


MODEL = """
model m[b = 4, d = 6]
  input x: f32[b, d]
  {weights}
  y = {loss}
  loss mse(y, x)
"""
W = "weight w: f32[d, d] ~ ones"


@pytest.mark.parametrize(
    ("weights", "loss", "expected"),
    [
        (f"{W}\n  weight c: f32[b, d] ~ ones", "linear(x, w) + c", {"w"}),
        (f"{W}\n  weight g: f32[1, d] ~ ones", "linear(x * g, w)", {"w"}),
        (
            "input ids: int<5>[b]\n  weight table: f32[5, d] ~ ones\n  weight c: f32[1, 1] ~ ones",
            "embedding(ids, table) * c",
            {"table"},
        ),
        ("weight c: f32[2, d / 2] ~ ones", "x + (c[p, q] -> [(p q)])", set()),
        # A value computed from weights alone counts as its weights: a slice, a product of two, a multiplied gain.
        ("weight w: f32[d, 2, d] ~ ones", "linear(x, slice(w; dim=1, start=0, stop=1)[o, 1, i] -> [o, i])", {"w"}),
        (f"{W}\n  weight v: f32[d, d] ~ ones", "linear(x, matmul(w, v))", {"w", "v"}),
        (f"{W}\n  weight g: f32[1, d] ~ ones", "linear(x, w * g)", {"w", "g"}),
        # A penalty on a weight reads the weight alone.
        ("weight c: f32[1, d] ~ ones", "x + c\n  z = c * c\n  y = y + reduce_sum(z[a, d] -> [])", set()),
    ],
)
def test_weights_of_one_operator(weights: str, loss: str, expected: set[str]) -> None:
    assert decaying(MODEL.format(weights=weights, loss=loss)) == expected


LOOPS = """
model m[b = 4, d = 6]
  input x: f32[b, d]
  input s: f32[b, 3, d]
  weight tied: f32[d, d] ~ ones
  weight gain: f32[b, d] ~ ones
  weight start: f32[b, d] ~ zeros
  repeat 2 as layer
    weight w: f32[d, d] ~ ones
    weight bias: f32[1, d] ~ ones
    x = linear(linear(x, w) + bias, tied) * gain
  h = start
  scan part in s along 1 as step
    h = tanh(linear(h, tied) + part)
  loss mse(x + h, x)
"""


def test_weights_of_repeats_and_those_they_read_from_outside() -> None:
    assert decaying(LOOPS) == {"tied", "layer.*.w"}


def test_the_examples() -> None:
    """Gains and biases are the weights that are initialised with ones or zeros."""
    for path in sorted(folder("examples").glob("*.udl")):
        file = parse_model(read_source(path))
        preset = "small" if any(preset.name == "small" for preset in file.model.presets) else None
        for name, weight in build_model(file, LIBRARY, preset=preset).weights():
            added = weight.initialiser.name in ("ones", "zeros") or f"{path.stem}.{name}".endswith(ADDED)
            assert weight.decays is not added, f"{path.stem}: {name}"

"""Which inputs count as tokens: integers that are looked up one by one, under any name."""

from __future__ import annotations

import pytest

from unity_dsl.graph.batch_tokens import batch_tokens
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

LIBRARY = load_library()

MODEL = """
model m[b = 4, s = 6, d = 2, words = 5]
  input given: int<words>[{shape}]
  input target: f32[b, d]
  weight table: f32[words, d] ~ ones
  weight other: f32[d, d] ~ ones
  {looked_up}
  loss mse(linear(y, other), target)
"""


@pytest.mark.parametrize(
    ("shape", "looked_up", "expected"),
    [
        ("b, s", "y = reduce_mean(embedding(given, table)[b, s, d] -> [b, d])", 24),
        ("b, s", "y = embedding_bag(given, table)", None),
        ("b, 1", "y = embedding(given, table)[b, 1, d] -> [b, d]", None),
        ("b", "y = embedding(given, table)", None),
    ],
)
def test_tokens(shape: str, looked_up: str, expected: int | None) -> None:
    text = MODEL.format(shape=shape, looked_up=looked_up)
    assert batch_tokens(build_model(parse_model(Source("m.udl", text)), LIBRARY)) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("llama3_8b", 32), ("bert_large", 32), ("dlrm", None), ("dlrm_unity", None), ("mlp", None)]
)
def test_tokens_of_examples(name: str, expected: int | None) -> None:
    file = parse_model(read_source(folder("examples") / f"{name}.udl"))
    assert batch_tokens(build_model(file, LIBRARY, {}, "small", None)) == expected

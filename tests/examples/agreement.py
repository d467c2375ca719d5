"""The examples beside their reference modules: the same weights and data for both, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from unity_dsl.graph.build import build_model
from unity_dsl.graph.graph import Graph, Model, Segment
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from .correspondence import Places, copy_into, gradients
from .reference_bert_large import BertLarge
from .reference_bert_large import places as bert_places
from .reference_digits import Digits
from .reference_digits import places as digits_places
from .reference_gpt2 import Gpt2
from .reference_gpt2 import places as gpt2_places
from .reference_lstm_lm import LstmLm
from .reference_lstm_lm import places as lstm_places
from .reference_mlp import Mlp
from .reference_mlp import places as mlp_places

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Example:
    """A model's reference. `count` is the number of parameters at full size; `settings` switch randomness off."""

    module: Callable[[Sizes], nn.Module]
    places: Callable[[Sizes], Places]
    count: int
    settings: Mapping[str, int]


EXAMPLES = {
    "digits": Example(Digits, digits_places, 26_122, {}),
    "mlp": Example(Mlp, mlp_places, 109_081_600, {}),
    "gpt2": Example(Gpt2, gpt2_places, 124_439_808, {"dropout": 0}),
    "lstm_lm": Example(LstmLm, lstm_places, 66_022_000, {"dropout": 0}),
    "bert_large": Example(BertLarge, bert_places, 336_226_108, {"dropout": 0}),
}


def path_of(name: str) -> Path:
    return folder("examples") / f"{name}.udl"


def build_example(
    name: str, library: Library, settings: Mapping[str, int] | None = None, preset: str | None = None
) -> Model:
    return build_model(parse_model(read_source(path_of(name))), library, settings, preset)


def sizes_of(model: Model) -> dict[str, int]:
    return {key: int(value) for key, value in model.parameters.items()}


@dataclass(frozen=True)
class Reference:
    """The same weights and data for both sides, and what the reference makes of them in float64. Buffers are zeros."""

    model: Model
    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]
    inputs: dict[str, Tensor]
    loss: float
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def _buffers(graph: Graph, prefix: str) -> Iterator[tuple[str, Tensor]]:
    for buffer in graph.buffers:
        yield prefix + buffer.value.name, torch.zeros(buffer.value.shape, dtype=torch.float64)
    for step in graph.steps:
        for path in step.paths if isinstance(step, Segment) else ():
            yield from _buffers(step.body, prefix + path)


def run_reference(name: str, library: Library) -> Reference:
    """The small preset without randomness: normal weights and inputs, integers from their whole range."""
    example = EXAMPLES[name]
    model = build_example(name, library, example.settings, "small")
    sizes = sizes_of(model)
    random = torch.Generator().manual_seed(1)
    weights = {
        key: 0.3 * torch.randn(weight.value.shape, generator=random, dtype=torch.float64)
        for key, weight in model.weights()
    }
    inputs = {}
    for item in model.graph.inputs:
        shape, bound = item.value.shape, item.value.integer_range
        if bound is None:
            inputs[item.value.name] = torch.randn(shape, generator=random, dtype=torch.float64)
        else:
            inputs[item.value.name] = torch.randint(bound, shape, generator=random)
    module = example.module(sizes).double()
    places = example.places(sizes)
    copy_into(module, weights, places)
    loss, outputs = module(**inputs)
    loss.backward()
    found = dict(gradients(module, weights, places))
    return Reference(
        model,
        weights,
        dict(_buffers(model.graph, "")),
        inputs,
        loss.item(),
        {k: v.detach() for k, v in outputs.items()},
        found,
    )


def error(found: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest difference relative to the largest element, or to `floor` where all are smaller."""
    return ((found - expected).abs().max() / max(expected.abs().max().item(), floor)).item()


def noise_floor(gradients: Mapping[str, Tensor]) -> float:
    """Some gradients are zero (a key bias under softmax): errors are relative to a thousandth of the RMS over all."""
    elements = sum(gradient.numel() for gradient in gradients.values())
    return 1e-3 * math.sqrt(sum(gradient.square().sum().item() for gradient in gradients.values()) / elements)

"""The examples against their reference modules: the same weights and data for both, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from .correspondence import Places, copy_into, gradients
from .reference_bert_large import BertLarge
from .reference_bert_large import places as bert_places
from .reference_bert_unity import BertUnity
from .reference_bert_unity import places as bert_unity_places
from .reference_candle import CandleUno, CandleUnoUnity
from .reference_candle import places as candle_places
from .reference_candle import places_unity as candle_unity_places
from .reference_convolutional import InceptionUnity, ResnextUnity, inception_unity_places, resnext_unity_places
from .reference_digits import Digits
from .reference_digits import places as digits_places
from .reference_gpt2 import Gpt2
from .reference_gpt2 import places as gpt2_places
from .reference_inception_v3 import InceptionV3
from .reference_inception_v3 import buffers as inception_v3_buffers
from .reference_inception_v3 import places as inception_v3_places
from .reference_llama3 import Llama3
from .reference_llama3 import places as llama3_places
from .reference_lstm_lm import LstmLm
from .reference_lstm_lm import buffers as lstm_buffers
from .reference_lstm_lm import places as lstm_places
from .reference_mixtral_8x7b import Mixtral
from .reference_mixtral_8x7b import places as mixtral_places
from .reference_mlp import Mlp
from .reference_mlp import places as mlp_places
from .reference_mlp_unity import MlpUnity
from .reference_mlp_unity import places as mlp_unity_places
from .reference_nasnet_a import NasnetA
from .reference_nasnet_a import buffers as nasnet_a_buffers
from .reference_nasnet_a import places as nasnet_a_places
from .reference_recommendation import Dlrm, DlrmUnity, XdlUnity, dlrm_places, dlrm_unity_places, xdl_places
from .reference_resnext50 import ResNext50
from .reference_resnext50 import buffers as resnext50_buffers
from .reference_resnext50 import places as resnext50_places
from .reference_skipnet import SkipNet
from .reference_skipnet import places as skipnet_places
from .reference_vit_l16 import VitL16
from .reference_vit_l16 import places as vit_places

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Example:
    """The reference of a model. `count` is the number of parameters at full size; `settings` switch randomness off.

    `buffers` maps names of the model's buffers to the module's. The small preset has fewer than `largest` parameters.
    """

    module: Callable[[Sizes], nn.Module]
    places: Callable[[Sizes], Places]
    count: int
    settings: Mapping[str, int]
    buffers: Callable[[Sizes], Mapping[str, str]] = lambda sizes: {}
    largest: int = 30_000


EXAMPLES = {
    "digits": Example(Digits, digits_places, 26_122, {}),
    "mlp": Example(Mlp, mlp_places, 109_081_600, {}),
    "gpt2": Example(Gpt2, gpt2_places, 124_439_808, {"dropout": 0}),
    "resnext50": Example(ResNext50, resnext50_places, 25_028_904, {}, resnext50_buffers),
    "mixtral_8x7b": Example(Mixtral, mixtral_places, 46_702_792_704, {}),
    "inception_v3": Example(
        InceptionV3, inception_v3_places, 27_161_264, {"dropout": 0}, inception_v3_buffers, 100_000
    ),
    # The published 88.9 million, 88,949,818, are these and 196,668 running statistics of batch norm.
    "nasnet_a": Example(NasnetA, nasnet_a_places, 88_753_150, {"dropout": 0}, nasnet_a_buffers, 100_000),
    "lstm_lm": Example(LstmLm, lstm_places, 66_022_000, {"dropout": 0}, lstm_buffers),
    "skipnet": Example(SkipNet, skipnet_places, 1_334_126, {}),
    "bert_large": Example(BertLarge, bert_places, 336_226_108, {"dropout": 0}),
    "mlp_unity": Example(MlpUnity, mlp_unity_places, 956_301_312, {}),
    "candle_uno": Example(CandleUno, candle_places, 21_275_001, {"dropout": 0}),
    "candle_uno_unity": Example(CandleUnoUnity, candle_unity_places, 820_948_704, {}),
    "dlrm": Example(Dlrm, dlrm_places, 187_767_399 * 128 + 2_368_897, {}),
    "dlrm_kaggle": Example(Dlrm, dlrm_places, 33_762_577 * 16 + 475_985, {}),
    "dlrm_unity": Example(DlrmUnity, dlrm_unity_places, 256_000_000 + 24_960, {}),
    "xdl_unity": Example(XdlUnity, xdl_places, 256_000_000 + 131_584, {}),
    "gpt2_xl": Example(Gpt2, gpt2_places, 1_557_611_200, {"dropout": 0}),
    "gpt3_175b": Example(Gpt2, gpt2_places, 174_604_259_328, {}),
    "bert_unity": Example(BertUnity, bert_unity_places, 75_498_496, {}),
    "llama3_8b": Example(Llama3, llama3_places, 8_030_261_248, {}),
    "llama3_70b": Example(Llama3, llama3_places, 70_553_706_496, {}),
    "resnext50_unity": Example(ResnextUnity, resnext_unity_places, 22_222_056, {}),
    "inception_v3_unity": Example(InceptionUnity, inception_unity_places, 21_788_842, {}),
    "vit_l16": Example(VitL16, vit_places, 304_326_632, {}),
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
    """The same weights, buffers and data for both sides, and the results of the reference in float64."""

    model: Model
    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]
    inputs: dict[str, Tensor]
    loss: float
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]
    updated: dict[str, Tensor]

    @property
    def stored(self) -> dict[str, Tensor]:
        return {**self.weights, **self.buffers}


def run_reference(name: str, library: Library) -> Reference:
    """Runs the small preset without randomness: normal weights and inputs, integers from their whole range."""
    example = EXAMPLES[name]
    model = build_example(name, library, example.settings, "small")
    sizes = sizes_of(model)
    random = torch.Generator().manual_seed(1)
    weights = {
        key: 0.3 * torch.randn(weight.value.shape, generator=random, dtype=torch.float64)
        for key, weight in model.weights()
    }
    buffers = {item.value.name: torch.zeros(item.value.shape, dtype=torch.float64) for item in model.graph.buffers}
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
    state = dict(module.named_buffers())
    names = example.buffers(sizes)
    for theirs in names.values():
        state[theirs].copy_(torch.rand(state[theirs].shape, generator=random, dtype=torch.float64) + 0.5)
    buffers |= {ours: state[theirs].clone() for ours, theirs in names.items()}
    loss, outputs = module(**inputs)
    loss.backward()
    found = dict(gradients(module, weights, places))
    updated = {ours: state[theirs].clone() for ours, theirs in names.items()}
    results = {name: value.detach() for name, value in outputs.items()}
    return Reference(model, weights, buffers, inputs, loss.item(), results, found, updated)


def error(found: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest difference relative to the largest element, or to `floor` if that is larger."""
    return ((found - expected).abs().max() / max(expected.abs().max().item(), floor)).item()


def noise_floor(gradients: Mapping[str, Tensor]) -> float:
    """Some gradients are zero (a key bias under softmax): errors are relative to a thousandth of the RMS over all."""
    elements = sum(gradient.numel() for gradient in gradients.values())
    return 1e-3 * math.sqrt(sum(gradient.square().sum().item() for gradient in gradients.values()) / elements)

"""examples/bert_large.udl as a user of torch would write it, with torch's own encoder layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

EPSILON = 1e-12


class BertLarge(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, vocabulary = sizes["d"], sizes["vocabulary"]
        self.token = nn.Embedding(vocabulary, d)
        self.position = nn.Embedding(sizes["s"], d)
        self.segment = nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=EPSILON)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                d, sizes["heads"], 4 * d, dropout=0.0, activation="gelu", layer_norm_eps=EPSILON, batch_first=True
            )
            for _ in range(sizes["layers"])
        )
        self.transform = nn.Linear(d, d)
        self.transform_norm = nn.LayerNorm(d, eps=EPSILON)
        self.token_bias = nn.Parameter(torch.zeros(vocabulary))
        self.pooler = nn.Linear(d, d)
        self.order = nn.Linear(d, 2)

    def forward(
        self, tokens: Tensor, types: Tensor, mask: Tensor, target: Tensor, chosen: Tensor, follows: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1])) + self.segment(types)
        x = self.norm(x)
        padding = (1 - mask).to(x.dtype) * -10000
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        logits = F.linear(self.transform_norm(F.gelu(self.transform(x))), self.token.weight, self.token_bias)
        order = self.order(self.pooler(x[:, 0]).tanh())
        told = chosen.bool()
        loss = F.cross_entropy(logits[told], target[told]) + F.cross_entropy(order, follows)
        return loss, {"token_logits": logits, "order": order}


def places(sizes: Mapping[str, int]) -> Places:
    d = sizes["d"]
    found = {name: Place(f"{name}.weight") for name in ("token", "position", "segment")}
    found["token_bias"] = Place("token_bias")
    found |= _affine("embedded", "norm", "gain") | _affine("transformed", "transform_norm", "gain")
    for name in ("transform", "pooler", "order"):
        found |= _affine(name, name, "w")
    for layer in range(sizes["layers"]):
        ours, theirs = f"layer.{layer}", f"layers.{layer}"
        for number, name in enumerate(("query", "key", "value")):
            rows = number * d, (number + 1) * d
            found[f"{ours}.attn.{name}.w"] = Place(f"{theirs}.self_attn.in_proj_weight", *rows)
            found[f"{ours}.attn.{name}.bias"] = Place(f"{theirs}.self_attn.in_proj_bias", *rows)
        found |= _affine(f"{ours}.attn.out", f"{theirs}.self_attn.out_proj", "w")
        found |= _affine(f"{ours}.ff.up", f"{theirs}.linear1", "w") | _affine(
            f"{ours}.ff.down", f"{theirs}.linear2", "w"
        )
        found |= _affine(f"{ours}.ln_1", f"{theirs}.norm1", "gain") | _affine(f"{ours}.ln_2", f"{theirs}.norm2", "gain")
    return found


def _affine(ours: str, theirs: str, weight: str) -> dict[str, Place]:
    return {f"{ours}.{weight}": Place(f"{theirs}.weight"), f"{ours}.bias": Place(f"{theirs}.bias")}

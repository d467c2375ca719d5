"""examples/vit_l16.udl as a user of torch would write it, with a convolution and torch's own encoder layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

EPSILON = 1e-6


class VitL16(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, patch = sizes["d"], sizes["patch"]
        self.kernel = nn.Conv2d(3, d, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, d))
        self.position = nn.Parameter(torch.zeros((sizes["pixels"] // patch) ** 2 + 1, d))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    d,
                    sizes["heads"],
                    4 * d,
                    dropout=0.0,
                    activation="gelu",
                    layer_norm_eps=EPSILON,
                    batch_first=True,
                    norm_first=True,
                )
                for _ in range(sizes["layers"])
            )
        )
        self.norm = nn.LayerNorm(d, eps=EPSILON)
        self.head = nn.Linear(d, sizes["classes"])

    def forward(self, image: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        patches = self.kernel(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(image), 1, -1), patches], 1) + self.position
        logits = self.head(self.norm(self.layers(x))[:, 0])
        return F.cross_entropy(logits, target), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    d = sizes["d"]
    found = {"kernel": Place("kernel.weight"), "kernel_bias": Place("kernel.bias")}
    found |= {"token": Place("token"), "position": Place("position")}
    found |= _affine("ln_f", "norm", "gain") | _affine("logits", "head", "w")
    for layer in range(sizes["layers"]):
        ours, theirs = f"layer.{layer}", f"layers.{layer}"
        for number, name in enumerate(("query", "key", "value")):
            rows = number * d, (number + 1) * d
            found[f"{ours}.attn.{name}.w"] = Place(f"{theirs}.self_attn.in_proj_weight", *rows)
            found[f"{ours}.attn.{name}.bias"] = Place(f"{theirs}.self_attn.in_proj_bias", *rows)
        found |= _affine(f"{ours}.attn.out", f"{theirs}.self_attn.out_proj", "w")
        found |= _affine(f"{ours}.ff.up", f"{theirs}.linear1", "w")
        found |= _affine(f"{ours}.ff.down", f"{theirs}.linear2", "w")
        found |= _affine(f"{ours}.ln_1", f"{theirs}.norm1", "gain") | _affine(f"{ours}.ln_2", f"{theirs}.norm2", "gain")
    return found


def _affine(ours: str, theirs: str, weight: str) -> dict[str, Place]:
    return {f"{ours}.{weight}": Place(f"{theirs}.weight"), f"{ours}.bias": Place(f"{theirs}.bias")}

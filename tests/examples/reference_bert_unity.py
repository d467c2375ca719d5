"""examples/bert_unity.udl as a user of torch would write it, with torch's own attention module."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Layer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.w1 = nn.Linear(d, d, bias=False)
        self.w2 = nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.w2(self.w1(mixed).relu())


class BertUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(sizes["d"], sizes["heads"]) for _ in range(sizes["layers"])))
        self.head = nn.Linear(sizes["d"], 1, bias=False)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = self.head(self.layers(x))
        return F.mse_loss(y, target), {"y": y}


def places(sizes: Mapping[str, int]) -> Places:
    d = sizes["d"]
    found = {"head": Place("head.weight")}
    for layer in range(sizes["layers"]):
        ours, theirs = f"layer.{layer}", f"layers.{layer}"
        for number, name in enumerate(("query", "key", "value")):
            rows = number * d, (number + 1) * d
            found[f"{ours}.attn.{name}"] = Place(f"{theirs}.attention.in_proj_weight", *rows)
        found[f"{ours}.attn.out"] = Place(f"{theirs}.attention.out_proj.weight")
        found |= {f"{ours}.{name}": Place(f"{theirs}.{name}.weight") for name in ("w1", "w2")}
    return found

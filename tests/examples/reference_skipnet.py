"""examples/skipnet.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 2)
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.outer = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        sure, best = self.gate(x.mean((2, 3))).softmax(-1).mean(0).max(0)
        if best == 0:
            return x
        return (x + self.outer(self.inner(x).relu()) * sure).relu()


class SkipNet(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        width = sizes["width"]
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(sizes["blocks"]))
        self.head = nn.Linear(width, sizes["classes"])

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.stem(image).relu()
        for block in self.blocks:
            x = block(x)
        logits = self.head(x.mean((2, 3)))
        return F.cross_entropy(logits, label), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    found = {"stem": Place("stem.weight"), "head": Place("head.weight"), "head_bias": Place("head.bias")}
    names = {"runs": "gate", "skip.inner": "inner", "skip.outer": "outer"}
    for layer in range(sizes["blocks"]):
        for own, theirs in names.items():
            found[f"layer.{layer}.{own}.w"] = Place(f"blocks.{layer}.{theirs}.weight")
            found[f"layer.{layer}.{own}.bias"] = Place(f"blocks.{layer}.{theirs}.bias")
    return found

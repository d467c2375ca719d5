"""examples/digits.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Digits(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        hidden = sizes["hidden"]
        self.layers = nn.Sequential(
            nn.Linear(sizes["pixels"], hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, sizes["classes"]),
        )

    def forward(self, image: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.layers(image)
        return F.cross_entropy(logits, target), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    found = {}
    for number, layer in enumerate((0, 2, 4), 1):
        found[f"w{number}"] = Place(f"layers.{layer}.weight")
        found[f"bias{number}"] = Place(f"layers.{layer}.bias")
    return found

"""examples/mlp.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor, nn

from .correspondence import Place, Places


class Mlp(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        widths = [sizes["d"], *[sizes["h"]] * (sizes["layers"] - 1), sizes["d"]]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.error = nn.MSELoss()

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        y = self.layers[-1](x)
        return self.error(y, target), {"y": y}


def places(sizes: Mapping[str, int]) -> Places:
    last = sizes["layers"] - 1
    names = {0: ("w_in", "bias_in"), last: ("w_out", "bias_out")}
    names |= {layer: (f"hidden.{layer - 1}.w", f"hidden.{layer - 1}.bias") for layer in range(1, last)}
    found = {}
    for layer, (weight, bias) in names.items():
        found[weight], found[bias] = Place(f"layers.{layer}.weight"), Place(f"layers.{layer}.bias")
    return found

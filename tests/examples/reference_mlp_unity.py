"""examples/mlp_unity.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class MlpUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.towers = nn.ModuleList(self.tower(sizes["d"], sizes["h"], sizes["layers"]) for _ in range(2))

    def tower(self, d: int, h: int, layers: int) -> nn.Sequential:
        parts: list[nn.Module] = [nn.Linear(d, h, bias=False)]
        for _ in range(layers - 1):
            parts += [nn.ReLU(), nn.Linear(h, h, bias=False)]
        return nn.Sequential(*parts)

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = self.towers[0](x1) + self.towers[1](x2)
        return F.cross_entropy(y, target), {"y": y}


def places(sizes: Mapping[str, int]) -> Places:
    last = sizes["layers"] - 1
    found = {}
    for number in range(2):
        names = {"w_in": 0, "w_out": last} | {f"hidden.{layer - 1}.w": layer for layer in range(1, last)}
        found |= {
            f"tower{number + 1}.{name}": Place(f"towers.{number}.{2 * layer}.weight") for name, layer in names.items()
        }
    return found

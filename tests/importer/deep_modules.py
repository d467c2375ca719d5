"""Modules of many layers, in which a few layers show or do not show what a size changes, and parts with odd names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .modules import Example


class DeepLayer(nn.Module):
    """A layer whose function depends on its number."""

    def __init__(self, width: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.map = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + (torch.tanh if self.number % 8 == 7 else torch.relu)(self.map(x))


class Deep(nn.Module):
    """Many layers, the eighth of which may differ."""

    def __init__(self, width: int, layers: int, first: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DeepLayer(width, (first + place) % (8 - first)) for place in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return F.mse_loss(self.head(x)[:, 0], y)


def deep(width: int = 6, layers: int = 10) -> Example:
    """Ten layers that are equal."""
    torch.manual_seed(0)
    return Deep(width, layers, 1), {"x": torch.randn(4, width), "y": torch.randn(4)}


def deep_but_one(width: int = 6, layers: int = 10) -> Example:
    """Ten layers, the eighth of which differs. The first layers do not show this."""
    torch.manual_seed(0)
    return Deep(width, layers, 0), {"x": torch.randn(4, width), "y": torch.randn(4)}


class Worded(nn.Module):
    """A part whose name is a Python keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"class": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> Tensor:
        return self.heads["class"](x).square().mean()


def worded() -> Example:
    return Worded(), {"x": torch.randn(4, 4)}

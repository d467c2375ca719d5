"""examples/lstm_lm.udl as a user of torch would write it, with torch's own LSTM."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Layer(nn.LSTM):
    """A layer that carries its state on. Its second bias, which only adds to the first, is zero and no parameter."""

    def __init__(self, b: int, d: int) -> None:
        super().__init__(d, d, batch_first=True)
        shape = self.bias_hh_l0.shape
        del self._parameters["bias_hh_l0"]
        self.register_buffer("bias_hh_l0", torch.zeros(shape))
        self._flat_weights = [getattr(self, name) for name in self._flat_weights_names]
        self.register_buffer("c", torch.zeros(b, d))
        self.register_buffer("h", torch.zeros(b, d))


class LstmLm(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d = sizes["d"]
        self.table = nn.Embedding(sizes["vocabulary"], d)
        self.layers = nn.ModuleList(Layer(sizes["b"], d) for _ in range(sizes["layers"]))
        self.head = nn.Linear(d, sizes["vocabulary"])

    def forward(self, tokens: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.table(tokens)
        for layer in self.layers:
            x, (h, c) = layer(x, (layer.h.clone()[None], layer.c.clone()[None]))
            layer.h.copy_(h[0].detach())
            layer.c.copy_(c[0].detach())
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten()), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    found = {"table": Place("table.weight"), "head": Place("head.weight"), "head_bias": Place("head.bias")}
    names = {"w": "weight_ih_l0", "u": "weight_hh_l0", "bias": "bias_ih_l0"}
    for layer in range(sizes["layers"]):
        found |= {f"layer.{layer}.cell.{own}": Place(f"layers.{layer}.{theirs}") for own, theirs in names.items()}
    return found


def buffers(sizes: Mapping[str, int]) -> dict[str, str]:
    states = [(layer, part) for layer in range(sizes["layers"]) for part in "ch"]
    return {f"layer.{layer}.cell.{part}_kept": f"layers.{layer}.{part}" for layer, part in states}

"""examples/candle_uno.udl and examples/candle_uno_unity.udl as a user of torch would write them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from .correspondence import Place, Places


def encoder(widths: list[int], bias: bool) -> nn.Sequential:
    """Dense layers from each width to the next, each followed by a relu."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts)


class Candle(nn.Module):
    """`encoders` has one encoder for each input, as in the artifact, or, if `shared`, one for each kind of feature."""

    def __init__(self, sizes: Mapping[str, int], shared: bool) -> None:
        super().__init__()
        h, depth = sizes["h"], sizes["layers" if shared else "depth"]
        widths = {"gene": sizes["genes"], "drug1": sizes["descriptors"], "print1": sizes["fingerprints"]}
        if not shared:
            widths |= {"drug2": sizes["descriptors"], "print2": sizes["fingerprints"]}
        self.encoders = nn.ModuleDict({name: encoder([width, *[h] * depth], shared) for name, width in widths.items()})
        self.second = {"drug2": "drug1", "print2": "print1"} if shared else {"drug2": "drug2", "print2": "print2"}
        self.top = encoder([5 * h + 2, *[h] * (depth if shared else sizes["top_depth"])], shared)
        self.out = nn.Linear(h, 1, bias=shared)
        self.error = nn.MSELoss()

    def forward(
        self,
        cell: Tensor,
        dose1: Tensor,
        dose2: Tensor,
        descriptors1: Tensor,
        fingerprints1: Tensor,
        descriptors2: Tensor,
        fingerprints2: Tensor,
        target: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        joined = [
            self.encoders["gene"](cell),
            dose1,
            dose2,
            self.encoders["drug1"](descriptors1),
            self.encoders["print1"](fingerprints1),
            self.encoders[self.second["drug2"]](descriptors2),
            self.encoders[self.second["print2"]](fingerprints2),
        ]
        y = self.out(self.top(torch.cat(joined, 1)))
        return self.error(y, target), {"y": y}


class CandleUno(Candle):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(sizes, shared=True)


class CandleUnoUnity(Candle):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(sizes, shared=False)


def places(sizes: Mapping[str, int]) -> Places:
    found = {"w_out": Place("out.weight"), "bias_out": Place("out.bias")}
    for name in ("gene", "drug1", "print1", "top"):
        found |= _layers(name, sizes["layers"], ("w", "weight"), ("bias", "bias"))
    return found


def places_unity(sizes: Mapping[str, int]) -> Places:
    found = {"w_out": Place("out.weight")}
    for name in ("gene", "drug1", "print1", "drug2", "print2"):
        found |= _layers(name, sizes["depth"], ("w", "weight"))
    return found | _layers("top", sizes["top_depth"], ("w", "weight"))


def _layers(name: str, depth: int, *parameters: tuple[str, str]) -> dict[str, Place]:
    theirs = name if name == "top" else f"encoders.{name}"
    found = {}
    for mine, other in parameters:
        found[f"{name}.{mine}_in"] = Place(f"{theirs}.0.{other}")
        for layer in range(1, depth):
            found[f"{name}.hidden.{layer - 1}.{mine}"] = Place(f"{theirs}.{2 * layer}.{other}")
    return found

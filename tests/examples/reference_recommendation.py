"""examples/dlrm.udl, dlrm_kaggle.udl, dlrm_unity.udl and xdl_unity.udl as a user of torch would write them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

TABLES = 26


def perceptron(widths: list[int], bias: bool) -> nn.Sequential:
    """Dense layers from each width to the next, with a relu between two of them."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class XdlUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(sizes["rows"], sizes["d"], mode="sum") for _ in range(4))
        self.top = perceptron([4 * sizes["d"], sizes["h"], sizes["h"], 2], bias=False)

    def forward(
        self, ids1: Tensor, ids2: Tensor, ids3: Tensor, ids4: Tensor, target: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        found = [table(ids) for table, ids in zip(self.tables, (ids1, ids2, ids3, ids4), strict=True)]
        y = self.top(torch.cat(found, 1)).sigmoid()
        return F.mse_loss(y, target), {"y": y}


class DlrmUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d = sizes["d"]
        self.tables = nn.ModuleList(nn.EmbeddingBag(sizes["rows"], d, mode="sum") for _ in range(4))
        self.bottom = perceptron([sizes["features"], d, d], bias=False)
        self.top = perceptron([5 * d, d, 2], bias=False)

    def forward(
        self, x: Tensor, ids1: Tensor, ids2: Tensor, ids3: Tensor, ids4: Tensor, target: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        found = [table(ids) for table, ids in zip(self.tables, (ids1, ids2, ids3, ids4), strict=True)]
        y = self.top(torch.cat([self.bottom(x), *found], 1)).sigmoid()
        return F.mse_loss(y, target), {"y": y}


class Dlrm(nn.Module):
    """The products of pairs are computed as in the authors' own program."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d = sizes["d"]
        self.tables = nn.ModuleList(nn.Embedding(sizes[f"rows{n + 1}"], d) for n in range(TABLES))
        self.bottom = perceptron([sizes["features"], *_widths(sizes, "h"), d], bias=True)
        self.top = perceptron([d + 351, *_widths(sizes, "t"), 1], bias=True)

    def forward(self, x: Tensor, target: Tensor, **ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        bottom = self.bottom(x).relu()
        found = [table(ids[f"ids{n + 1}"][:, 0]) for n, table in enumerate(self.tables)]
        rows = torch.stack([bottom, *found], 1)
        first, second = torch.tril_indices(TABLES + 1, TABLES + 1, -1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))[:, first, second]
        score = self.top(torch.cat([bottom, pairs], 1))
        return F.binary_cross_entropy_with_logits(score, target), {"click": score.sigmoid()}


def _widths(sizes: Mapping[str, int], letter: str) -> list[int]:
    """The sizes h1, h2, … (for letter `h`), as far as there are any."""
    return [sizes[f"{letter}{n}"] for n in range(1, 10) if f"{letter}{n}" in sizes]


def xdl_places(sizes: Mapping[str, int]) -> Places:
    return _tables(4) | _dense("top", 3, bias=False)


def dlrm_unity_places(sizes: Mapping[str, int]) -> Places:
    return _tables(4) | _dense("bottom", 2, bias=False) | _dense("top", 2, bias=False)


def dlrm_places(sizes: Mapping[str, int]) -> Places:
    bottom, top = (len(_widths(sizes, letter)) + 1 for letter in "ht")
    return _tables(TABLES) | _dense("bottom", bottom, bias=True) | _dense("top", top, bias=True)


def _tables(count: int) -> dict[str, Place]:
    return {f"table{n + 1}.w": Place(f"tables.{n}.weight") for n in range(count)}


def _dense(name: str, count: int, *, bias: bool) -> dict[str, Place]:
    found = {f"{name}{n + 1}.w": Place(f"{name}.{2 * n}.weight") for n in range(count)}
    return found | ({f"{name}{n + 1}.bias": Place(f"{name}.{2 * n}.bias") for n in range(count)} if bias else {})

"""examples/resnext50.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Unit(nn.Sequential):
    """A convolution without bias, and its norm."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs: int, c: int, stride: int, groups: int) -> None:
        super().__init__()
        self.narrow = Unit(inputs, c, 1)
        self.middle = Unit(c, c, 3, stride, groups)
        self.wide = Unit(c, 2 * c, 1)
        self.shortcut = Unit(inputs, 2 * c, 1, stride) if inputs != 2 * c else None

    def forward(self, x: Tensor) -> Tensor:
        f = self.wide(F.relu(self.middle(F.relu(self.narrow(x)))))
        return F.relu(f + (x if self.shortcut is None else self.shortcut(x)))


class ResNext50(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        width = sizes["width"]
        self.stem = Unit(3, width, 7, 2)
        self.stages = nn.ModuleList()
        inputs = width
        for stage in range(4):
            c, blocks = width * 2 ** (stage + 1), []
            for block in range(sizes[f"blocks_{stage + 1}"]):
                stride = 2 if stage and not block else 1
                blocks.append(Residual(inputs, c, stride, sizes["cardinality"]))
                inputs = 2 * c
            self.stages.append(nn.Sequential(*blocks))
        self.head = nn.Linear(inputs, sizes["classes"])

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        h = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for stage in self.stages:
            h = stage(h)
        logits = self.head(h.mean((2, 3)))
        return F.cross_entropy(logits, target), {"logits": logits}


def units(sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The name in the model and the name in the module of every convolution with its norm."""
    yield "stem", "stem"
    for stage in range(4):
        for block in range(sizes[f"blocks_{stage + 1}"]):
            theirs = f"stages.{stage}.{block}"
            ours = f"stage_{stage + 1}.{block - 1}" if block else f"stage_{stage + 1}_first"
            for name in ("narrow", "middle", "wide"):
                yield f"{ours}.f.{name}", f"{theirs}.{name}"
            if not block:
                yield f"{ours}.shortcut", f"{theirs}.shortcut"


def places(sizes: Mapping[str, int]) -> Places:
    found = {"w": Place("head.weight"), "bias": Place("head.bias")}
    for ours, theirs in units(sizes):
        found |= {f"{ours}.k": Place(f"{theirs}.0.weight")}
        found |= {f"{ours}.n.gain": Place(f"{theirs}.1.weight"), f"{ours}.n.bias": Place(f"{theirs}.1.bias")}
    return found


def buffers(sizes: Mapping[str, int]) -> dict[str, str]:
    found = {}
    for ours, theirs in units(sizes):
        found |= {f"{ours}.n.mean": f"{theirs}.1.running_mean", f"{ours}.n.variance": f"{theirs}.1.running_var"}
    return found

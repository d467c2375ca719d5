"""examples/nasnet_a.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Squeeze(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), norm(outputs))


class Shrink(nn.Module):
    """Halves the grid: one path reads the even positions, the other is shifted by one, with zeros beyond the end."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.norm = norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        joined: Tensor = self.norm(torch.cat([self.even(x[:, :, ::2, ::2]), self.odd(shifted[:, :, ::2, ::2])], 1))
        return joined


class Separable(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(inputs, inputs, size, stride, size // 2, groups=inputs, bias=False),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            norm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, size, 1, size // 2, groups=outputs, bias=False),
            nn.Conv2d(outputs, outputs, 1, bias=False),
            norm(outputs),
        )


class Normal(nn.Module):
    def __init__(self, inputs: int, before: int, f: int, larger: bool) -> None:
        super().__init__()
        self.prev = Shrink(before, f) if larger else Squeeze(before, f)
        self.cur = Squeeze(inputs, f)
        self.left_1, self.right_1 = Separable(f, f, 5), Separable(f, f, 3)
        self.left_2, self.right_2 = Separable(f, f, 5), Separable(f, f, 3)
        self.left_5 = Separable(f, f, 3)
        self.mean = nn.AvgPool2d(3, 1, 1)

    def forward(self, x: Tensor, prev: Tensor) -> Tensor:
        h, p = self.cur(x), self.prev(prev)
        blocks = (
            self.left_1(h) + self.right_1(p),
            self.left_2(p) + self.right_2(p),
            self.mean(h) + p,
            self.mean(p) + self.mean(p),
            self.left_5(h) + h,
        )
        return torch.cat([p, *blocks], 1)


class Reduction(nn.Module):
    """A reduction cell. `fit` adapts the tensor before the last one; for the first cell it does nothing."""

    def __init__(self, inputs: int, channels: int, f: int, fit: nn.Module) -> None:
        super().__init__()
        self.prev = fit
        self.cur = Squeeze(inputs, f)
        self.left_1, self.right_1 = Separable(f, f, 5, 2), Separable(channels, f, 7, 2)
        self.right_2 = Separable(channels, f, 7, 2)
        self.right_3 = Separable(channels, f, 5, 2)
        self.left_5 = Separable(f, f, 3)
        self.mean, self.mean_2, self.greatest = nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1)

    def forward(self, x: Tensor, prev: Tensor) -> Tensor:
        h, p = self.cur(x), self.prev(prev)
        one = self.left_1(h) + self.right_1(p)
        two = self.greatest(h) + self.right_2(p)
        three = self.mean_2(h) + self.right_3(p)
        return torch.cat([two, three, self.mean(one) + two, self.left_5(one) + self.greatest(h)], 1)


class NasnetA(nn.Module):
    """A cell reads the two before it. The first cell after a reduction cell reads that cell's prev, not its current
    input.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        stem, f = sizes["stem"], sizes["f"]
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), norm(stem))
        self.stem_1 = Reduction(stem, stem, f // 4, nn.Identity())
        self.stem_2 = Reduction(f, f // 2, f // 2, Shrink(stem, f // 2))
        self.stacks, self.reductions = nn.ModuleList(), nn.ModuleList()
        before, inputs = f, 2 * f
        for stack in range(3):
            width = f * 2**stack
            if stack:
                self.reductions.append(Reduction(inputs, width, width, Squeeze(before, width)))
                inputs = 4 * width
            cells = nn.ModuleList()
            for cell in range(sizes["cells"]):
                cells.append(Normal(inputs, before, width, cell == 0))
                before, inputs = inputs, 6 * width
            self.stacks.append(cells)
        self.dropout = nn.Dropout(sizes["dropout"])
        self.head = nn.Linear(inputs, sizes["classes"])

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        stem = self.stem(x)
        made = [self.stem_1(stem, stem)]
        made.append(self.stem_2(made[0], stem))
        for stack, cells in enumerate(self.stacks):
            prev = made[-2]
            if stack:
                made.append(self.reductions[stack - 1](made[-1], prev))
            for cell in cells.children():
                made.append(cell(made[-1], prev))
                prev = made[-2]
        logits = self.head(self.dropout(F.relu(made[-1]).mean((2, 3))))
        return F.cross_entropy(logits, target), {"logits": logits}


STACKS = ("first", "second", "third")
REDUCTIONS = ("stem_1", "stem_2", "halved", "quartered")
BRANCHES = {
    Normal: ("left_1", "right_1", "left_2", "right_2", "left_5"),
    Reduction: ("left_1", "right_1", "right_2", "right_3", "left_5"),
}


def cells(sizes: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """For every cell: its name in the model, the name of what adapts its prev there, and its name in the module."""
    for name, theirs in zip(REDUCTIONS, ("stem_1", "stem_2", "reductions.0", "reductions.1"), strict=True):
        yield name, f"{name}_prev", theirs
    for stack, name in enumerate(STACKS):
        for cell in range(sizes["cells"]):
            ours = f"{name}.{cell - 2}.cell" if cell > 1 else f"{name}_{cell}"
            fitted = f"{name}.{cell - 2}.fitted" if cell > 1 else f"{ours}_prev"
            yield ours, fitted, f"stacks.{stack}.{cell}"


def parts(sizes: Mapping[str, int]) -> tuple[dict[str, str], dict[str, str]]:
    """The names of every kernel and of every norm, in the model and in the module."""
    with torch.device("meta"):
        module = NasnetA(sizes)
    kernels, norms = {"k": "stem.0"}, {"stem_0": "stem.1"}
    for ours, fitted, theirs in cells(sizes):
        cell = module.get_submodule(theirs)
        squeezed = {f"{ours}.cur": f"{theirs}.cur"}
        match cell.prev:
            case Squeeze():
                squeezed[fitted] = f"{theirs}.prev"
            case Shrink():
                kernels |= {f"{fitted}.{path}": f"{theirs}.prev.{path}" for path in ("even", "odd")}
                norms[f"{fitted}.n"] = f"{theirs}.prev.norm"
        for name, place in squeezed.items():
            kernels[f"{name}.k"], norms[f"{name}.n"] = f"{place}.1", f"{place}.2"
        for branch in BRANCHES[type(cell)]:
            for half, first in (("outer", 1), ("inner", 5)):
                name = f"{ours}.{branch}.{half}"
                kernels[f"{name}.depth"] = f"{theirs}.{branch}.{first}"
                kernels[f"{name}.p.k"] = f"{theirs}.{branch}.{first + 1}"
                norms[f"{name}.p.n"] = f"{theirs}.{branch}.{first + 2}"
    return kernels, norms


def places(sizes: Mapping[str, int]) -> Places:
    kernels, norms = parts(sizes)
    found = {"w": Place("head.weight"), "bias": Place("head.bias")}
    found |= {ours: Place(f"{theirs}.weight") for ours, theirs in kernels.items()}
    for ours, theirs in norms.items():
        found |= {f"{ours}.gain": Place(f"{theirs}.weight"), f"{ours}.bias": Place(f"{theirs}.bias")}
    return found


def buffers(sizes: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for ours, theirs in parts(sizes)[1].items():
        found |= {f"{ours}.mean": f"{theirs}.running_mean", f"{ours}.variance": f"{theirs}.running_var"}
    return found

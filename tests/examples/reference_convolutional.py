"""examples/resnext50_unity.udl and inception_v3_unity.udl as a user of torch would write them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

Result = tuple[Tensor, dict[str, Tensor]]


class Bottleneck(nn.Module):
    def __init__(self, channels: int, c: int, stride: int, groups: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(channels, c, 1)
        self.grouped = nn.Conv2d(c, c, 3, stride=stride, padding=1, groups=groups)
        self.wide = nn.Conv2d(c, 2 * c, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.wide(self.grouped(self.narrow(x).relu()).relu())
        return found


class ResnextUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        c, groups = sizes["c"], sizes["groups"]
        self.first = nn.Conv2d(3, sizes["stem"], 7, stride=2, padding=3)
        self.stages = nn.ModuleList()
        channels = sizes["stem"]
        for stage, count in enumerate((3, sizes["stage2"], sizes["stage3"], 3)):
            blocks = nn.Sequential()
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(channels, c << stage, stride, groups))
                channels = 2 * c << stage
            self.stages.append(blocks)
        self.head = nn.Linear(channels, sizes["classes"])

    def forward(self, images: Tensor, target: Tensor) -> Result:
        x = F.max_pool2d(self.first(images).relu(), 3, 2, padding=1)
        for stage in self.stages:
            x = stage(x)
        logits = self.head(x.relu().mean((2, 3)))
        return F.cross_entropy(logits, target), {"logits": logits}


def resnext_unity_places(sizes: Mapping[str, int]) -> Places:
    found = {"head": Place("head.weight"), "head_bias": Place("head.bias")}
    found |= {"first.k": Place("first.weight"), "first.bias": Place("first.bias")}
    for stage, (name, count) in enumerate(
        (("one", 3), ("two", sizes["stage2"]), ("three", sizes["stage3"]), ("four", 3))
    ):
        for block in range(count):
            own = name if block == 0 else f"{name}s.{block - 1}.x"
            for part in ("narrow", "grouped", "wide"):
                found[f"{own}.{part}.k"] = Place(f"stages.{stage}.{block}.{part}.weight")
                found[f"{own}.{part}.bias"] = Place(f"stages.{stage}.{block}.{part}.bias")
    return found


def conv(channels: int, to: int, h: int, w: int) -> nn.Conv2d:
    return nn.Conv2d(channels, to, (h, w), padding="same")


class Cell(nn.Module):
    """Parallel branches of one input; with `activated`, a relu follows each convolution."""

    activated = False
    pool: nn.Module = nn.AvgPool2d(3, 1, 1)

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def run(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = self.get_submodule(name)(x)
            x = x.relu() if self.activated else x
        return x

    def branches(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.branches(x), 1)


class CellA(Cell):
    activated = True

    def __init__(self, channels: int, to: int, thin: int) -> None:
        a, b, c = 64 // thin, 48 // thin, 96 // thin
        super().__init__(
            a=conv(channels, a, 1, 1),
            b1=conv(channels, b, 1, 1),
            b2=conv(b, a, 5, 5),
            c1=conv(channels, a, 1, 1),
            c2=conv(a, c, 3, 3),
            c3=conv(c, c, 3, 3),
            d2=conv(channels, to, 1, 1),
        )

    def branches(self, x: Tensor) -> list[Tensor]:
        pooled = self.pool(x)
        return [self.run(x, "a"), self.run(x, "b1", "b2"), self.run(x, "c1", "c2", "c3"), self.run(pooled, "d2")]


class CellB(Cell):
    pool = nn.MaxPool2d(3, 2)

    def __init__(self, channels: int, thin: int) -> None:
        super().__init__(
            a=nn.Conv2d(channels, 384 // thin, 3, stride=2),
            b1=conv(channels, 64 // thin, 1, 1),
            b2=conv(64 // thin, 96 // thin, 3, 3),
            b3=nn.Conv2d(96 // thin, 96 // thin, 3, stride=2),
        )

    def branches(self, x: Tensor) -> list[Tensor]:
        return [self.run(x, "a"), self.run(x, "b1", "b2", "b3"), self.pool(x)]


class CellC(Cell):
    def __init__(self, channels: int, c: int, thin: int) -> None:
        to = 192 // thin
        super().__init__(
            a=conv(channels, to, 1, 1),
            b1=conv(channels, c, 1, 1),
            b2=conv(c, c, 1, 7),
            b3=conv(c, to, 7, 1),
            c1=conv(channels, c, 1, 1),
            c2=conv(c, c, 7, 1),
            c3=conv(c, c, 1, 7),
            c4=conv(c, c, 7, 1),
            c5=conv(c, to, 1, 7),
            d2=conv(channels, to, 1, 1),
        )

    def branches(self, x: Tensor) -> list[Tensor]:
        second, third = self.run(x, "b1", "b2", "b3"), self.run(x, "c1", "c2", "c3", "c4", "c5")
        return [self.run(x, "a"), second, third, self.run(self.pool(x), "d2")]


class CellD(Cell):
    pool = nn.MaxPool2d(3, 2)

    def __init__(self, channels: int, thin: int) -> None:
        c = 192 // thin
        super().__init__(
            a1=conv(channels, c, 1, 1),
            a2=nn.Conv2d(c, 320 // thin, 3, stride=2),
            b1=conv(channels, c, 1, 1),
            b2=conv(c, c, 1, 7),
            b3=conv(c, c, 7, 1),
            b4=nn.Conv2d(c, c, 3, stride=2),
        )

    def branches(self, x: Tensor) -> list[Tensor]:
        return [self.run(x, "a1", "a2"), self.run(x, "b1", "b2", "b3", "b4"), self.pool(x)]


class CellE(Cell):
    def __init__(self, channels: int, thin: int) -> None:
        c = 384 // thin
        super().__init__(
            a=conv(channels, 320 // thin, 1, 1),
            s=conv(channels, c, 1, 1),
            s1=conv(c, c, 1, 3),
            s2=conv(c, c, 3, 1),
            t0=conv(channels, 448 // thin, 1, 1),
            t=conv(448 // thin, c, 3, 3),
            t1=conv(c, c, 1, 3),
            t2=conv(c, c, 3, 1),
            d2=conv(channels, 192 // thin, 1, 1),
        )

    def branches(self, x: Tensor) -> list[Tensor]:
        s, t = self.run(x, "s"), self.run(x, "t0", "t")
        ends = [self.run(s, "s1"), self.run(s, "s2"), self.run(t, "t1"), self.run(t, "t2")]
        return [self.run(x, "a"), *ends, self.run(self.pool(x), "d2")]


class InceptionUnity(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        thin = sizes["thin"]
        width = {c: c // thin for c in (32, 64, 80, 128, 160, 192, 256, 288, 768, 1280, 2048)}
        self.stem1 = nn.Conv2d(3, width[32], 3, stride=2)
        self.stem2 = nn.Conv2d(width[32], width[32], 3)
        self.stem3 = nn.Conv2d(width[32], width[64], 3, padding=1)
        self.stem4 = nn.Conv2d(width[64], width[80], 1)
        self.stem5 = nn.Conv2d(width[80], width[192], 3, padding=1)
        self.cells = nn.ModuleDict(
            {
                "a1": CellA(width[192], width[32], thin),
                "a2": CellA(width[256], width[64], thin),
                "a3": CellA(width[288], width[64], thin),
                "b1": CellB(width[288], thin),
                "c1": CellC(width[768], width[128], thin),
                "c2": CellC(width[768], width[160], thin),
                "c3": CellC(width[768], width[160], thin),
                "c4": CellC(width[768], width[192], thin),
                "d1": CellD(width[768], thin),
                "e1": CellE(width[1280], thin),
                "e2": CellE(width[2048], thin),
            }
        )
        self.head = nn.Linear(width[2048], sizes["classes"])

    def forward(self, images: Tensor, target: Tensor) -> Result:
        x = self.stem3(self.stem2(self.stem1(images).relu()).relu()).relu()
        x = self.stem5(self.stem4(F.max_pool2d(x, 3, 2)).relu()).relu()
        x = F.max_pool2d(x, 3, 2)
        for cell in self.cells.values():
            x = cell(x)
        logits = self.head(x.mean((2, 3)))
        return F.cross_entropy(logits, target), {"logits": logits}


def inception_unity_places(sizes: Mapping[str, int]) -> Places:
    with torch.device("meta"):
        module = InceptionUnity(sizes)
    found = {"head": Place("head.weight"), "head_bias": Place("head.bias")}
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv2d):
            own = name.removeprefix("cells.")
            own += ".y" if own[0] in "as" and own[1] != "." else ""
            found |= {f"{own}.k": Place(f"{name}.weight"), f"{own}.bias": Place(f"{name}.bias")}
    return found

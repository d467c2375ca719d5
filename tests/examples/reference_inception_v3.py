"""examples/inception_v3.udl as a user of torch would write it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Unit(nn.Module):
    """A convolution without bias, its norm and relu; `size` is one number or height and width."""

    def __init__(
        self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, pad: int | tuple[int, int] = 0
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, pad, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.convolution(x)))


def around(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1)


class A(nn.Module):
    def __init__(self, u: int, inputs: int, pool: int) -> None:
        super().__init__()
        self.a = Unit(inputs, 4 * u, 1)
        self.b = nn.Sequential(Unit(inputs, 3 * u, 1), Unit(3 * u, 4 * u, 5, pad=2))
        self.d = nn.Sequential(Unit(inputs, 4 * u, 1), Unit(4 * u, 6 * u, 3, pad=1), Unit(6 * u, 6 * u, 3, pad=1))
        self.p = Unit(inputs, pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), self.d(x), self.p(around(x))], 1)


class B(nn.Module):
    def __init__(self, u: int, inputs: int) -> None:
        super().__init__()
        self.a = Unit(inputs, 24 * u, 3, 2)
        self.b = nn.Sequential(Unit(inputs, 4 * u, 1), Unit(4 * u, 6 * u, 3, pad=1), Unit(6 * u, 6 * u, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), F.max_pool2d(x, 3, 2)], 1)


def across(inputs: int, outputs: int) -> Unit:
    return Unit(inputs, outputs, (1, 7), pad=(0, 3))


def down(inputs: int, outputs: int) -> Unit:
    return Unit(inputs, outputs, (7, 1), pad=(3, 0))


class C(nn.Module):
    def __init__(self, u: int, c: int) -> None:
        super().__init__()
        inputs, outputs = 48 * u, 12 * u
        self.a = Unit(inputs, outputs, 1)
        self.b = nn.Sequential(Unit(inputs, c, 1), across(c, c), down(c, outputs))
        self.d = nn.Sequential(Unit(inputs, c, 1), down(c, c), across(c, c), down(c, c), across(c, outputs))
        self.p = Unit(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), self.d(x), self.p(around(x))], 1)


class D(nn.Module):
    def __init__(self, u: int) -> None:
        super().__init__()
        c = 12 * u
        self.a = nn.Sequential(Unit(48 * u, c, 1), Unit(c, 20 * u, 3, 2))
        self.b = nn.Sequential(Unit(48 * u, c, 1), across(c, c), down(c, c), Unit(c, c, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), F.max_pool2d(x, 3, 2)], 1)


class Forked(nn.Module):
    """1 x 3 and 3 x 1 convolutions of the same tensor, concatenated."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.wide = Unit(c, c, (1, 3), pad=(0, 1))
        self.high = Unit(c, c, (3, 1), pad=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.wide(x), self.high(x)], 1)


class E(nn.Module):
    def __init__(self, u: int, inputs: int) -> None:
        super().__init__()
        self.a = Unit(inputs, 20 * u, 1)
        self.b = nn.Sequential(Unit(inputs, 24 * u, 1), Forked(24 * u))
        self.d = nn.Sequential(Unit(inputs, 28 * u, 1), Unit(28 * u, 24 * u, 3, pad=1), Forked(24 * u))
        self.p = Unit(inputs, 12 * u, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), self.d(x), self.p(around(x))], 1)


class InceptionV3(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        u, classes = sizes["u"], sizes["classes"]
        self.sizes = sizes
        self.stem = nn.Sequential(
            Unit(3, 2 * u, 3, 2),
            Unit(2 * u, 2 * u, 3),
            Unit(2 * u, 4 * u, 3, pad=1),
            nn.MaxPool2d(3, 2),
            Unit(4 * u, 5 * u, 1),
            Unit(5 * u, 12 * u, 3),
            nn.MaxPool2d(3, 2),
        )
        middle = [A(u, 12 * u, 2 * u), A(u, 16 * u, 4 * u), A(u, 18 * u, 4 * u), B(u, 18 * u)]
        self.middle = nn.Sequential(*middle, *(C(u, c * u) for c in (8, 10, 10, 12)))
        self.end = nn.Sequential(D(u), E(u, 80 * u), E(u, 128 * u))
        self.head = nn.Linear(128 * u, classes)
        self.aux = nn.Sequential(Unit(48 * u, 8 * u, 1), Unit(8 * u, 48 * u, sizes["aux_kernel"]))
        self.aux_head = nn.Linear(48 * u, classes)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        h = self.middle(self.stem(x))
        logits = self.head(self.end(h).mean((2, 3)))
        aux = self.aux(F.avg_pool2d(h, self.sizes["aux_pool"], self.sizes["aux_stride"])).mean((2, 3))
        loss = F.cross_entropy(logits, target) + 0.4 * F.cross_entropy(self.aux_head(aux), target)
        return loss, {"logits": logits}


# The convolutions of every block in the order of the text, as the model names them: `y` is a block's own result.
STEM = ("stem_1.y", "stem_2", "stem_3.y", "stem_4.y", "stem_5")
BLOCKS = {
    "a": ("a.y", "b_1.y", "b_2", "d_1.y", "d_2.y", "d_3.y", "p.y.y"),
    "b": ("a.y", "b_1.y", "b_2.y", "b_3.y"),
    "c": ("a.y", "b_1.y", "b_2.y", "b_3.y", *(f"d_{n}.y" for n in range(1, 6)), "p.y.y"),
    "d": ("a_1.y", "a_2.y", *(f"b_{n}.y" for n in range(1, 5))),
    "e": ("a.y", "b_1.y", "b_2.wide", "b_2.high", "d_1.y", "d_2.y", "d_3.wide", "d_3.high", "p.y.y"),
}
ORDER = ("a_1", "a_2", "a_3", "b_1", "c_1", "c_2", "c_3", "c_4", "d_1", "e_1", "e_2")


def units(sizes: Mapping[str, int]) -> dict[str, str]:
    """The name in the model and the name in the module of every convolution with its norm."""
    ours = [*STEM, *(f"{block}.{name}" for block in ORDER for name in BLOCKS[block[0]]), "aux.a_1.y", "aux.a_2"]
    with torch.device("meta"):
        module = InceptionV3(sizes)
    theirs = [name for name, part in module.named_modules() if isinstance(part, Unit)]
    return dict(zip(ours, theirs, strict=True))


def places(sizes: Mapping[str, int]) -> Places:
    found = {"w": Place("head.weight"), "bias": Place("head.bias")}
    found |= {"aux.w": Place("aux_head.weight"), "aux.bias": Place("aux_head.bias")}
    for ours, theirs in units(sizes).items():
        found |= {f"{ours}.k": Place(f"{theirs}.convolution.weight")}
        found |= {f"{ours}.n.gain": Place(f"{theirs}.norm.weight"), f"{ours}.n.bias": Place(f"{theirs}.norm.bias")}
    return found


def buffers(sizes: Mapping[str, int]) -> dict[str, str]:
    found = {}
    for ours, theirs in units(sizes).items():
        found |= {f"{ours}.n.mean": f"{theirs}.norm.running_mean", f"{ours}.n.variance": f"{theirs}.norm.running_var"}
    return found

"""Modules whose code cannot be captured, with the blocks that replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unity_dsl as u

from .modules import Example


class Decay(nn.Module):
    """States that decay at every position and are added to, in a loop that depends on values."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.states = states
        self.rate, self.weight = nn.Parameter(torch.randn(width, states)), nn.Parameter(torch.randn(width))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, input: Tensor, kept: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        state, shown = x.new_zeros(*x.shape[::2], self.states), []
        for place in range(x.shape[1]):
            if float(x[:, place].detach().square().sum()) > -1:
                state = state * torch.exp(-input[:, place, :, None] * self.rate.exp()) + x[:, place, :, None]
            shown.append(state.sum(-1))
        return self.out(torch.stack(shown, 1)) * self.weight * kept[..., None], state


TEXT = """\
## Sums that decay along the sequence.
block decay[n](x, input_, rate, weight_, out_weight, out_bias, kept)
  h = start_state(x[b, s, d] -> [b, d, s, 1]; size=n)
  rates = exp(rate)
  scan x_t in x along 1, t in input_ along 1 as step
    h = h * exp(-(t[b, d] -> [b, d, 1]) * rates) + (x_t[b, d] -> [b, d, 1])
    collect reduce_sum(h[b, d, n] -> [b, d]) as shown along 1
  y = linear_bias(shown, out_weight, out_bias) * weight_
  return choose(kept[b, s] -> [b, s, 1], y, y * 0), h
"""


@u.replaces(Decay)
def decay(module: Decay) -> u.Block:
    return u.Block(TEXT, n=module.states)


class Decays(nn.Module):
    """Two modules like `Decay`; the second reads the output of the first."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.way, self.first, self.second = nn.Linear(6, 8), first, second

    def forward(self, x: Tensor, tokens: Tensor, target: Tensor) -> Tensor:
        h = self.way(x)
        y, _ = self.first(h, torch.sigmoid(h), kept=tokens > 1)
        z, state = self.second(h + y, torch.sigmoid(y), kept=tokens > 1)
        return F.mse_loss(z, target) + state.square().mean()


def batch(length: int = 5) -> dict[str, Tensor]:
    shape = 2, length
    return {"x": torch.randn(*shape, 6), "tokens": torch.randint(4, shape), "target": torch.randn(*shape, 8)}


def of_class(kind: Callable[[int, int], nn.Module], length: int = 5) -> Example:
    torch.manual_seed(0)
    return Decays(kind(8, 3), kind(8, 3)), batch(length)


def variant(function: Callable[[Any], Any], **members: Any) -> type[Decay]:
    """A subclass of `Decay` for which another function is registered."""
    kind: type[Decay] = type("Variant", (Decay,), members)
    u.replaces(kind)(function)
    return kind


def decays() -> Example:
    return of_class(Decay)


Slower = variant(lambda module: u.Block(TEXT.replace("-(t", "-0.99 * (t"), n=3))


def slower() -> Example:
    return of_class(Slower)


class Pairs(nn.Module):
    """Takes a tuple and class indices, and returns a dict in which not all values are tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, pair: tuple[Tensor, Tensor], codes: Tensor, **others: Any) -> dict[str, Any]:
        return {"none": None, "y": pair[0] * pair[1] + self.table(codes) + self.shift, "scale": others["scale"]}


@u.replaces(Pairs)
def pairs(module: Pairs) -> u.Block:
    text = """\
block pairs(pair_0, pair_1, codes, table_weight, shift)
  return pair_0 * pair_1 + embedding(codes, table_weight) + shift
"""
    return u.Block(text, bounds={"codes": module.table.num_embeddings})


class Paired(nn.Module):
    """Passes a tensor that is expanded along a dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.pairs = nn.Linear(4, 4), Pairs()

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        made = self.pairs((self.way(x), self.way(x[:, :1]).expand_as(x)), codes, scale=2.0)
        total: Tensor = made["y"].square().mean() * made["scale"]
        return total


def paired() -> Example:
    torch.manual_seed(0)
    return Paired(), {"x": torch.randn(2, 3, 4), "codes": torch.randint(5, (2, 3))}


class Router(nn.Module):
    """The two best classes of each position, and their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(4, 5, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores, found = self.classes(x).topk(2)
        return found, scores


@u.replaces(Router)
def router(module: Router) -> u.Block:
    text = """\
block router[count](x, classes_weight)
  scores = linear(x, classes_weight)
  found = top_k(scores; count=count)
  return found, gather(scores, found; dim=2)
"""
    return u.Block(text, count=2)


class Routed(nn.Module):
    """Reads a table at indices that a block returns."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.router, self.table = nn.Linear(4, 4), Router(), nn.Embedding(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        found, scores = self.router(self.way(x))
        return (self.table(found) * scores[..., None]).square().mean()


def routed() -> Example:
    torch.manual_seed(0)
    return Routed(), {"x": torch.randn(2, 3, 4)}

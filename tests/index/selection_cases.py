"""Cases of operators that select, order and place elements, and of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from .operand_cases import Case, Random, any_shape, normal, sizes


def few(random: Random, *shape: int) -> torch.Tensor:
    """Numbers with many ties."""
    return torch.from_numpy(random.integers(-2, 3, shape).astype(float))


def integers(random: Random, bound: int, *shape: int) -> torch.Tensor:
    return torch.as_tensor(random.integers(0, bound, shape))


def top_k(random: Random) -> Case:
    (c,) = sizes(random, 1)
    count = int(random.integers(1, c + 1))

    def reference(x: torch.Tensor) -> torch.Tensor:
        """The first `count` positions of each row, sorted by descending element, then by position."""
        rows = [sorted(range(c), key=lambda n, row=row: (-row[n], n))[:count] for row in x.reshape(-1, c).tolist()]
        return torch.tensor(rows).reshape(*x.shape[:-1], count)

    return Case([few(random, *any_shape(random), c)], reference, {"count": count})


def sort(random: Random) -> Case:
    (c,) = sizes(random, 1)

    def reference(x: torch.Tensor) -> torch.Tensor:
        rows = [sorted(range(c), key=lambda n, row=row: (row[n], n)) for row in x.reshape(-1, c).tolist()]
        return torch.tensor(rows).reshape(x.shape)

    return Case([few(random, *any_shape(random), c)], reference)


def along(random: Random) -> tuple[torch.Tensor, torch.Tensor, int]:
    """A tensor, positions along one of its dimensions, and that dimension."""
    shape = sizes(random, int(random.integers(1, 4)))
    dim = int(random.integers(-len(shape), len(shape)))
    other = list(shape)
    other[dim] = int(random.integers(1, 6))
    return normal(random, *shape), integers(random, shape[dim], *other), dim


def gather(random: Random) -> Case:
    x, i, dim = along(random)
    return Case([x, i], lambda x, i: torch.gather(x, dim, i), {"dim": dim}, {1: x.shape[dim]})


def scatter_add(random: Random) -> Case:
    x, i, dim = along(random)
    inputs = [x, i, normal(random, *i.shape)]
    return Case(inputs, lambda x, i, v: torch.scatter_add(x, dim, i, v), {"dim": dim}, {1: x.shape[dim]})


def one_hot(random: Random) -> Case:
    (c,) = sizes(random, 1)
    return Case([integers(random, c, *any_shape(random))], lambda i: F.one_hot(i, c), ranges={0: c})


def cumsum(random: Random) -> Case:
    x, _, dim = along(random)
    return Case([x], lambda x: torch.cumsum(x, dim), {"dim": dim})


Choices = tuple[torch.Tensor, torch.Tensor, int]


def queue(i: torch.Tensor, experts: int) -> torch.Tensor:
    """The place of each choice in its expert's queue, ordered by group, then choice, then token."""
    places = torch.zeros_like(i)
    for group in range(i.shape[0]):
        taken = [0] * experts
        for choice in range(i.shape[2]):
            for token in range(i.shape[1]):
                expert = int(i[group, token, choice])
                places[group, token, choice] = taken[expert]
                taken[expert] += 1
    return places


def choices(random: Random) -> Choices:
    """The experts that groups of tokens choose, the places of these choices, and the number of experts."""
    g, s, k, e = sizes(random, 4)
    i = integers(random, e, g, s, k)
    return i, queue(i, e), e


def expert_places(random: Random) -> Case:
    i, _, e = choices(random)
    return Case([i], lambda i: queue(i, e), ranges={0: e})


def dispatch(random: Random) -> Case:
    (i, p, e), (d, capacity) = choices(random), sizes(random, 2)
    g, s, k = i.shape

    def reference(x: torch.Tensor, i: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(e, g, capacity, d, dtype=x.dtype)
        for group, token, choice in np.ndindex(g, s, k):
            if p[group, token, choice] < capacity:
                y[i[group, token, choice], group, p[group, token, choice]] += x[group, token]
        return y

    return Case([normal(random, g, s, d), i, p], reference, {"capacity": capacity}, {1: e, 2: s * k})


def expert_linear(random: Random) -> Case:
    e, i, o = sizes(random, 3)
    inputs = [normal(random, e, *any_shape(random), i), normal(random, e, o, i)]
    return Case(inputs, lambda x, w: torch.stack([F.linear(*part) for part in zip(x, w, strict=True)]))


def combine_experts(random: Random) -> Case:
    (i, p, e), (d, capacity) = choices(random), sizes(random, 2)
    g, s, k = i.shape

    def reference(y: torch.Tensor, i: torch.Tensor, p: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        z = torch.zeros(g, s, d, dtype=y.dtype)
        for group, token, choice in np.ndindex(g, s, k):
            if p[group, token, choice] < capacity:
                z[group, token] += w[group, token, choice] * y[i[group, token, choice], group, p[group, token, choice]]
        return z

    inputs = [normal(random, e, g, capacity, d), i, p, normal(random, g, s, k)]
    return Case(inputs, reference, ranges={1: e, 2: s * k})


def expert_balance(random: Random) -> Case:
    i, _, e = choices(random)
    r = torch.softmax(normal(random, *i.shape[:2], e), -1)

    def reference(r: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        share = F.one_hot(i, e).double().sum(2).mean((0, 1))
        return e * (share * r.mean((0, 1))).sum()

    return Case([r, i], reference, ranges={1: e})


SELECTION_CASES: dict[str, Callable[[Random], Case]] = {
    "top_k": top_k,
    "sort": sort,
    "gather": gather,
    "scatter_add": scatter_add,
    "one_hot": one_hot,
    "cumsum": cumsum,
    "expert_places": expert_places,
    "dispatch": dispatch,
    "expert_linear": expert_linear,
    "combine_experts": combine_experts,
    "expert_balance": expert_balance,
}

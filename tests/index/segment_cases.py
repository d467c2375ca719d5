"""Cases of segment operators, whose members depend on data, against dense torch references over all pairs of segment
and entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

SEGMENTS = """
op segment_softmax(s: [e, h], to: int<v>[e]) -> a: [e, h]
  m[v, h] = max(e) select(v == to[e], s[e, h], -inf)
  g[e, h] = sum(v) [v == to[e]] * select(m[v, h] > -1e30, m[v, h], 0)
  x[e, h] = exp(s[e, h] - g[e, h])
  z[v, h] = sum(e) [v == to[e]] * x[e, h]
  w[e, h] = sum(v) [v == to[e]] * z[v, h]
  a[e, h] = x[e, h] / w[e, h]

op segment_max(x: [e, h], to: int<v>[e]) -> y: [v, h]
  m[v, h] = max(e) select(v == to[e], x[e, h], -inf)
  y[v, h] = select(m[v, h] > -1e30, m[v, h], 0)

op segment_min(x: [b, e, k], to: int<v>[b, e]) -> y: [b, v]
  m[b, v] = min(e, k) select(v == to[b, e], x[b, e, k] * x[b, e, k], inf)
  y[b, v] = select(m[b, v] < 1e30, m[b, v], 0)

op segment_log_sum(x: [b, e, h], to: int<v>[e]) -> y: [b, v, h]
  m[b, v, h] = max(e) select(v == to[e], x[b, e, h], -inf)
  g[b, v, h] = select(m[b, v, h] > -1e30, m[b, v, h], 0)
  c[b, e, h] = sum(v) [v == to[e]] * g[b, v, h]
  z[b, v, h] = sum(e) [v == to[e]] * exp(x[b, e, h] - c[b, e, h])
  y[b, v, h] = select(z[b, v, h] > 0, log(select(z[b, v, h] > 0, z[b, v, h], 1)) + g[b, v, h], 0)

op segment_mean(x: [e, h], to: int<v>[e]) -> y: [v, h]
  c[v] = sum(e) [v == to[e]]
  y[v, h] = (sum(e) [v == to[e]] * x[e, h]) / select(c[v] > 0, c[v], 1)

op cell_max(x: [e, h], row: int<r>[e], col: int<c>[e]) -> y: [r, c, h]
  m[r, c, h] = max(e) select(r == row[e], select(c == col[e], x[e, h], -inf), -inf)
  y[r, c, h] = select(m[r, c, h] > -1e30, m[r, c, h], -1)

op valid_max(x: [e, h], to: int<v>[e], valid: int<u>[e]) -> y: [v, h]
  m[v, h] = max(e) select(valid[e] > 0, select(to[e] == v, x[e, h], -inf), -inf)
  y[v, h] = select(m[v, h] > -1e30, m[v, h], 0)

op shifted_max(x: [e], to: int<v>[e]) -> y: [v]
  m[v] = max(e) select(v == to[e] + 1, x[e], -inf)
  y[v] = select(m[v] > -1e30, m[v], 0)

op gather_max(x: [v, h], to: int<v>[e]) -> y: [e, h]
  y[e, h] = max(v) select(v == to[e], x[v, h] * 3, -inf)
"""


@dataclass(frozen=True)
class Integers:
    """Random integers below `bound`."""

    bound: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Segments:
    """An operator's operands (floats by their shapes), and the same in torch. `dense` is the size over all pairs."""

    operands: tuple[tuple[int, ...] | Integers, ...]
    reference: Callable[..., Tensor]
    dense: int


def members(to: Tensor, count: int) -> Tensor:
    """Whether each entry belongs to each segment: [..., segments, entries]."""
    return to[..., None, :] == torch.arange(count)[:, None]


def greatest(x: Tensor, of: Tensor, fill: float = 0.0) -> Tensor:
    """The maximum of each segment's rows of x [..., e, h], as [..., v, h]. Equal maxima share the gradient equally."""
    found = torch.where(of[..., None], x[..., None, :, :], -inf).amax(-2)
    return torch.where(found > -inf, found, fill)


def log_sum(x: Tensor, to: Tensor) -> Tensor:
    of = members(to, 5)
    found = torch.where(of[..., None], x[:, None], -inf).logsumexp(-2)
    return torch.where(of.any(-1)[:, None], found, 0)


def softmax(s: Tensor, to: Tensor) -> Tensor:
    x = s.exp()
    return x / torch.zeros(5, s.shape[1], dtype=s.dtype).index_add(0, to, x)[to]


def mean(x: Tensor, to: Tensor) -> Tensor:
    of = members(to, 5).to(x.dtype)
    return (of @ x) / of.sum(-1).clamp(min=1)[:, None]


def cells(x: Tensor, row: Tensor, col: Tensor) -> Tensor:
    of = members(row, 3)[:, None] & members(col, 2)
    return greatest(x, of.flatten(0, 1), -1.0).unflatten(0, (3, 2))


def least(x: Tensor, to: Tensor) -> Tensor:
    flat = (-x * x).flatten(1)[..., None]
    return -greatest(flat, members(to.repeat_interleave(x.shape[2], 1), 4))[..., 0]


TO = Integers(5, (9,))
CASES = {
    "segment_softmax": Segments(((9, 2), TO), softmax, 90),
    "segment_max": Segments(((9, 2), TO), lambda x, to: greatest(x, members(to, 5)), 90),
    "segment_min": Segments(((2, 9, 3), Integers(4, (2, 9))), least, 216),
    "segment_log_sum": Segments(((2, 9, 3), TO), log_sum, 270),
    "segment_mean": Segments(((9, 2), TO), mean, 90),
    "cell_max": Segments(((9, 2), Integers(3, (9,)), Integers(2, (9,))), cells, 108),
    "valid_max": Segments(
        ((9, 2), TO, Integers(2, (9,))), lambda x, to, valid: greatest(x, members(to, 5) & (valid > 0)), 90
    ),
    "shifted_max": Segments(((9,), TO), lambda x, to: greatest(x[:, None], members(to + 1, 5))[:, 0], 45),
    "gather_max": Segments(((5, 2), TO), lambda x, to: 3 * x[to], 90),
}

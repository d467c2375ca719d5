"""Cases of attention and of the cells of recurrent networks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .operand_cases import Case, Random, Tensors, any_shape, normal, sizes


def lstm_cell(random: Random) -> Case:
    shape, (d,) = any_shape(random), sizes(random, 1)

    def reference(z: torch.Tensor, c: torch.Tensor) -> Tensors:
        """torch's own cell with weights of 0; the bias is z, the sums of the gates."""
        rows = []
        for gates, state in zip(z.reshape(-1, 4, d), c.reshape(-1, d), strict=True):
            zeros = (gates.new_zeros(4 * d, 1), gates.new_zeros(4 * d, d), gates.flatten(), gates.new_zeros(4 * d))
            rows.append(torch.lstm_cell(gates.new_zeros(1, 1), (gates.new_zeros(1, d), state[None]), *zeros))
        return [torch.cat([row[part] for row in rows]).reshape(c.shape) for part in (1, 0)]

    return Case([normal(random, *shape, 4, d), normal(random, *shape, d)], reference)


def attention(kind: str) -> Callable[[Random], Case]:
    """`causal`, `masked`, `padded` or `full` attention, against explicit matrix products and a softmax."""

    def made(random: Random) -> Case:
        b, heads, groups, s, t, k, v = sizes(random, 7)
        seen = random.integers(0, 2, (b, s, t))
        seen[..., 0] = 1  # at least one key for every query
        mask = torch.as_tensor(seen)
        padding = torch.as_tensor(random.integers(0, 2, (b, t)))  # all keys may be padding
        everything = torch.ones(s, t)
        keep = {"causal": everything.tril(), "masked": mask[:, None]}.get(kind, everything)

        def reference(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
            scores = (q @ key.transpose(-2, -1) / k**0.5).masked_fill(keep == 0, -torch.inf)
            if kind == "padded":
                scores = scores - 10_000 * (padding == 0)[:, None, None]
            return torch.softmax(scores, -1) @ value

        inputs = [
            normal(random, b, heads * groups, s, k),
            normal(random, b, heads, t, k),
            normal(random, b, heads, t, v),
        ]
        integers = {"masked": [mask], "padded": [padding]}.get(kind, [])
        return Case([*inputs, *integers], reference, ranges=dict.fromkeys(range(3, 3 + len(integers)), 2))

    return made


def window_attention(random: Random) -> Case:
    """Sliding-window attention, against explicit products and a softmax over the keys in the window."""
    b, heads, groups, s, k, v = sizes(random, 6)
    window = int(random.integers(1, 5))
    keep = torch.ones(s, s).tril().triu(1 - window)

    def reference(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        scores = (q @ key.transpose(-2, -1) / k**0.5).masked_fill(keep == 0, -torch.inf)
        return torch.softmax(scores, -1) @ value

    shapes = (b, heads * groups, s, k), (b, heads, s, k), (b, heads, s, v)
    return Case([normal(random, *shape) for shape in shapes], reference, {"window": window})


def biased_attention(random: Random) -> Case:
    b, heads, groups, s, t, k, v = sizes(random, 7)

    def reference(q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        return torch.softmax(q @ key.transpose(-2, -1) / k**0.5 + bias, -1) @ value

    shapes = (b, heads * groups, s, k), (b, heads, t, k), (b, heads, t, v), (heads * groups, s, t)
    return Case([normal(random, *shape) for shape in shapes], reference)


def gru_cell(random: Random) -> Case:
    shape, (d,) = any_shape(random), sizes(random, 1)

    def reference(x: torch.Tensor, u: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """torch's own cell with weights of 0; the biases are the sums of the gates."""
        rows = []
        for own, given, state in zip(x.reshape(-1, 3 * d), u.reshape(-1, 3 * d), h.reshape(-1, d), strict=True):
            zeros = own.new_zeros(1, 1), state[None], own.new_zeros(3 * d, 1), own.new_zeros(3 * d, d)
            rows.append(torch.gru_cell(*zeros, own, given))
        return torch.cat(rows).reshape(h.shape)

    return Case([normal(random, *shape, 3, d), normal(random, *shape, 3, d), normal(random, *shape, d)], reference)


def start_state(random: Random) -> Case:
    shape, (s, i, d) = any_shape(random), sizes(random, 3)
    return Case([normal(random, *shape, s, i)], lambda x: (0 * x.sum()).expand(*shape, d).clone(), {"size": d})


def tail(random: Random) -> Case:
    (kept, more) = sizes(random, 2)
    return Case(
        [],
        lambda: torch.cat([torch.zeros(kept), torch.full((more,), -torch.inf)]).double(),
        {"size": kept + more, "kept": kept},
    )


ATTENTION_CASES: dict[str, Callable[[Random], Case]] = {
    "full_attention": attention("full"),
    "causal_attention": attention("causal"),
    "masked_attention": attention("masked"),
    "padded_attention": attention("padded"),
    "window_attention": window_attention,
    "biased_attention": biased_attention,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "start_state": start_state,
    "tail": tail,
}

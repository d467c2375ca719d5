"""examples/mixtral_8x7b.udl as a user of torch would write it: a loop over tokens and their experts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

BASE = 1_000_000
COEFFICIENT = 0.02


def turned(x: Tensor) -> Tensor:
    """Rotary positions: the two halves of a head's features are the parts of complex numbers."""
    length, features = x.shape[-2:]
    half = features // 2
    angles = torch.arange(length)[:, None] * BASE ** (-2 * torch.arange(half, dtype=x.dtype) / features)
    found = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([found.real, found.imag], dim=-1)


class Mixture(nn.Module):
    """Two experts for each token. An expert takes `capacity` tokens of a sequence, first choices first."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, hidden, self.count = sizes["d"], sizes["hidden"], sizes["experts"]
        self.capacity = sizes["capacity"]
        self.gate = nn.Linear(d, self.count, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.zeros(self.count, hidden, d)) for _ in range(2))
        self.w2 = nn.Parameter(torch.zeros(self.count, d, hidden))
        self.dropped = 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.gate(x)
        best, chosen = scores.topk(2, dim=-1)
        weights = torch.softmax(best, -1)
        rows = []
        for sequence in range(x.shape[0]):
            sums = torch.zeros_like(x[sequence])
            room = [self.capacity] * self.count
            for choice in range(2):
                for token in range(x.shape[1]):
                    expert = int(chosen[sequence, token, choice])
                    if room[expert] == 0:
                        self.dropped += 1
                        continue
                    room[expert] -= 1
                    made = weights[sequence, token, choice] * self.run(expert, x[sequence, token])
                    sums = sums.index_add(0, torch.tensor([token]), made[None])
            rows.append(sums)
        share = F.one_hot(chosen, self.count).to(x.dtype).sum(2).mean((0, 1))
        return torch.stack(rows), self.count * (share * torch.softmax(scores, -1).mean((0, 1))).sum()

    def run(self, expert: int, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.w1[expert])) * F.linear(x, self.w3[expert]), self.w2[expert])


class Layer(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, self.heads, self.shared = sizes["d"], sizes["heads"], sizes["shared"]
        self.features = d // self.heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.wq, self.wo = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.wk, self.wv = (nn.Linear(d, self.shared * self.features, bias=False) for _ in range(2))
        self.moe = Mixture(sizes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.attention_norm(x))
        made, balance = self.moe(self.ffn_norm(x))
        return x + made, balance

    def attention(self, x: Tensor) -> Tensor:
        made = (linear(x) for linear in (self.wq, self.wk, self.wv))
        q, k, v = (part.unflatten(-1, (-1, self.features)).transpose(1, 2) for part in made)
        k, v = (part.repeat_interleave(self.heads // self.shared, dim=1) for part in (turned(k), v))
        scores = turned(q) @ k.transpose(-2, -1) / self.features**0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ v
        return self.wo(mixed.transpose(1, 2).flatten(2))


class Mixtral(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, vocabulary = sizes["d"], sizes["vocabulary"]
        self.embedding = nn.Embedding(vocabulary, d)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes["layers"]))
        self.norm = nn.RMSNorm(d, eps=1e-5)
        self.output = nn.Linear(d, vocabulary, bias=False)

    def forward(self, tokens: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x, balances = self.embedding(tokens), []
        for layer in self.layers:
            x, balance = layer(x)
            balances.append(balance)
        logits = self.output(self.norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        return loss + COEFFICIENT * torch.stack(balances).mean(), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    found = {"table": Place("embedding.weight"), "head": Place("output.weight"), "last.gain": Place("norm.weight")}
    names = {
        "n.gain": "attention_norm.weight",
        "attn.q": "wq.weight",
        "attn.k": "wk.weight",
        "attn.v": "wv.weight",
        "attn.out": "wo.weight",
        "m.gain": "ffn_norm.weight",
        "moe.router": "moe.gate.weight",
        "moe.gate": "moe.w1",
        "moe.up": "moe.w3",
        "moe.down": "moe.w2",
    }
    for layer in range(sizes["layers"]):
        found |= {f"layer.{layer}.{ours}": Place(f"layers.{layer}.{theirs}") for ours, theirs in names.items()}
    return found

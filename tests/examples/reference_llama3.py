"""examples/llama3_8b.udl and llama3_70b.udl as a user of torch would write them, with torch's own grouped attention."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places

EPSILON = 1e-5
BASE = 500_000.0


def rotate(x: Tensor) -> Tensor:
    """Rotary positions: the halves of every row are the real and imaginary parts of numbers that rotate with the
    position.
    """
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]), BASE ** (-torch.arange(half, dtype=x.dtype) / half))
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1)


class Layer(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d, hidden = sizes["d"], sizes["hidden"]
        self.heads, self.kv_heads = sizes["heads"], sizes["kv_heads"]
        shared = self.kv_heads * (d // self.heads)
        self.attention_norm = nn.RMSNorm(d, eps=EPSILON)
        self.wq = nn.Linear(d, d, bias=False)
        self.wk = nn.Linear(d, shared, bias=False)
        self.wv = nn.Linear(d, shared, bias=False)
        self.wo = nn.Linear(d, d, bias=False)
        self.feed_forward_norm = nn.RMSNorm(d, eps=EPSILON)
        self.gate = nn.Linear(d, hidden, bias=False)
        self.up = nn.Linear(d, hidden, bias=False)
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.wo(self.attention(self.attention_norm(x)))
        h = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def attention(self, x: Tensor) -> Tensor:
        q = rotate(self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        k = rotate(self.wk(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2))
        v = self.wv(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        k, v = (shared.repeat_interleave(self.heads // self.kv_heads, 1) for shared in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Llama3(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d = sizes["d"]
        self.table = nn.Embedding(sizes["vocabulary"], d)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes["layers"]))
        self.norm = nn.RMSNorm(d, eps=EPSILON)
        self.head = nn.Linear(d, sizes["vocabulary"], bias=False)

    def forward(self, tokens: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten()), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    names = {
        "attention_norm.gain": "attention_norm",
        "attn.query": "wq",
        "attn.key": "wk",
        "attn.value": "wv",
        "attn.out": "wo",
        "feed_forward_norm.gain": "feed_forward_norm",
        "ff.gate": "gate",
        "ff.up": "up",
        "ff.down": "down",
    }
    found = {"table": Place("table.weight"), "head": Place("head.weight"), "final_norm.gain": Place("norm.weight")}
    for layer in range(sizes["layers"]):
        found |= {f"layer.{layer}.{ours}": Place(f"layers.{layer}.{theirs}.weight") for ours, theirs in names.items()}
    return found

"""examples/gpt2.udl as a user of torch would write it, with a fused projection and torch's own attention."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .correspondence import Place, Places


class Layer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(d)
        self.c_attn = nn.Linear(d, 3 * d)
        self.c_proj = nn.Linear(d, d)
        self.ln_2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.c_proj(self.attention(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Gpt2(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        d = sizes["d"]
        self.wte = nn.Embedding(sizes["vocabulary"], d)
        self.wpe = nn.Embedding(sizes["s"], d)
        self.layers = nn.ModuleList(Layer(d, sizes["heads"]) for _ in range(sizes["layers"]))
        self.ln_f = nn.LayerNorm(d)

    def forward(self, tokens: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), target.flatten()), {"logits": logits}


def places(sizes: Mapping[str, int]) -> Places:
    found = {"wte": Place("wte.weight"), "wpe": Place("wpe.weight")}
    found |= {"ln_f.gain": Place("ln_f.weight"), "ln_f.bias": Place("ln_f.bias")}
    names = {
        "ln_1.gain": "ln_1.weight",
        "ln_1.bias": "ln_1.bias",
        "attn.qkv": "c_attn.weight",
        "attn.qkv_bias": "c_attn.bias",
        "attn.out": "c_proj.weight",
        "attn.out_bias": "c_proj.bias",
        "ln_2.gain": "ln_2.weight",
        "ln_2.bias": "ln_2.bias",
        "mlp.up": "mlp.0.weight",
        "mlp.up_bias": "mlp.0.bias",
        "mlp.down": "mlp.2.weight",
        "mlp.down_bias": "mlp.2.bias",
    }
    for layer in range(sizes["layers"]):
        found |= {f"layer.{layer}.{ours}": Place(f"layers.{layer}.{theirs}") for ours, theirs in names.items()}
    return found

"""A small language model as a plain torch module, which knows nothing of unity-dsl, and a factory of it."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        b, s, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(b, s, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1, self.attention, self.norm_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Tiny(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.table, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, labels):
        x = self.table(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), logits


def tiny(layers=4, width=32, heads=4, length=16, vocabulary=64, batch=4):
    tokens = torch.randint(vocabulary, (batch, length))
    return Tiny(layers, width, heads, length, vocabulary), {"tokens": tokens, "labels": tokens.roll(-1, 1)}

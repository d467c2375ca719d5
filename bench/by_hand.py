"""Hand-written modules with the best native calls of PyTorch; needs only torch.

A module is made from the unsharded tensors of an emitted program, by name, and its model's sizes. It returns the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Weights = Mapping[str, Tensor]
Sizes = Mapping[str, float]
Batch = Mapping[str, Tensor]


def heads_of(x: Tensor, heads: int) -> Tensor:
    """Reshapes [b, s, d] to [b, heads, s, d / heads]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def dense(fan_in: int, w: Tensor, bias: Tensor) -> nn.Linear:
    """`nn.Linear` with these weights. The output dimension of `w` and `bias` may be split into several dimensions."""
    made = nn.Linear(fan_in, bias.numel())
    made.weight.data.copy_(w.reshape(-1, fan_in))
    made.bias.data.copy_(bias.reshape(-1))
    return made


def norm(weights: Weights, name: str, eps: float) -> nn.LayerNorm:
    made = nn.LayerNorm(weights[f"{name}.gain"].numel(), eps=eps)
    made.weight.data.copy_(weights[f"{name}.gain"])
    made.bias.data.copy_(weights[f"{name}.bias"])
    return made


class Gpt2Layer(nn.Module):
    def __init__(self, weights: Weights, at: str, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = norm(weights, f"{at}.ln_1", 1e-5), norm(weights, f"{at}.ln_2", 1e-5)
        self.qkv = dense(d, weights[f"{at}.attn.qkv"], weights[f"{at}.attn.qkv_bias"])
        self.out = dense(d, weights[f"{at}.attn.out"], weights[f"{at}.attn.out_bias"])
        self.up = dense(d, weights[f"{at}.mlp.up"], weights[f"{at}.mlp.up_bias"])
        self.down = dense(4 * d, weights[f"{at}.mlp.down"], weights[f"{at}.mlp.down_bias"])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.ln_1(x)).chunk(3, -1))
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), self.dropout, self.training)
        h = F.gelu(self.up(self.ln_2(x)), approximate="tanh")
        return x + F.dropout(self.down(h), self.dropout, self.training)


class Gpt2(nn.Module):
    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__()
        self.dropout = sizes["dropout"]
        self.wte = nn.Parameter(weights["wte"].clone())
        self.wpe = nn.Parameter(weights["wpe"].clone())
        d, heads, dropout = int(sizes["d"]), int(sizes["heads"]), sizes["dropout"]
        made = (Gpt2Layer(weights, f"layer.{i}", d, heads, dropout) for i in range(int(sizes["layers"])))
        self.layers = nn.Sequential(*made)
        self.ln_f = norm(weights, "ln_f", 1e-5)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = F.dropout(F.embedding(tokens, self.wte) + self.wpe, self.dropout, self.training)
        logits = F.linear(self.ln_f(self.layers(x)), self.wte)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class BertLayer(nn.Module):
    def __init__(self, weights: Weights, at: str, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        parts = {name: f"{at}.attn.{name}" for name in ("query", "key", "value", "out")}
        for name, path in {**parts, "up": f"{at}.ff.up", "down": f"{at}.ff.down"}.items():
            setattr(self, name, dense(4 * d if name == "down" else d, weights[f"{path}.w"], weights[f"{path}.bias"]))
        self.ln_1, self.ln_2 = norm(weights, f"{at}.ln_1", 1e-12), norm(weights, f"{at}.ln_2", 1e-12)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        q, k, v = (heads_of(made(x), self.heads) for made in (self.query, self.key, self.value))
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, kept, dropout_p=p)
        attended = F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), self.dropout, self.training)
        x = self.ln_1(x + attended)
        return self.ln_2(x + F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training))


class Bert(nn.Module):
    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__()
        dropout, d, heads = sizes["dropout"], int(sizes["d"]), int(sizes["heads"])
        self.dropout = dropout
        for name in ("token", "position", "segment", "token_bias"):
            setattr(self, name, nn.Parameter(weights[name].clone()))
        self.embedded, self.transformed = norm(weights, "embedded", 1e-12), norm(weights, "transformed", 1e-12)
        for name in ("transform", "pooler", "order"):
            setattr(self, name, dense(d, weights[f"{name}.w"], weights[f"{name}.bias"]))
        made = (BertLayer(weights, f"layer.{i}", d, heads, dropout) for i in range(int(sizes["layers"])))
        self.layers = nn.ModuleList(made)

    def forward(
        self, tokens: Tensor, types: Tensor, mask: Tensor, target: Tensor, chosen: Tensor, follows: Tensor
    ) -> Tensor:
        x = F.embedding(tokens, self.token) + self.position + F.embedding(types, self.segment)
        x = F.dropout(self.embedded(x), self.dropout, self.training)
        kept = ((mask == 0) * -10000.0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, kept)
        transformed = self.transformed(F.gelu(self.transform(x)))
        logits = F.linear(transformed, self.token, self.token_bias)
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        told = (losses * chosen.flatten()).sum() / chosen.sum().clamp(min=1)
        return told + F.cross_entropy(self.order(torch.tanh(self.pooler(x[:, 0]))), follows)


def plain(w: Tensor) -> nn.Linear:
    """`nn.Linear` without a bias."""
    made = nn.Linear(w.shape[1], w.shape[0], bias=False)
    made.weight.data.copy_(w)
    return made


def rms(weights: Weights, name: str) -> nn.RMSNorm:
    made = nn.RMSNorm(weights[f"{name}.gain"].numel(), eps=1e-5)
    made.weight.data.copy_(weights[f"{name}.gain"])
    return made


class Llama3Layer(nn.Module):
    def __init__(self, weights: Weights, at: str, sizes: Sizes) -> None:
        super().__init__()
        self.heads, self.kv_heads = int(sizes["heads"]), int(sizes["kv_heads"])
        self.attention_norm = rms(weights, f"{at}.attention_norm")
        self.feed_forward_norm = rms(weights, f"{at}.feed_forward_norm")
        for name in ("query", "key", "value", "out"):
            setattr(self, name, plain(weights[f"{at}.attn.{name}"]))
        for name in ("gate", "up", "down"):
            setattr(self, name, plain(weights[f"{at}.ff.{name}"]))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        n = self.attention_norm(x)
        q, k = (
            turned(heads_of(made(n), heads), cos, sin)
            for made, heads in ((self.query, self.heads), (self.key, self.kv_heads))
        )
        v = heads_of(self.value(n), self.kv_heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        n = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, which rotates pairs of one feature of the first half and one of the second."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Llama3(nn.Module):
    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__()
        self.table = nn.Parameter(weights["table"].clone())
        self.layers = nn.ModuleList(Llama3Layer(weights, f"layer.{i}", sizes) for i in range(int(sizes["layers"])))
        self.final_norm, self.head = rms(weights, "final_norm"), plain(weights["head"])
        size = int(sizes["d"]) // int(sizes["heads"])
        rates = 500000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(int(sizes["s"]))[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = F.embedding(tokens, self.table)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.final_norm(x)).float().flatten(0, 1), target.flatten())


class Dlrm(nn.Module):
    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(weights[f"table{n}.w"].clone()) for n in range(1, 27))

        def perceptron(name: str, count: int) -> nn.ModuleList:
            found = ((weights[f"{name}{n}.w"], weights[f"{name}{n}.bias"]) for n in range(1, count + 1))
            return nn.ModuleList(dense(w.shape[1], w, bias) for w, bias in found)

        self.bottom, self.top = perceptron("bottom", 3), perceptron("top", 5)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, x: Tensor, target: Tensor, **ids: Tensor) -> Tensor:
        for layer in self.bottom:
            x = F.relu(layer(x))
        looked_up = [F.embedding(ids[f"ids{n}"], table) for n, table in enumerate(self.tables, 1)]
        rows = torch.cat([x[:, None], *looked_up], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        x = torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1)
        for layer in self.top[:-1]:
            x = F.relu(layer(x))
        return F.binary_cross_entropy_with_logits(self.top[-1](x), target)


class Convolved(nn.Sequential):
    """A convolution without bias, and its batch norm."""

    def __init__(self, weights: Weights, at: str, groups: int = 1, stride: int = 1) -> None:
        k, n = weights[f"{at}.k"], f"{at}.n"
        outputs, inputs, size, _ = k.shape
        conv = nn.Conv2d(inputs * groups, outputs, size, stride, size // 2, groups=groups, bias=False)
        conv.weight.data.copy_(k)
        bn = nn.BatchNorm2d(outputs)
        bn.load_state_dict(
            {
                "weight": weights[f"{n}.gain"],
                "bias": weights[f"{n}.bias"],
                "running_mean": weights[f"{n}.mean"],
                "running_var": weights[f"{n}.variance"],
                "num_batches_tracked": torch.tensor(0),
            }
        )
        super().__init__(conv, bn)


class Bottleneck(nn.Module):
    """A residual block; the first of a stage has a convolution as its shortcut."""

    def __init__(self, weights: Weights, at: str, cardinality: int, stride: int = 1) -> None:
        super().__init__()
        self.narrow = Convolved(weights, f"{at}.f.narrow")
        self.middle = Convolved(weights, f"{at}.f.middle", cardinality, stride)
        self.wide = Convolved(weights, f"{at}.f.wide")
        first = f"{at}.shortcut.k" in weights
        self.shortcut = Convolved(weights, f"{at}.shortcut", stride=stride) if first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        middle = self.middle(F.relu(self.narrow(x), inplace=True))
        wide = self.wide(F.relu(middle, inplace=True))
        return F.relu(wide.add_(self.shortcut(x)), inplace=True)


class Resnext(nn.Module):
    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__()
        self.stem = Convolved(weights, "stem", stride=2)
        cardinality = int(sizes["cardinality"])
        made = []
        for stage in (1, 2, 3, 4):
            made.append(Bottleneck(weights, f"stage_{stage}_first", cardinality, 1 if stage == 1 else 2))
            others = range(int(sizes[f"blocks_{stage}"]) - 1)
            made += [Bottleneck(weights, f"stage_{stage}.{i}", cardinality) for i in others]
        self.blocks = nn.Sequential(*made)
        self.classes = dense(weights["w"].shape[1], weights["w"], weights["bias"])

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        h = F.max_pool2d(F.relu(self.stem(x), inplace=True), 3, 2, 1)
        return F.cross_entropy(self.classes(self.blocks(h).mean((2, 3))), target)


BY_HAND: Mapping[str, Callable[[Weights, Sizes], nn.Module]] = {
    "gpt2": Gpt2,
    "bert_large": Bert,
    "llama3_8b": Llama3,
    "dlrm": Dlrm,
    "resnext50": Resnext,
}

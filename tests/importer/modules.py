"""Modules as users write them, with example inputs: what the tests import."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Example = tuple[nn.Module, dict[str, Any]]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.size()
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class LanguageModel(nn.Module):
    """A causal transformer whose head shares the token embedding."""

    def __init__(
        self, vocabulary: int = 48, width: int = 32, layers: int = 3, heads: int = 4, length: int = 16
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-1), logits


def language_model() -> Example:
    torch.manual_seed(0)
    labels = torch.randint(0, 48, (2, 8))
    labels[0, :3] = -1
    return LanguageModel(), {"tokens": torch.randint(0, 48, (2, 8)), "labels": labels}


class Gated(nn.Module):
    """A layer with root-mean-square norms, rotary positions, shared keys and values, and a gate."""

    def __init__(self, width: int, heads: int, shared: int, length: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.Parameter(1 + 0.1 * torch.randn(width)) for _ in range(2))
        size = width // heads
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, shared * size, bias=False)
        self.v, self.o = nn.Linear(width, shared * size, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 48), nn.Linear(width, 48), nn.Linear(48, width)
        self.heads, self.shared = heads, shared
        angles = torch.outer(torch.arange(length), 500.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        n = self.norm_1 * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        q = self.turned(self.q(n).view(batch, length, self.heads, -1).transpose(1, 2))
        k = self.turned(self.k(n).view(batch, length, self.shared, -1).transpose(1, 2))
        v = self.v(n).view(batch, length, self.shared, -1).transpose(1, 2)
        k, v = (
            part[:, :, None].expand(-1, -1, self.heads // self.shared, -1, -1).reshape(batch, self.heads, length, -1)
            for part in (k, v)
        )
        mask = torch.arange(length)[:, None] >= torch.arange(length)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(batch, 1, length, length))
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        n = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) * self.norm_2
        h = self.gate(n)
        h = 0.5 * h * (1 + torch.tanh(0.7978845608028654 * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + self.down(h * self.up(n))


class GatedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 32, padding_idx=0)
        self.layers, self.head = nn.ModuleList(Gated(32, 4, 2, 8) for _ in range(2)), nn.Linear(32, 40)

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        return {"loss": F.cross_entropy(logits[:, :-1].reshape(-1, 40), labels[:, 1:].reshape(-1)), "logits": logits}


def gated_model() -> Example:
    torch.manual_seed(0)
    tokens = torch.randint(1, 40, (2, 8))
    tokens[:, -2:] = 0
    return GatedModel(), {"tokens": tokens, "labels": torch.randint(0, 40, (2, 8))}


class Encoder(nn.Module):
    """Masks padding, puts a token in front of the image patches, and keeps the first row."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 1, 16))
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, image: Tensor, seen: Tensor, label: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.size(0), -1, -1), x), dim=1)
        q, k, v = (part(x).view(*x.shape[:2], 2, 8).transpose(1, 2) for part in (self.query, self.key, self.value))
        mask = seen[:, None, None, :].bool().expand(-1, 1, x.size(1), -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25).transpose(1, 2).reshape(x.shape)
        return F.cross_entropy(self.head(self.norm(x + y)[:, 0]), label)


def encoder() -> Example:
    torch.manual_seed(0)
    seen = torch.ones(2, 5, dtype=torch.long)
    seen[1, 3:] = 0
    return Encoder(), {"image": torch.randn(2, 3, 8, 8), "seen": seen, "label": torch.randint(0, 5, (2,))}


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, groups=2, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        changed = stride > 1 or inputs != 4 * width
        down = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.downsample = down if changed else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(h)))))
        return self.relu(h + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(4, 4), Bottleneck(16, 4), Bottleneck(16, 4))
        self.layer2 = nn.Sequential(Bottleneck(16, 8, 2), Bottleneck(32, 8), Bottleneck(32, 8))
        self.pooled, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        h = self.layer2(self.layer1(self.pool(torch.relu(self.bn1(self.conv1(image))))))
        logits = self.fc(torch.flatten(self.pooled(h), 1))
        return F.cross_entropy(logits, label), logits


def resnet() -> Example:
    torch.manual_seed(0)
    return ResNet(), {"image": torch.randn(4, 3, 32, 32), "label": torch.randint(0, 10, (4,))}


class TwoLists(nn.Module):
    """Lists of layers with a computation of the module between them; the first layer reads one tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.second = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = x
        for layer in self.first:
            h = torch.relu(layer(h)) + x
        for layer in self.second:
            h = h + layer(h)
        return F.mse_loss(h, y)


def two_lists() -> Example:
    torch.manual_seed(0)
    return TwoLists(), {"x": torch.randn(4, 6), "y": torch.randn(4, 6)}


class HiddenStates(nn.Module):
    """Returns the output of every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        states = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            states.append(x)
        return F.mse_loss(x, y), states


def hidden_states() -> Example:
    torch.manual_seed(0)
    return HiddenStates(), {"x": torch.randn(4, 6), "y": torch.randn(4, 6)}


class Words(nn.Module):
    """Modules and inputs whose names are words of the language."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.loss, self.b = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 6)

    def forward(self, b: Tensor, weight: Tensor) -> Tensor:
        return F.cross_entropy(self.loss(torch.tanh(self.b(torch.relu(self.input(b))))), weight)


def words() -> Example:
    torch.manual_seed(0)
    return Words(), {"b": torch.randn(4, 6), "weight": torch.randint(0, 3, (4,))}


class ByHand(nn.Module):
    """Attention written out, with a mask that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = (part(x).view(b, s, 4, d // 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-2, -1)) * 0.5
        scores = scores.masked_fill(self.mask[:, :, :s, :s] == 0, float("-inf"))
        return F.mse_loss(self.out((F.softmax(scores, -1) @ v).transpose(1, 2).contiguous().view(b, s, d)), y)


def by_hand() -> Example:
    torch.manual_seed(0)
    return ByHand(), {"x": torch.randn(2, 8, 16), "y": torch.randn(2, 8, 16)}


class UpAndDown(nn.Module):
    """A strided convolution and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.up(F.silu(self.norm(self.down(x)))), y)


def up_and_down() -> Example:
    torch.manual_seed(0)
    return UpAndDown(), {"x": torch.randn(2, 3, 8, 8), "y": torch.randn(2, 3, 8, 8)}


class PlainNorms(nn.Module):
    """Layer norms without a bias, and without gain and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.gained = nn.Linear(6, 6), nn.LayerNorm(6, bias=False)
        self.plain = nn.LayerNorm(6, elementwise_affine=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.plain(self.gained(self.way(x)) + x), y)


def plain_norms() -> Example:
    torch.manual_seed(0)
    return PlainNorms(), {"x": torch.randn(2, 3, 6), "y": torch.randn(2, 3, 6)}


class Weighed(nn.Module):
    """A loss over the positions that a mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return ((self.way(x) - y).pow(2) * mask[..., None].float()).sum() / mask.sum()


def weighed() -> Example:
    torch.manual_seed(0)
    mask = torch.ones(3, 5, dtype=torch.long)
    mask[1, 2:] = 0
    return Weighed(), {"x": torch.randn(3, 5, 6), "y": torch.randn(3, 5, 6), "mask": mask}


class Sums(nn.Module):
    """Sums over a batch, one divided by the number of elements and one not, of a frozen layer's result."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.way = nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor, labels: Tensor) -> Tensor:
        made = self.way(self.frozen(x))
        return (made - y).pow(2).sum() / y.numel() + F.cross_entropy(made, labels, reduction="sum")


def sums() -> Example:
    torch.manual_seed(0)
    return Sums(), {"x": torch.randn(3, 6), "y": torch.randn(3, 6), "labels": torch.tensor([1, 5, 0])}


def library_encoder() -> Example:
    """torch's own encoder, whose inputs are positional."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return OfEncoder(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)), {"x": torch.randn(3, 6, 16)}


class OfEncoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x).square().mean()


class Branching(nn.Module):
    """Branches depending on data."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.way(x)
        return x.mean()


def branching() -> Example:
    return Branching(), {"x": torch.randn(2, 4)}


class Unusual(nn.Module):
    """Calls operators without a counterpart."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(torch.erfinv(torch.tanh(self.way(x)) / 2)).square().mean()


def unusual() -> Example:
    return Unusual(), {"x": torch.randn(2, 4)}


def without_loss() -> Example:
    return nn.Linear(4, 4), {"input": torch.randn(2, 4)}


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(x).detach().square().mean()


def detached() -> Example:
    return Detached(), {"x": torch.randn(2, 4)}


def raising() -> Example:
    raise RuntimeError("no such data\nat all")


def number() -> int:
    return 3


def without_tensors() -> Example:
    return nn.Linear(4, 4), {}


class Dropping(nn.Module):
    """Dropout of features and of attention probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.dropout, self.plain = nn.Linear(8, 24), nn.Dropout(0.5), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        q, k, v = (part.view(2, 6, 2, 4).transpose(1, 2) for part in self.way(x).split(8, dim=2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1).transpose(1, 2).reshape(2, 6, 8)
        return F.mse_loss(F.dropout(self.plain(self.dropout(h)), 0.2, self.training), y)


def dropping() -> Example:
    torch.manual_seed(0)
    return Dropping(), {"x": torch.randn(2, 6, 8), "y": torch.randn(2, 6, 8)}


CALLS = [0]


class Wrong(nn.Module):
    """Computes something different in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        CALLS[0] += 1
        return F.mse_loss(self.way(x) * float(CALLS[0]), y)


def wrong() -> Example:
    torch.manual_seed(0)
    return Wrong(), {"x": torch.randn(2, 4), "y": torch.randn(2, 4)}


class Tabled(nn.Module):
    """Multiplies by a constant table."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (self.way(x) * torch.tensor([0.5, 3.0, 2.0, 1.0])).square().mean()


def tabled() -> Example:
    return Tabled(), {"x": torch.randn(2, 4)}


def language_model_of(
    layers: int = 2, width: int = 16, heads: int = 2, length: int = 8, vocabulary: int = 24, seed: int = 7
) -> Example:
    torch.manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (2, length))
    return LanguageModel(vocabulary, width, layers, heads, length), {"tokens": tokens, "labels": tokens.roll(-1, 1)}


class Perceptron(nn.Module):
    """Hidden layers of one width with dropout and, from three layers on, a norm."""

    def __init__(self, layers: int, hidden: int, p: float) -> None:
        super().__init__()
        widths = [12, *(hidden + 2 for _ in range(layers))]
        self.ways = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.norm = nn.LayerNorm(hidden + 2) if layers > 2 else nn.Identity()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        for way in self.ways:
            x = F.dropout(F.relu(way(x)), self.p)
        return self.norm(x).square().mean()


def perceptron(rows: int = 4, layers: int = 2, hidden: int = 6, p: float = 0.2) -> Example:
    return Perceptron(layers, hidden, p), {"x": torch.randn(rows, 12)}

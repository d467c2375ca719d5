"""Modules that importers have got wrong: by what they return, repeat, draw, keep in evaluation mode, or call sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .modules import Example


class CountedRows(nn.Module):
    """Divides by one more than the number of examples in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(x).exp().sum() / (x.shape[0] + 1)


def counted_rows() -> Example:
    return CountedRows(), {"x": torch.randn(4, 5)}


class Diffusion(nn.Module):
    """Predicts the noise that is added, at a random step."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.steps, self.time = steps, nn.Embedding(steps, width)
        self.up, self.down = nn.Linear(12, width), nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        step, noise = torch.randint(0, self.steps, (x.shape[0],)), torch.randn_like(x)
        left = (step.float() / self.steps)[:, None]
        noisy = left.sqrt() * noise + (1 - left).sqrt() * x
        return F.mse_loss(self.down(F.silu(self.up(noisy) + self.time(step))), noise)


def diffusion(width: int = 16) -> Example:
    return Diffusion(width, 50), {"x": torch.randn(4, 12)}


class LockedDropout(nn.Module):
    """Drops the same features at all positions of an example."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        kept = F.dropout(torch.ones(x.shape[0], 1, x.shape[2]), 0.5, self.training)
        return (self.way(x) * kept).square().mean()


def locked_dropout() -> Example:
    return LockedDropout(), {"x": torch.randn(4, 5, 6)}


class Penalised(nn.Module):
    """Returns a term of the loss before the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.way(x)
        penalty = y.abs().mean()
        return {"penalty": penalty, "y": y, "loss": F.mse_loss(y, x) + 0.1 * penalty}


def penalised() -> Example:
    return Penalised(), {"x": torch.randn(4, 6)}


class Taught(nn.Module):
    """Learns from a teacher that stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        self.student = nn.Linear(6, 3)
        self.teacher.requires_grad_(False).eval()
        nn.init.normal_(self.teacher[1].running_mean)
        nn.init.uniform_(self.teacher[1].running_var, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x).softmax(-1)
        return -(wanted * self.student(x).log_softmax(-1)).sum(-1).mean()


def taught() -> Example:
    torch.manual_seed(0)
    return Taught(), {"x": torch.randn(4, 6)}


class Padded(nn.Module):
    """Attention with a key padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=absent)[0].square().mean()


def padded() -> Example:
    return Padded(), {"x": torch.randn(2, 3, 8), "absent": torch.tensor([[False, False, True], [False] * 3])}


class TwoLayers(nn.Module):
    """Two layers of any widths, with dropout of channels."""

    def __init__(self, width: int, hidden: int, p: float = 0.0) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(width, hidden), nn.Linear(hidden, width), nn.Dropout2d(p)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(F.relu(self.up(x)))
        return (self.drop(y[..., None, None]).square().sum((1, 2, 3)) / x.shape[0]).sum()


def of_a_root(width: int = 16) -> Example:
    return TwoLayers(width, int(width**0.5)), {"x": torch.randn(4, width)}


def of_at_most(width: int = 16) -> Example:
    return TwoLayers(width, min(2 * width, 32)), {"x": torch.randn(4, width)}


def of_such_names(b: int = 6, rows: int = 5, seed: int = 3, batch: int = 4, loss: int = 2, p: float = 0.2) -> Example:
    return TwoLayers(b, rows * loss + seed, p), {"x": torch.randn(batch, b)}


class SharedLayer(nn.Module):
    """Calls the only layer of a list repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Tanh())])

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + self.layers[0](x)
        return x.square().mean()


def shared_layer() -> Example:
    return SharedLayer(), {"x": torch.randn(4, 6)}


class Video(nn.Module):
    """Overlapping windows over frames, and responses normalised over neighbouring channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 4, 3, stride=2, padding=1, groups=2)
        self.pool, self.norm = nn.MaxPool3d(3, stride=1, padding=1), nn.LocalResponseNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        made = self.second(self.pool(torch.relu(self.first(x))))
        return self.norm(made).square().mean()


def video() -> Example:
    return Video(), {"x": torch.randn(2, 2, 4, 6, 6)}


class Decorrelated(nn.Module):
    """Equal features of two views should agree, and different features be uncorrelated (Zbontar et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.norm = nn.Bilinear(6, 6, 4), nn.BatchNorm1d(4, affine=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        products = self.norm(self.way(x, y)).T @ self.norm(self.way(y, x)) / x.shape[0]
        apart = torch.cdist(products, products + 1).prod(0)
        return torch.diagonal(products).sub(1).square().sum() + products.square().sum() + apart.mean()


def decorrelated() -> Example:
    return Decorrelated(), {"x": torch.randn(8, 6), "y": torch.randn(8, 6)}


class Tagged(nn.Module):
    """Scores of tags along a sequence, computed step by step, against those of all sequences (Lafferty et al. 2001)."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.steps = nn.Linear(5, 4), nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor, tags: Tensor) -> Tensor:
        scores = self.way(x)
        every = scores[:, 0]
        for place in range(1, x.shape[1]):
            every = torch.logsumexp(every[:, :, None] + self.steps[None], 1) + scores[:, place]
        own = scores.gather(2, tags[:, :, None])[:, :, 0].sum(1) + self.steps[tags[:, :-1], tags[:, 1:]].sum(1)
        return (torch.logsumexp(every, 1) - own).mean()


def tagged() -> Example:
    return Tagged(), {"x": torch.randn(4, 5, 5), "tags": torch.randint(0, 4, (4, 5))}


class Checkpointed(nn.Module):
    """Activation checkpointing of parts, in both variants that torch has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        made = checkpoint(lambda part: torch.tanh(self.first(part)), self.second(x), use_reentrant=True)
        made = checkpoint(lambda part, scale: self.second(part) * scale, made, scale=2.0, use_reentrant=False)
        return made.square().mean()


def checkpointed() -> Example:
    return Checkpointed(), {"x": torch.randn(4, 6)}


class ComplexPositions(nn.Module):
    """Rotary positions as products of complex numbers (Su et al. 2021)."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        angles = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turns = self.turns[: x.shape[1]].view(1, pairs.shape[1], 1, pairs.shape[-1])
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (way(x).unflatten(-1, (2, 8)) for way in (self.query, self.key, self.value))
        heads = (part.transpose(1, 2) for part in (self.turned(query), self.turned(key), value))
        return F.scaled_dot_product_attention(*heads, is_causal=True).square().mean()


def complex_positions() -> Example:
    return ComplexPositions(12), {"x": torch.randn(2, 6, 16)}


class KeptTables(nn.Module):
    """Cosines and sines of half positions, for more positions than are read, computed at construction, and a band mask.
    Each layer has its own tables.
    """

    def __init__(self, positions: int, band: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(positions).float() / 2, 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))
        places = torch.arange(72)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("cache", torch.stack([angles.cos(), angles.sin()], -1), persistent=False)
        self.hidden = (places[:, None] - places).abs() > band

    def turned(self, x: Tensor) -> Tensor:
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = self.cache[: x.shape[1], :, 0], self.cache[: x.shape[1], :, 1]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.turned(self.query(x)) @ self.turned(self.key(x)).transpose(1, 2)
        return x + scores.masked_fill(self.hidden, float("-inf")).softmax(-1) @ x


class OfKeptTables(nn.Module):
    def __init__(self, positions: int, band: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(KeptTables(positions, band) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def kept_tables(positions: int = 1024, band: int = 9) -> Example:
    return OfKeptTables(positions, band), {"x": torch.randn(3, 72, 8)}


class SlicedTwice(nn.Module):
    """Slices the same halves twice, squares one each time, and drops the same elements twice with different random
    numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.way(x))
        once = y[:, :3].square() * y[:, 3:] + F.dropout(y[:, :3], 0.5, self.training)
        again = y[:, :3].square() - y[:, 3:] + F.dropout(y[:, :3], 0.5, self.training)
        return (once * again).mean()


def sliced_twice() -> Example:
    return SlicedTwice(), {"x": torch.randn(4, 6)}


def model() -> Example:
    return sliced_twice()


class SortedParts(nn.Module):
    """Sorts, takes medians, maxima with their positions, and the minimum of all."""

    def __init__(self) -> None:
        super().__init__()
        self.way = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        h, weights = self.way(x), torch.arange(6.0)
        values, places = torch.sort(h, dim=0)
        made = (values * weights).square() + h.sort(descending=True, stable=True)[0] * weights + places
        made = made + torch.msort(h) * weights + h.gather(1, torch.argsort(h, 1)).square() * weights
        most, place = h.max(1)
        return made.mean() + (h.median(1)[0] * most).mean() * h.min() + (F.one_hot(place, 6) * h).sum()


def sorted_parts() -> Example:
    return SortedParts(), {"x": torch.randn(4, 8)}


class Routed(nn.Module):
    """Experts with a capacity, each for its first tokens, by tensors of ones and zeros (Fedus et al. 2022)."""

    def __init__(self, experts: int, capacity: int) -> None:
        super().__init__()
        self.experts, self.capacity = experts, capacity
        self.gate = nn.Linear(6, experts)
        self.up, self.down = nn.Parameter(torch.randn(experts, 6, 8)), nn.Parameter(torch.randn(experts, 8, 6))

    def forward(self, x: Tensor) -> Tensor:
        shares = F.softmax(self.gate(x), -1)
        share, expert = shares.max(-1)
        chosen = F.one_hot(expert, self.experts)
        place = (torch.cumsum(chosen, 0) * chosen).sum(-1) - 1
        slot = F.one_hot(place.clamp(0, self.capacity - 1), self.capacity) * (place < self.capacity)[:, None]
        sent = (chosen[:, :, None] * slot[:, None, :]).float()
        hidden = torch.einsum("ecd,edh->ech", torch.einsum("nec,nd->ecd", sent, x), self.up).relu()
        made = torch.einsum("ech,ehd->ecd", hidden, self.down)
        balance = (shares.mean(0) * chosen.float().mean(0)).sum()
        return torch.einsum("nec,ecd->nd", sent * share[:, None, None], made).square().mean() + balance


def routed() -> Example:
    return Routed(3, 4), {"x": torch.randn(10, 6)}


class PartCalledCode(nn.Module):
    """The least distance to a row of a table whose name torch's graphs use too."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.code.weight).min(1)[0].mean()


def part_called_code() -> Example:
    return PartCalledCode(), {"x": torch.randn(5, 4)}


class Ternary(nn.Module):
    """Ternary weights and 8-bit activations, with straight-through gradients (Ma et al. 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12, bias=False), nn.Linear(12, 8, bias=False)

    def quantised(self, way: nn.Linear, x: Tensor) -> Tensor:
        scale = 127 / x.abs().max(-1, keepdim=True).values.clamp(min=1e-5)
        x = x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()
        scale = 1 / way.weight.abs().mean().clamp(min=1e-5)
        weight = way.weight + ((way.weight * scale).round().clamp(-1, 1) / scale - way.weight).detach()
        return F.linear(x, weight)

    def forward(self, x: Tensor) -> Tensor:
        made = self.quantised(self.down, F.silu(self.quantised(self.up, x)))
        return (made - x + torch.remainder(x, 0.75) + x.ceil() - x.trunc()).square().mean()


def ternary() -> Example:
    return Ternary(), {"x": torch.randn(4, 8)}


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class NormedHeads(nn.Module):
    """Attention that normalises each head's queries and keys before rotating them, with a loss of shifted labels, some
    of them ignored.
    """

    def __init__(self, vocab: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.tokens = heads, nn.Embedding(vocab, dim)
        self.qkv, self.out, self.head = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, vocab)
        self.of_queries, self.of_keys = Norm(dim // heads), Norm(dim // heads)

    def forward(self, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(tokens)
        shape = (*tokens.shape, self.heads, x.shape[-1] // self.heads)
        q, k, v = (part.view(shape) for part in self.qkv(x).chunk(3, -1))
        q, k = (self.turned(norm(part).transpose(1, 2)) for norm, part in ((self.of_queries, q), (self.of_keys, k)))
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        logits = self.head(self.out(y.transpose(1, 2).reshape(x.shape)))
        given, wanted = logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1)
        return F.cross_entropy(given, wanted, ignore_index=-100), logits

    def turned(self, x: Tensor) -> Tensor:
        length, width = x.shape[-2:]
        angles = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, width, 2).float() / width))
        both = torch.cat((angles, angles), -1)
        first, second = x.chunk(2, -1)
        return x * both.cos() + torch.cat((-second, first), -1) * both.sin()


def normed_heads(batch: int = 4, length: int = 12, vocab: int = 32, dim: int = 16, heads: int = 4) -> Example:
    labels = torch.randint(0, vocab, (batch, length))
    labels[:, :3] = -100
    return NormedHeads(vocab, dim, heads), {"tokens": torch.randint(0, vocab, (batch, length)), "labels": labels}


class Drawing(nn.Module):
    """Samples from a distribution, and a category by the Gumbel-softmax trick."""

    def __init__(self, *, hard: bool = False) -> None:
        super().__init__()
        self.way, self.back, self.hard = nn.Linear(8, 8), nn.Linear(4, 8), hard

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = self.way(x).chunk(2, -1)
        drawn = torch.distributions.Normal(mean, F.softplus(scale)).rsample()
        return F.mse_loss(self.back(F.gumbel_softmax(drawn, tau=0.7, hard=self.hard)), x)


def drawing() -> Example:
    return Drawing(), {"x": torch.randn(4, 8)}


def drawing_hard() -> Example:
    return Drawing(hard=True), {"x": torch.randn(4, 8)}


class NormOfGroups(nn.Module):
    """Normalises each half of the features, with one gain vector over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.way, self.gain = nn.Linear(8, 8), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.way(x)
        halves = y.view(*y.shape[:-1], 2, 4)
        normed = halves * torch.rsqrt(halves.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (normed.view(y.shape) * self.gain).square().mean() + y.mean()


def norm_of_groups() -> Example:
    return NormOfGroups(), {"x": torch.randn(4, 3, 8)}


class Angles(nn.Module):
    """Calls torch functions without an operator in the library: of one tensor, with a number, and of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        one, two = self.one(x), self.two(x)
        return F.mse_loss(torch.atan(one) + torch.hypot(one, two) + F.celu(two, alpha=0.5), y)


def angles() -> Example:
    torch.manual_seed(0)
    return Angles(), {"x": torch.randn(4, 6), "y": torch.randn(4, 8)}

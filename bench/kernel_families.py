"""The families of kernels that bench/gpu_families.py measures: a model of each, and PyTorch's best calls for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

P = 0.1
"""Dropout probability."""


@dataclass(frozen=True)
class Family:
    """A family of kernels. `body` are the lines of a model that compute `y` from its weights and integer inputs, and
    `storage` gives their types by name. `vendor` computes the same, up to the draws of dropout. `flops` gives the FLOPs
    of a forward pass from the sizes, unless the family is memory-bound. In a `contraction` the kernel is a matrix
    product fused with the operators around it. `head` is the size of the last axis of `y`; `shape` is the shape of `y`
    with 1 in that place.
    """

    sizes: Mapping[str, int]
    tiny: Mapping[str, int]
    storage: Mapping[str, str]
    body: tuple[str, ...]
    vendor: Callable[..., Tensor]
    flops: Callable[..., float] | None = None
    head: str = "c"
    shape: str = "r, 1"
    contraction: bool = False


def _rope(x: Tensor) -> Tensor:
    *_, s, k = x.shape
    rates = 10000.0 ** (-torch.arange(0, k, 2, device=x.device, dtype=torch.float32) / k)
    angles = torch.arange(s, device=x.device, dtype=torch.float32)[:, None] * rates
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def _causal_softmax(x: Tensor) -> Tensor:
    rows, columns = x.shape[-2:]
    later = torch.ones(rows, columns, dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(later, float("-inf")).softmax(-1)


def _attention(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **how)


ROWS = {"r": 16384, "c": 4096}
FEW_ROWS = {"r": 6, "c": 16}
HEADS = {"b": 2, "h": 16, "s": 4096, "e": 128}
FEW_HEADS = {"b": 1, "h": 2, "s": 20, "e": 16}
QKV = dict.fromkeys("qkv", "f32[b, s, h, e]")
ATTENTION = (
    "scores = matmul(root_scale(q[b, s, h, e] -> [b, h, s, e]), k[b, t, h, e] -> [b, h, e, t])",
    "y = matmul({p}, v[b, t, h, e] -> [b, h, t, e])",
)


def attention(p: str) -> tuple[str, ...]:
    return tuple(line.format(p=p) for line in ATTENTION)


def _products(b: int, h: int, s: int, e: int, **_: int) -> float:
    return 4.0 * b * h * s * s * e


def _product(r: int, k: int, c: int, **_: int) -> float:
    return 2.0 * r * k * c


DENSE = {"r": 65536, "k": 256, "c": 2048}
FEW_DENSE = {"r": 6, "k": 24, "c": 16}

FAMILIES: Mapping[str, Family] = {
    "gelu": Family(
        {"r": 8192, "c": 16384},
        FEW_ROWS,
        {"x": "f32[r, c]", "bias": "f32[c]"},
        ("y = gelu_tanh(x + bias)",),
        lambda x, bias: F.gelu(x + bias, approximate="tanh"),
    ),
    "swiglu": Family(
        {"r": 8192, "c": 14336},
        FEW_ROWS,
        {"x": "f32[r, c]", "u": "f32[r, c]"},
        ("y = silu(x) * u",),
        lambda x, u: F.silu(x) * u,
    ),
    "residual_layer_norm": Family(
        ROWS,
        FEW_ROWS,
        {"h": "f32[r, c]", "x": "f32[r, c]", "gain": "f32[c]", "bias": "f32[c]"},
        ("y = layer_norm(h + x, gain, bias)",),
        lambda h, x, gain, bias: F.layer_norm(h + x, gain.shape, gain, bias),
    ),
    "dropout_residual_layer_norm": Family(
        ROWS,
        FEW_ROWS,
        {"h": "f32[r, c]", "x": "f32[r, c]", "gain": "f32[c]", "bias": "f32[c]"},
        (f"y = layer_norm(dropout(h; p={P}) + x, gain, bias)",),
        lambda h, x, gain, bias: F.layer_norm(F.dropout(h, P) + x, gain.shape, gain, bias),
    ),
    "residual_rms_norm": Family(
        ROWS,
        FEW_ROWS,
        {"h": "f32[r, c]", "x": "f32[r, c]", "gain": "f32[c]"},
        ("y = rms_norm(h + x, gain)",),
        lambda h, x, gain: F.rms_norm(h + x, gain.shape, gain, 1e-5),
    ),
    "causal_softmax": Family(
        {"b": 32, "s": 2048},
        {"b": 2, "s": 12},
        {"x": "f32[b, s, s]"},
        ("y = softmax(causal_mask(x))",),
        _causal_softmax,
        head="s",
        shape="b, s, 1",
    ),
    "tanh_softmax_dropout": Family(
        ROWS,
        FEW_ROWS,
        {"x": "f32[r, c]"},
        (f"y = dropout(softmax(tanh(x)); p={P})",),
        lambda x: F.dropout(x.tanh().softmax(-1), P),
    ),
    "rope": Family(HEADS, FEW_HEADS, {"x": "f32[b, h, s, e]"}, ("y = rope(x)",), _rope, head="e", shape="b, h, s, 1"),
    "causal_attention": Family(
        HEADS,
        FEW_HEADS,
        QKV,
        attention("softmax(causal_mask(scores))"),
        lambda q, k, v: _attention(q, k, v, is_causal=True),
        lambda **sizes: _products(**sizes) / 2,
        head="e",
        shape="b, h, s, 1",
    ),
    "attention": Family(
        HEADS,
        FEW_HEADS,
        QKV,
        attention("softmax(scores)"),
        _attention,
        _products,
        head="e",
        shape="b, h, s, 1",
    ),
    "causal_attention_with_dropout": Family(
        HEADS,
        FEW_HEADS,
        QKV,
        attention(f"dropout(softmax(causal_mask(scores)); p={P})"),
        lambda q, k, v: _attention(q, k, v, dropout_p=P, is_causal=True),
        lambda **sizes: _products(**sizes) / 2,
        head="e",
        shape="b, h, s, 1",
    ),
    "linear_relu": Family(
        DENSE,
        FEW_DENSE,
        {"x": "f32[r, k]", "w": "f32[c, k]"},
        ("y = relu(linear(x, w))",),
        lambda x, w: F.relu(F.linear(x, w)),
        _product,
        contraction=True,
    ),
    "linear_silu_mul": Family(
        DENSE,
        FEW_DENSE,
        {"x": "f32[r, k]", "w": "f32[c, k]", "u": "f32[r, c]"},
        ("y = silu(linear(x, w)) * u",),
        lambda x, w, u: F.silu(F.linear(x, w)) * u,
        _product,
        contraction=True,
    ),
    "linear_gelu": Family(
        DENSE,
        FEW_DENSE,
        {"x": "f32[r, k]", "w": "f32[c, k]", "bias": "f32[c]"},
        ("y = gelu_tanh(linear(x, w) + bias)",),
        lambda x, w, bias: F.gelu(F.linear(x, w, bias), approximate="tanh"),
        _product,
        contraction=True,
    ),
    "embedding_dropout": Family(
        {"r": 16384, "v": 50257, "c": 1024},
        {"r": 70, "v": 9, "c": 16},
        {"ids": "int<v>[r]", "w": "f32[v, c]"},
        (f"y = dropout(embedding(ids, w); p={P})",),
        lambda ids, w: F.dropout(F.embedding(ids, w), P),
    ),
}


def model_text(name: str) -> str:
    """The model of a family. Its result goes through a matrix product, which no kernel includes, into a loss."""
    family = FAMILIES[name]
    lines = [f"model {name}[{', '.join(f'{key} = {size}' for key, size in family.sizes.items())}]"]
    lines.append(f"  preset tiny: {', '.join(f'{key} = {size}' for key, size in family.tiny.items())}")
    for tensor, kind in family.storage.items():
        whole = kind.startswith("int")
        lines.append(f"  input {tensor}: {kind}" if whole else f"  weight {tensor}: {kind} ~ normal(1)")
    lines += [f"  weight head: f32[1, {family.head}] ~ normal(1)", f"  input target: f32[{family.shape}]"]
    lines += [f"  {line}" for line in family.body]
    lines.append("  loss mse(linear(y, head), target)")
    return "\n".join(lines) + "\n"


def moved_bytes(inputs: list[Tensor], result: Tensor, backward: bool) -> int:
    """Bytes that a pass has to read and write: operands and result, and backward also a gradient of each float. From a
    table whose rows are looked up, no more bytes are read than the result has.
    """
    looks_up = not all(tensor.is_floating_point() for tensor in inputs)
    read = [min(tensor.nbytes, result.nbytes) if looks_up else tensor.nbytes for tensor in inputs]
    gradients = [tensor.nbytes for tensor in inputs if tensor.is_floating_point()] if backward else []
    return sum((*read, result.nbytes, *gradients))

"""Rotary positions in every form in which modules write them, against these modules, and what only resembles them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unity_dsl.importer.model_import import imported_model


class Attention(nn.Module):
    """Attention with 4 heads of 8. The function `turn` rotates queries and keys by tables [positions, 4]."""

    def __init__(self, turn: Callable[[Tensor, Tensor, Tensor], Tensor], sign: float = 1.0, start: int = 0) -> None:
        super().__init__()
        self.turn = turn
        self.q, self.k, self.v = (nn.Linear(32, 32, bias=False) for _ in range(3))
        frequencies = 500.0 ** (-torch.arange(0, 8, 2) / 8)
        angles = sign * torch.outer(torch.arange(start, start + 16).float(), frequencies)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (part(x).view(b, s, 4, 8) for part in (self.q, self.k, self.v))
        q, k = (self.turn(part, self.cosines[:s], self.sines[:s]).transpose(1, 2) for part in (q, k))
        attended = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return F.mse_loss(attended.transpose(1, 2).reshape(b, s, 32), y)


def as_complex(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """As in the published Llama."""
    table = torch.view_as_complex(torch.stack([cosines, sines], -1))
    pairs: Any = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[None, :, None, :]).flatten(3).type_as(x)


def every_two(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """As in GPT-J."""
    cosines, sines = (table.repeat_interleave(2, -1)[None, :, None, :] for table in (cosines, sines))
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cosines + turned * sines


def of_pairs(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    one, two = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cosines, sines = cosines[None, :, None, :], sines[None, :, None, :]
    return torch.stack([one * cosines - two * sines, one * sines + two * cosines], -1).flatten(3)


def from_pairs_to_halves(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """As in DeepSeek-V3."""
    one, two = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cosines, sines = cosines[None, :, None, :], sines[None, :, None, :]
    return torch.cat([one * cosines - two * sines, two * cosines + one * sines], -1)


def of_two_halves(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    cosines, sines = cosines[None, :, None, :], sines[None, :, None, :]
    return torch.cat([one * cosines - two * sines, two * cosines + one * sines], -1)


def with_turned_half(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """As in Llama of transformers, but with heads before positions."""
    cosines, sines = (torch.cat([table, table], -1)[None, None] for table in (cosines, sines))
    x = x.transpose(1, 2)
    one, two = x.chunk(2, -1)
    return (x * cosines + torch.cat([-two, one], -1) * sines).transpose(1, 2)


FORMS = [as_complex, every_two, of_pairs, from_pairs_to_halves, of_two_halves, with_turned_half]


def text_of(module: nn.Module) -> str:
    torch.manual_seed(0)
    found = imported_model(module, (), {"x": torch.randn(4, 8, 32), "y": torch.randn(4, 8, 32)}, "m")
    assert found.verified is not None and found.verified.loss < 1e-7 and found.verified.gradient < 1e-6
    return found.files["m.udl"]


@pytest.mark.parametrize("turn", FORMS, ids=[form.__name__ for form in FORMS])
def test_rotary_positions_are_recognised(turn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    text = text_of(Attention(turn))
    assert text.count("; base=500)") == 2 and "slice(" not in text and "input table" not in text


@pytest.mark.parametrize("turn", FORMS, ids=[form.__name__ for form in FORMS])
@pytest.mark.parametrize("tables", [{"sign": -1.0}, {"start": 1}])
def test_other_tables_stay(turn: Callable[[Tensor, Tensor, Tensor], Tensor], tables: dict[str, Any]) -> None:
    """Tables turn the other way, or start at the second position. The model equals its module and keeps the tables."""
    text = text_of(Attention(turn, **tables))
    assert "rope(" not in text and "input table" in text


def swapped(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    return from_pairs_to_halves(x, sines, cosines)


def added(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    cosines, sines = cosines[None, :, None, :], sines[None, :, None, :]
    return torch.cat([one * cosines - two * sines, one * cosines + two * sines], -1)


def of_other_halves(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    two, one = x.chunk(2, -1)
    return of_two_halves(torch.cat([one, two], -1), cosines, sines)


@pytest.mark.parametrize("turn", [swapped, added, of_other_halves])
def test_what_looks_like_them_stays(turn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Exchanged cosines and sines, another sum, halves in the other order: the model equals the module in any case."""
    text = text_of(Attention(turn))
    assert turn is of_other_halves or "rope(" not in text

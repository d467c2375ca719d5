"""Tensors with guard elements: a read past a tensor's end gives NaN, and a write past it is detected."""

from __future__ import annotations

import torch

GUARD = 64
"""Guard elements before and after a tensor."""


class GuardedMemory:
    """Makes tensors with guards around them, and checks that the guards are unchanged."""

    def __init__(self) -> None:
        self.made: list[tuple[torch.Tensor, int, float | int]] = []

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor with guards around its elements."""
        held = self.empty(tuple(tensor.shape), tensor.dtype)
        held.copy_(tensor)
        return held

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor whose elements and guards are NaN, or the largest integer for integer types."""
        poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max
        count = torch.Size(shape).numel()
        buffer = torch.full((count + 2 * GUARD,), poison, dtype=dtype)
        self.made.append((buffer, count, poison))
        return buffer[GUARD : GUARD + count].view(shape)

    def intact(self) -> bool:
        """Whether the guards of all tensors are unchanged."""
        for buffer, count, poison in self.made:
            around = torch.cat([buffer[:GUARD], buffer[GUARD + count :]])
            kept = around.isnan() if buffer.dtype.is_floating_point else around == poison
            if not bool(kept.all()):
                return False
        return True

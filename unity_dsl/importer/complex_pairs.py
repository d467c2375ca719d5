"""Complex numbers as pairs of real tensors during capture; rotary positions are often written with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .patched_attributes import patched

Number = float | complex | Tensor


@dataclass(frozen=True)
class Pair:
    """A complex tensor, in place of what `torch.view_as_complex` returns, as its real and its imaginary part."""

    real: Tensor
    imag: Tensor

    def __getattr__(self, name: str) -> Any:
        """Methods that move elements apply to both parts; shapes and devices are those of the real part."""
        found = getattr(self.real, name)
        if not callable(found):
            return found

        def both(*args: Any, **named: Any) -> Any:
            made = found(*args, **named)
            return Pair(made, getattr(self.imag, name)(*args, **named)) if isinstance(made, Tensor) else made

        if name in _READING:
            return found
        if name in _MOVING:
            return both
        raise AttributeError(f"complex numbers of a module that is imported have no `{name}`")

    def __getitem__(self, places: Any) -> Pair:
        return Pair(self.real[places], self.imag[places])

    def conj(self) -> Pair:
        return Pair(self.real, -self.imag)

    def __mul__(self, other: Pair | Number) -> Pair:
        real, imag = _parts(other)
        if imag is None:
            return Pair(self.real * real, self.imag * real)
        return Pair(self.real * real - self.imag * imag, self.real * imag + self.imag * real)

    def __add__(self, other: Pair | Number) -> Pair:
        real, imag = _parts(other)
        return Pair(self.real + real, self.imag if imag is None else self.imag + imag)

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __sub__(self, other: Pair) -> Pair:
        return self + -other

    __rmul__, __radd__ = __mul__, __add__


_MOVING = {
    "reshape",
    "view",
    "unsqueeze",
    "squeeze",
    "transpose",
    "permute",
    "flatten",
    "expand",
    "contiguous",
    "narrow",
}
_READING = {"dim", "size", "numel"}


def _parts(one: Pair | Number) -> tuple[Any, Any]:
    """The real and the imaginary part, which is None for a real number."""
    if isinstance(one, Pair | complex):
        return one.real, one.imag
    if isinstance(one, Tensor) and one.is_complex():
        real = torch.view_as_real(one)
        return real[..., 0], real[..., 1]
    return one, None


@contextmanager
def complex_as_pairs() -> Iterator[None]:
    """Inside this context, `torch.view_as_complex` makes pairs, and `torch.view_as_real` accepts them."""
    as_real = torch.view_as_real

    def pair(x: Tensor) -> Pair:
        return Pair(x[..., 0], x[..., 1])

    def real(x: Pair | Tensor) -> Tensor:
        return torch.stack([x.real, x.imag], -1) if isinstance(x, Pair) else as_real(x)

    with patched((torch, "view_as_complex", pair), (torch, "view_as_real", real)):
        yield

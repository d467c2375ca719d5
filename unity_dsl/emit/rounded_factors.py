"""TF32 on a device that has none: float32 matrix products and convolutions round their factors before they multiply.

A TF32 number has the 8 exponent bits of float32 and 10 explicit mantissa bits, so that rounding changes a factor by at
most 2^-11 of itself. Products of such factors are exact in float32, in which they are accumulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

DROPPED = 13
"""Bits of a float32 mantissa that TF32 does not have."""
UNIT_OF_TF32 = 2.0**-11
"""The largest change of a factor by rounding, relative to the factor."""
_FACTORS: Mapping[str, tuple[int, ...]] = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::convolution": (0, 1),
    "aten::convolution_backward": (0, 1, 2),
}
"""Positions of the factors among the arguments of operators that torch computes in TF32 on a GPU. Fused attention is
not among them.
"""
_GROUPED: Mapping[str, tuple[int, int]] = {"aten::convolution": (0, 8), "aten::convolution_backward": (1, 9)}
"""Positions of a convolution's input and of the number of its groups among the arguments."""


def _is_depthwise(name: str, args: Sequence[Any]) -> bool:
    """Whether a call is a convolution with one channel in each of several groups, for which torch has float32 kernels
    of its own.
    """
    if name not in _GROUPED:
        return False
    x, groups = (args[place] for place in _GROUPED[name])
    return bool(groups > 1 and x.shape[1] == groups)


def rounded(x: Tensor) -> Tensor:
    """The TF32 numbers nearest to those of a float32 tensor, ties away from zero. Infinities and NaN are kept."""
    import torch

    half, kept = 1 << (DROPPED - 1), -(1 << DROPPED)
    nearest = ((x.view(torch.int32) + half) & kept).view(torch.float32)
    return torch.where(x.isfinite(), nearest, x)


@contextmanager
def rounding_factors() -> Iterator[None]:
    """In this context all float32 matrix products and convolutions round their factors, backward passes included."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    def factor(x: Any) -> Any:
        return rounded(x) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x

    class Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            name = func._schema.name
            places = () if _is_depthwise(name, args) else _FACTORS.get(name, ())
            given = [factor(x) if place in places else x for place, x in enumerate(args)]
            return func(*given, **(kwargs or {}))

    with Rounding():  # type: ignore[no-untyped-call]
        yield

"""TF32 on a device that has none: products and convolutions of float32 round their factors before they multiply.

A TF32 number has the 8 exponent bits of float32 and 10 explicit bits of its mantissa, so that a factor moves by at most
2^-11 of itself. Products of such factors are exact in float32, in which they are added up.
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
"""By how much of itself a factor moves at most."""
_FACTORS: Mapping[str, tuple[int, ...]] = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::convolution": (0, 1),
    "aten::convolution_backward": (0, 1, 2),
}
"""Places of the factors of what torch computes in TF32 on a GPU. Fused attention is not among them."""
_GROUPED: Mapping[str, tuple[int, int]] = {"aten::convolution": (0, 8), "aten::convolution_backward": (1, 9)}
"""Places of what a convolution reads, and of the number of its groups."""


def _is_depthwise(name: str, args: Sequence[Any]) -> bool:
    """Whether a call has a channel in each of several groups: torch's own kernels of float32 multiply these."""
    if name not in _GROUPED:
        return False
    x, groups = (args[place] for place in _GROUPED[name])
    return bool(groups > 1 and x.shape[1] == groups)


def rounded(x: Tensor) -> Tensor:
    """The nearest TF32 numbers to those of a float32 tensor, ties away from zero; what is not finite stays."""
    import torch

    half, kept = 1 << (DROPPED - 1), -(1 << DROPPED)
    nearest = ((x.view(torch.int32) + half) & kept).view(torch.float32)
    return torch.where(x.isfinite(), nearest, x)


@contextmanager
def rounding_factors() -> Iterator[None]:
    """All products of matrices and convolutions in float32 round their factors, backward passes included."""
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

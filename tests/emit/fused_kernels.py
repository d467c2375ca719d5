"""Kernels that torch has only on a GPU, emulated on a CPU with the tensors that they save for backward."""

from __future__ import annotations

from typing import Any

import torch


class _RMSNorm(torch.autograd.Function):
    """aten::_fused_rms_norm: saves its operands and the reciprocal root of every row, in float32."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
        root = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, gain, root)
        return (x * root).to(x.dtype) * gain

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError("for what is kept alone")


def rms_norm(x: torch.Tensor, shape: list[int], gain: torch.Tensor, eps: float) -> torch.Tensor:
    assert shape == [x.shape[-1]]
    return _RMSNorm.apply(x, gain, eps)  # type: ignore[no-any-return, no-untyped-call]

"""Mixed precision without narrow accumulation: ATen operators, also backward ones, compute in float32 and round
results.

A device's own kernels may accumulate in a narrow type. Their errors are compared with those of this arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def float32_operators() -> Iterator[None]:
    """Operators on bfloat16 and float16 tensors compute in float32. Their first result has the operands' type."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map

    narrow = (torch.bfloat16, torch.float16)

    def wide(x: Any) -> Any:
        if isinstance(x, torch.dtype):  # an operand's type, which the backward of softmax takes
            return torch.float32 if x in narrow else x
        return x.float() if isinstance(x, torch.Tensor) and x.dtype in narrow else x

    class Widening(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            given = dict(kwargs or {})
            leaves, _ = tree_flatten((args, given))
            found = {x.dtype for x in leaves if isinstance(x, torch.Tensor) and x.dtype in narrow}
            promoted = torch.Tag.pointwise in func.tags and any(_is_wide(x) for x in leaves)
            if not found or promoted or given.get("dtype") is not None or func.is_view or func._schema.is_mutable:
                return func(*args, **given)
            made = func(*tree_map(wide, args), **tree_map(wide, given))
            first = made[0] if isinstance(made, tuple) and made else made
            if not isinstance(first, torch.Tensor) or first.dtype != torch.float32:
                return made
            first = first.to(found.pop())
            return (first, *made[1:]) if isinstance(made, tuple) else first

    with Widening():  # type: ignore[no-untyped-call]
        yield


def _is_wide(x: Any) -> bool:
    """Whether an operand makes the result of an elementwise operator float32."""
    import torch

    return isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.dim() > 0

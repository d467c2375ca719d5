"""Caches what is computed from tensors that several places read, for as long as these tensors live."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Found = TypeVar("Found")


def once_a_tensor(read: Callable[[Tensor], Found]) -> Callable[[Tensor], Found]:
    """The function with a cache by tensor: all layers share a mask, and both texts of a draft share the weights."""
    known: Any = WeakIdKeyDictionary()

    @wraps(read)
    def remembered(tensor: Tensor) -> Found:
        if tensor not in known:
            known[tensor] = read(tensor)
        found: Found = known[tensor]
        return found

    return remembered

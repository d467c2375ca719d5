"""Tensors of one device while a step is simulated: their storages, and what autograd records of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..graph.graph import DTYPE_BYTES, Value
from ..graph.layout import Layout, Mesh
from ..index.lowering.local_tensor import Shape, Storage
from ..machine.collective_price import local_fraction


@dataclass(eq=False, slots=True)
class Local:
    """A device's part of a value: `bytes` of a storage, laid out by `strides` (None: contiguous). `moves` says that it
    has a gradient. Two with the same storage are views.

    Neither these objects nor records change once created. They are not frozen because a step has tens of thousands of
    them, and a frozen one takes three times as long to create.
    """

    bytes: int
    storage: Storage
    moves: bool
    strides: Shape | None = None


Cotangents = Sequence[Storage | None]
"""The storages of gradients; None for those that do not exist."""


@dataclass(eq=False, slots=True)
class Recorded:
    """The record that the forward pass leaves for the backward pass. Given the gradients of `outputs`, `run` lists the
    tasks that compute those of `inputs`, which nobody holds yet. `saved` is held until then.

    For a forward that is recomputed first, `again` returns the record to use instead. Gradients that arrive trigger the
    recomputation; without one the result is None.
    """

    inputs: tuple[Local, ...]
    outputs: tuple[Local, ...]
    saved: tuple[Storage, ...]
    run: Callable[[Cotangents], Cotangents]
    again: Callable[[bool], Recorded | None] | None = None


def made(value: Value, layout: Layout, mesh: Mesh) -> Local:
    """A new tensor with a device's part of a value in a layout."""
    count = round(value.elements * DTYPE_BYTES[value.dtype] * local_fraction(layout, mesh))
    return Local(count, Storage(count), value.needs_gradient)

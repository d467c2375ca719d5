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
    """A device's part of a value: `bytes` of a storage, by `strides` (None: contiguous). `moves` says that it has a
    gradient. Two of the same storage are views.

    Nothing changes it, nor what is recorded. They are not frozen, as a step has tens of thousands of them: a frozen one
    takes three times as long to make.
    """

    bytes: int
    storage: Storage
    moves: bool
    strides: Shape | None = None


Cotangents = Sequence[Storage | None]
"""Where gradients lie, None where there is none."""


@dataclass(eq=False, slots=True)
class Recorded:
    """What the forward pass leaves to the backward pass: given the gradients of `outputs`, `run` lists the tasks that
    make those of `inputs`, which nobody holds yet. `saved` is held until then.

    Of what is run again before, `again` returns the record to use instead, which is made then if gradients arrive; None
    where it is not.
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

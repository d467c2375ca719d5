"""The tasks of casts between float types: of stored weights for their readers, and around operators."""

from __future__ import annotations

from ..graph.graph import DTYPE_BYTES, Value
from ..index.lowering.local_tensor import Storage
from ..machine.machine import Machine
from .local_tensors import Local
from .task_list import TaskList


def add_cast(tasks: TaskList, x: Local, source: str, target: str, place: str, machine: Machine) -> Local:
    """A tensor in another float type, contiguous. Nobody holds it yet."""
    count = x.bytes * DTYPE_BYTES[target] // DTYPE_BYTES[source]
    made = Storage(count)
    tasks.kernel("cast", place, machine.traffic_seconds(x.bytes + count), 1, [made], reads=[x.storage])
    return Local(count, made, x.moves)


def as_read(tasks: TaskList, stored: Local, value: Value, place: str, machine: Machine) -> Local:
    """A weight as it is read: the stored tensor itself, or a cast that nobody holds yet."""
    if not value.is_cast:
        return stored
    return add_cast(tasks, stored, value.stored_dtype, value.dtype, place, machine)


def settle_cast(tasks: TaskList, cast: Local, *used: Local) -> None:
    """Frees a cast unless it shares the storage of a tensor that stays in use."""
    if all(cast.storage is not other.storage for other in used):
        tasks.settle([cast.storage])

"""The backward pass as autograd runs it: what was recorded, the latest first, gradients summed where values are read
more than once.
"""

from __future__ import annotations

from collections.abc import Container

from ..graph.layout import Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.machine import Machine
from .gradient_buckets import GradientBuckets
from .local_tensors import Local, Recorded
from .task_list import TaskList


class BackwardPass:
    """Records of a forward pass, and their run. `buckets` sum gradients of parameters over devices."""

    def __init__(self, tasks: TaskList, mesh: Mesh, machine: Machine) -> None:
        self.tasks, self.machine = tasks, machine
        self.buckets = GradientBuckets(tasks, mesh, machine)
        self._records: list[Recorded] = []
        self._arrived: dict[Local, Storage] = {}

    def record(self, record: Recorded) -> None:
        self._records.append(record)

    def run(self, loss: Local, parameters: Container[Local]) -> None:
        """Lists the tasks of the backward pass from the loss. Gradients of parameters are added to those of earlier
        ones, and held.
        """
        first = Storage(loss.bytes)
        self.tasks.kernel("ones", "", 0.0, 1, [first])
        self._give(loss, first)
        while self._records:
            record = self._records.pop()
            outgoing = [self._arrived.pop(tensor, None) for tensor in record.outputs]
            given = [storage for storage in outgoing if storage is not None]
            if given:
                found = record.run(outgoing)
                for tensor, storage in zip(record.inputs, found, strict=True):
                    if storage is not None:
                        self._give(tensor, storage)
            self.tasks.drop(given)
            self.tasks.drop(record.saved)
        others = [tensor for tensor in self._arrived if tensor not in parameters]
        self.tasks.drop([self._arrived.pop(tensor) for tensor in others])

    def finish(self) -> list[Storage]:
        """Lists the tasks after the last backward pass. Returns the parameters' gradients, which are held."""
        gradients = list(self._arrived.values())
        self._arrived.clear()
        return [*gradients, *self.buckets.finish()]

    def _give(self, tensor: Local, gradient: Storage) -> None:
        """The gradient of one use; that of another is added to it in place."""
        before = self._arrived.get(tensor)
        if before is None:
            self.tasks.hold([gradient])
            self._arrived[tensor] = gradient
            return
        alone = self.tasks.holders(before) == 1
        target = before if alone else Storage(tensor.bytes)
        seconds = self.machine.traffic_seconds(3 * tensor.bytes)
        self.tasks.kernel("add gradients", "", seconds, 1, [] if alone else [target])
        if not alone:
            self.tasks.hold([target])
            self.tasks.drop([before])
            self._arrived[tensor] = target
        self.tasks.settle([gradient])

"""The backward pass as autograd runs it: records in reverse order. Gradients of values that are read more than once are
summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..graph.layout import Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.machine import Machine
from ..machine.operator_price import ACCUMULATION_PASSES
from .gradient_buckets import GradientBuckets
from .listed_iterations import Stretch
from .local_tensors import Local, Recorded
from .task_list import TaskList


class Complete(Exception):
    """A recomputation has made everything that the backward pass needs."""


class BackwardPass:
    """The records of a forward pass, and their backward pass. `buckets` of `bucket_bytes` sum gradients of parameters
    over devices.
    """

    def __init__(self, tasks: TaskList, mesh: Mesh, machine: Machine, bucket_bytes: int) -> None:
        self.tasks, self.machine = tasks, machine
        self.buckets = GradientBuckets(tasks, mesh, machine, bucket_bytes)
        self._records: list[Recorded] = []
        self._arrived: dict[Local, Storage] = {}
        self._last: int | None = None
        self._marks: list[tuple[int, Stretch | None]] = []

    def record(self, record: Recorded) -> None:
        self._records.append(record)

    def mark(self, stretch: Stretch | None) -> None:
        """Marks the records from here on as those of a stretch, or of none."""
        self._marks.append((len(self._records), stretch))

    def _come_to(self, record: int) -> None:
        """Marks the tasks of a record if its stretch differs from that of the record before."""
        before = len(self._marks)
        while self._marks and self._marks[-1][0] > record:
            self._marks.pop()
        if len(self._marks) < before:
            self.tasks.mark(self._marks[-1][1] if self._marks else None, self.buckets.waiting())

    @property
    def recorded(self) -> int:
        """The number of records so far."""
        return len(self._records)

    @property
    def is_last(self) -> bool:
        """Whether a recomputation needs nothing after the next record."""
        return self._last == len(self._records)

    def recompute(self, first: int, entering: Sequence[Storage], forward: Callable[[], None]) -> None:
        """Holds only `entering` instead of what the records from number `first` on saved. When gradients reach one of
        these records, `forward` lists them anew, up to the latest one that saved something. Complete ends it there.
        """
        saving = [number for number in range(first, len(self._records)) if self._is_kept(self._records[number])]
        if not saving:
            return
        made: list[Recorded] = []

        def again(number: int, reached: bool) -> Recorded | None:
            if reached and not made:
                made.extend(self._run_again(saving[-1] - first, forward))
            return made[number - first] if made else None

        self.tasks.hold(entering)
        for number in saving:
            self.tasks.drop(self._records[number].saved)
            kept = tuple(entering) if number == saving[0] else ()
            self._records[number] = replace(self._records[number], saved=kept, again=partial(again, number))

    @staticmethod
    def _is_kept(record: Recorded) -> bool:
        return bool(record.saved) or record.again is not None

    def _run_again(self, last: int, forward: Callable[[], None]) -> list[Recorded]:
        """Calls `forward` and returns its records, up to number `last`."""
        first, outer = len(self._records), self._last
        self._last = first + last
        with suppress(Complete):
            forward()
        self._last = outer
        made = self._records[first:]
        del self._records[first:]
        return made

    def run(self, loss: Local, parameters: Mapping[Local, int]) -> None:
        """Lists the tasks of the backward pass from the loss. Gradients of parameters are added to earlier ones and
        held. Each represents the gradients of as many parameters as `parameters` says.
        """
        first = Storage(loss.bytes)
        # It is made like the loss: autograd knows the recorded operations once the forward pass was issued.
        self.tasks.kernel("ones", "", 0.0, 1, [first], reads=[loss.storage])
        self._give(loss, first, parameters)
        while self._records:
            self._come_to(len(self._records) - 1)
            record = self._records.pop()
            outgoing = [self._arrived.pop(tensor, None) for tensor in record.outputs]
            given = [storage for storage in outgoing if storage is not None]
            saved, used = [*record.saved], record
            while used.again is not None and (made := used.again(bool(given))) is not None:
                used = made
                saved += used.saved
            if given:
                found = used.run(outgoing)
                for tensor, storage in zip(record.inputs, found, strict=True):
                    if storage is not None:
                        self._give(tensor, storage, parameters)
            self.tasks.drop(given)
            self.tasks.drop(saved)
        self._come_to(-1)
        others = [tensor for tensor in self._arrived if tensor not in parameters]
        self.tasks.drop([self._arrived.pop(tensor) for tensor in others])

    def finish(self) -> list[Storage]:
        """Lists the tasks after the last backward pass. Returns the parameters' gradients, which are held."""
        gradients = list(self._arrived.values())
        self._arrived.clear()
        return [*gradients, *self.buckets.finish()]

    def _give(self, tensor: Local, gradient: Storage, parameters: Mapping[Local, int]) -> None:
        """Takes the gradient of one use of a tensor. Gradients of other uses are added to it, in place if nothing else
        holds it.
        """
        before = self._arrived.get(tensor)
        if before is None:
            self.tasks.hold([gradient])
            self._arrive(tensor, gradient, parameters)
            return
        alone = self.tasks.holders(before) == 1
        target = before if alone else Storage(tensor.bytes)
        seconds = self.machine.traffic_seconds(ACCUMULATION_PASSES * tensor.bytes)
        added = [before, gradient]
        self.tasks.kernel("add gradients", "", seconds, 1, [] if alone else [target], reads=added, into=[target])
        if not alone:
            self.tasks.hold([target])
            self.tasks.drop([before])
            self._arrive(tensor, target, parameters)
        self.tasks.settle([gradient])

    def _arrive(self, tensor: Local, gradient: Storage, parameters: Mapping[Local, int]) -> None:
        """Notes the storage that holds a tensor's gradient from now on."""
        self._arrived[tensor] = gradient
        if tensor in parameters:
            self.tasks.mark_gradient(gradient, (parameters[tensor] - 1) * gradient.bytes)

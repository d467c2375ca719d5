"""The tasks that sum parameters' gradients over groups of devices, in buckets, while the backward pass goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph.collective_steps import Step, StepKind
from ..graph.graph import Value
from ..graph.layout import Mesh
from ..graph.layout_conversion import BUCKET_MIB
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import packs
from ..machine.machine import Machine
from .collective_tasks import add_collective, add_copy
from .task import Purpose
from .task_list import TaskList

_Key = tuple[tuple[int, ...], StepKind, str]


@dataclass(eq=False)
class _Gradient:
    """What is to be summed of a parameter: its part of a bucket, of which a device keeps `kept` bytes."""

    name: str
    rows: Storage
    kept: int


@dataclass(eq=False)
class _Flying:
    """A bucket on its way: its task, where the sum will lie, and what of it each parameter keeps."""

    task: int
    result: Storage
    parameters: list[_Gradient]


@dataclass
class GradientBuckets:
    """As the emitted GradientSync does it."""

    tasks: TaskList
    mesh: Mesh
    machine: Machine
    _waiting: dict[_Key, list[_Gradient]] = field(default_factory=dict)
    _flying: list[_Flying] = field(default_factory=list)

    def add(self, value: Value, step: Step, gradient: Storage, name: str) -> None:
        """A gradient that autograd is done with, and the step over a group that is left to do. Takes over its hold."""
        tasks = self.tasks
        rows, kept = gradient, gradient.bytes
        if step.kind is StepKind.REDUCE_SCATTER:
            kept = gradient.bytes // self.mesh.degree(step.axes)
        if packs(step):
            rows = self._copy("pack", name, gradient.bytes)
            tasks.drop([gradient])
        key = step.axes, step.kind, value.dtype
        bucket = self._waiting.setdefault(key, [])
        bucket.append(_Gradient(name, rows, kept))
        if sum(part.rows.bytes for part in bucket) >= BUCKET_MIB * 2**20:
            self._send(key)

    def finish(self) -> list[Storage]:
        """Sends what is left, waits for everything. Returns the gradients, which are held."""
        for key in list(self._waiting):
            self._send(key)
        found = []
        for flying in self._flying:
            self.tasks.wait(flying.task)
            found += [self._copy("keep", part.name, part.kept) for part in flying.parameters]
            self.tasks.drop([flying.result])
        self._flying.clear()
        return found

    def _send(self, key: _Key) -> None:
        axes, kind, _ = key
        parts = self._waiting.pop(key)
        name = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
        flat = self._copy("bucket", name, sum(part.rows.bytes for part in parts))
        self.tasks.drop(part.rows for part in parts)
        in_place = kind is StepKind.ALL_REDUCE
        result = flat if in_place else Storage(sum(part.kept for part in parts))
        builds = [] if in_place else [result]
        step, purpose = Step(kind, axes), Purpose.GRADIENTS
        task = add_collective(self.tasks, step, name, flat.bytes, self.mesh, self.machine, builds, purpose)
        self.tasks.hold([result])
        self.tasks.drop([flat])
        self._flying.append(_Flying(task, result, parts))

    def _copy(self, what: str, name: str, count: int) -> Storage:
        """A copy that is held."""
        made = add_copy(self.tasks, what, name, count, self.machine)
        self.tasks.hold([made])
        return made

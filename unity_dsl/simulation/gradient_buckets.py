"""The tasks that sum parameters' gradients over groups of devices, in buckets, while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..graph.collective_steps import Step, StepKind
from ..graph.graph import Value
from ..graph.layout import Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import packs
from ..machine.machine import Machine
from ..machine.operator_price import ACCUMULATION_PASSES
from .collective_tasks import add_collective, add_copy
from .local_tensors import Local
from .task import Purpose
from .task_list import TaskList

_Key = tuple[tuple[int, ...], StepKind, str]


@dataclass(eq=False)
class _Gradient:
    """What is to be summed of a parameter: so many `bytes`, from `rows`; a device keeps `kept` of the sum. It stands
    for the gradients of as many parameters as `times` says.
    """

    name: str
    rows: Storage
    bytes: int
    kept: int
    times: int

    @property
    def more(self) -> int:
        """Bytes that are kept of the sums of others."""
        return (self.times - 1) * self.kept


@dataclass(eq=False)
class _Flying:
    """A bucket on its way: its task, where the sums will lie, and what of them each parameter keeps; whether it
    `lands`, to be added to those of other passes.
    """

    task: int
    results: list[Storage]
    parameters: list[_Gradient]
    lands: bool


@dataclass
class GradientBuckets:
    """As the emitted GradientSync does it: a bucket is sent when it holds `bucket_bytes`. While `accumulating`,
    gradients of which a device keeps all are added up.
    """

    tasks: TaskList
    mesh: Mesh
    machine: Machine
    bucket_bytes: int
    accumulating: bool = False
    _sums: dict[str, Local] = field(default_factory=dict)
    _landed: dict[str, Local] = field(default_factory=dict)
    _waiting: dict[_Key, list[_Gradient]] = field(default_factory=dict)
    _flying: list[_Flying] = field(default_factory=list)

    def add(self, value: Value, step: Step, gradient: Local, name: str, times: int = 1) -> None:
        """A gradient that autograd is done with, perhaps a view, and the step over a group that is left to do; it may
        stand for those of several parameters. Takes over its hold.
        """
        tasks = self.tasks
        tasks.hold_gradient(gradient.storage)
        if step.kind is StepKind.ALL_REDUCE:
            before = self._sums.pop(name, None)
            gradient = self._added(before, gradient)
            if self.accumulating:
                tasks.hold_gradient(gradient.storage, (times - 1) * gradient.bytes if before is None else 0.0)
                self._sums[name] = gradient
                return
        rows, kept = gradient.storage, gradient.bytes
        if step.kind is StepKind.REDUCE_SCATTER:
            kept = gradient.bytes // self.mesh.degree(step.axes)
        if packs(step):
            rows = self._copy("pack", name, gradient.bytes, [gradient.storage])
            tasks.drop([gradient.storage])
        key = step.axes, step.kind, value.dtype
        bucket = self._waiting.setdefault(key, [])
        bucket.append(_Gradient(name, rows, gradient.bytes, kept, times))
        if sum(part.bytes for part in bucket) >= self.bucket_bytes:
            self._send(key)

    def finish(self) -> list[Storage]:
        """Sends what is left, waits for everything. Returns what holds the gradients, and is held for each of them."""
        for key in list(self._waiting):
            self._send(key)
        found = []
        while self._flying and not self._landed:
            flying = self._flying.pop(0)
            self.tasks.wait(flying.task)
            found += flying.results
        while self._flying:
            self._land()
        found += [landed.storage for landed in self._landed.values()]
        self._landed.clear()
        return found

    def _land(self) -> None:
        """Waits for the bucket that was sent first, and adds what it brings to what earlier backward passes brought."""
        flying = self._flying.pop(0)
        self.tasks.wait(flying.task)
        for number, part in enumerate(flying.parameters):
            brought = flying.results[number if len(flying.results) > 1 else 0]
            self.tasks.hold([brought])
            before = self._landed.get(part.name)
            if before is None and flying.lands:
                self.tasks.hold_gradient(brought, part.more)
            self._landed[part.name] = self._added(before, Local(part.kept, brought, False))
        self.tasks.drop(flying.results)

    def _added(self, before: Local | None, gradient: Local) -> Local:
        """The sum of two gradients, in place of the first. Takes over the hold of both."""
        if before is None:
            return gradient
        seconds, added = self.machine.traffic_seconds(ACCUMULATION_PASSES * gradient.bytes), before.storage
        self.tasks.kernel("add gradients", "", seconds, reads=[added, gradient.storage], into=[added])
        self.tasks.drop([gradient.storage])
        return before

    def _send(self, key: _Key) -> None:
        axes, kind, _ = key
        parts = self._waiting.pop(key)
        name = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
        flat = self._copy("bucket", name, sum(part.bytes for part in parts), [part.rows for part in parts])
        self.tasks.drop(part.rows for part in parts)
        in_place = kind is StepKind.ALL_REDUCE
        results = [flat] if in_place else [Storage(part.kept) for part in parts]
        builds = [] if in_place else results
        step, purpose = Step(kind, axes), Purpose.GRADIENTS
        task = add_collective(
            self.tasks, step, name, flat.bytes, self.mesh, self.machine, builds, purpose, reads=[flat]
        )
        self.tasks.hold(results)
        self.tasks.drop([flat])
        lands = self.accumulating or bool(self._landed)
        for number, result in enumerate(results):
            own = parts if in_place else [parts[number]]
            self.tasks.hold_gradient(result, 0.0 if lands else sum(part.more for part in own))
        self._flying.append(_Flying(task, results, parts, lands))
        while lands and len(self._flying) > 1:
            self._land()

    def _copy(self, what: str, name: str, count: int, reads: Sequence[Storage]) -> Storage:
        """A copy that is held."""
        made = add_copy(self.tasks, what, name, count, self.machine, reads)
        self.tasks.hold([made])
        self.tasks.hold_gradient(made)
        return made

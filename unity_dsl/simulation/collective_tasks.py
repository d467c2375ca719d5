"""The tasks of conversions between layouts: collectives, and the copies before and after them."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.collective_steps import LOCAL_STEPS, Step, StepKind
from ..graph.graph import Value
from ..graph.layout import Layout, Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import Price, price_step
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from .local_tensors import Local
from .task import Traffic
from .task_list import TaskList

DEFERRED = frozenset({StepKind.ALL_REDUCE, StepKind.REDUCE_SCATTER})
"""Last steps of a parameter's gradient, which are done in buckets."""


def begins_gathering(steps: Sequence[Step]) -> bool:
    """Whether a weight's conversion begins with what can be under way before the weight is read."""
    return bool(steps) and steps[0].kind is StepKind.ALL_GATHER


def channel_of(axes: tuple[int, ...], mesh: Mesh) -> str:
    """The channel of a group of devices: the names of its mesh axes."""
    return ", ".join(mesh.axes[axis].name for axis in axes)


def add_collective(
    tasks: TaskList, step: Step, place: str, count: float, held: float, mesh: Mesh, machine: Machine
) -> int:
    """A collective of a tensor of `count` bytes, of which a device holds the fraction `held`. Returns its task."""
    price, _ = price_step(step, mesh, machine, held)
    return _collective(tasks, step, place, price, count, (), mesh)


def _collective(
    tasks: TaskList, step: Step, place: str, price: Price, count: float, builds: Sequence[Storage], mesh: Mesh
) -> int:
    level = max(mesh.axes[axis].level for axis in step.axes)
    sending = price.per_byte * count
    return tasks.collective(
        step.kind.value,
        place,
        price.seconds(count),
        channel_of(step.axes, mesh),
        (Traffic(level, sending),),
        count,
        builds,
    )


class Conversions:
    """Lists the tasks of conversions of values on a mesh."""

    def __init__(self, tasks: TaskList, prices: ConversionModel) -> None:
        self.tasks, self.prices = tasks, prices

    def run(self, steps: Sequence[Step], x: Local, value: Value, start: Layout, place: str) -> Local:
        """The tensor after steps, one after the other; later kernels wait for it. Nobody holds it yet."""
        count = float(value.bytes)
        for number, (step, (price, held)) in enumerate(
            zip(steps, self.prices.prices(steps, start, value.shape), strict=True)
        ):
            made = self._step(step, x, price, count, round(held * count), place)
            if number:
                self.tasks.settle([x.storage] if x.storage is not made.storage else [])
            x = made
        return x

    def _step(self, step: Step, x: Local, price: Price, count: float, after: int, place: str) -> Local:
        mesh, tasks = self.prices.mesh, self.tasks
        if step.kind is StepKind.SLICE:
            return Local(after, x.storage, x.moves)
        made = Storage(after)
        if step.kind in LOCAL_STEPS:
            machine = self.prices.machine
            seconds = price.seconds(count) - machine.launch_seconds
            tasks.kernel(step.kind.value, place, max(seconds, 0.0), 1, [made])
            return Local(after, made, x.moves)
        packed = [self._copy("pack", x.bytes, place)] if step.kind in _PACKED else []
        arrived = Storage(after) if step.kind is StepKind.ALL_TO_ALL or _joins(step) else made
        tasks.wait(_collective(tasks, step, place, price, count, [arrived], mesh))
        tasks.settle(packed)
        if arrived is not made:
            self._copy("join", after, place, made)
            tasks.settle([arrived])
        return Local(after, made, x.moves)

    def _copy(self, name: str, count: int, place: str, target: Storage | None = None) -> Storage:
        """A kernel that copies so many bytes."""
        made = Storage(count) if target is None else target
        machine = self.prices.machine
        seconds = 2 * count / (machine.memory_bandwidth * machine.memory_efficiency)
        self.tasks.kernel(name, place, seconds, 1, [made])
        return made


_PACKED = frozenset({StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL})
"""Collectives that send the blocks of a copy."""


def _joins(step: Step) -> bool:
    """Whether what members send is copied to where it belongs: blocks of the first dimension lie there already."""
    return step.kind is StepKind.ALL_GATHER and step.dim != 0

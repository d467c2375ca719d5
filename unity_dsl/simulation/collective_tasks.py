"""The tasks of conversions between layouts: collectives, and the copies before and after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..graph.collective_steps import BEGUN, Step, StepKind
from ..graph.graph import Value
from ..graph.layout import Layout, Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import joins, packs, price_step
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..machine.price import Price, Transfer
from .local_tensors import Local
from .task import Purpose, Traffic
from .task_list import TaskList


def channel_of(axes: tuple[int, ...], mesh: Mesh) -> str:
    """The channel of a group of devices: the names of its mesh axes."""
    return ", ".join(mesh.axes[axis].name for axis in axes)


def add_collective(
    tasks: TaskList,
    step: Step,
    place: str,
    count: float,
    mesh: Mesh,
    machine: Machine,
    builds: Sequence[Storage] = (),
    purpose: Purpose = Purpose.VALUES,
    *,
    reads: Sequence[Storage],
) -> int:
    """Lists a collective of tensors with `count` bytes on each device. If it `builds` nothing, its result is made in
    place of what it `reads`. Returns its task.
    """
    price, _ = price_step(step, mesh, machine, 1.0)
    return sent_by(described(step), step, price.transfer(count), mesh).listed(tasks, place, builds, purpose, reads)


def described(step: Step) -> str:
    """The name of a step's task."""
    return f"{step.kind.value} in two steps" if step.first else step.kind.value


def add_copy(tasks: TaskList, name: str, place: str, count: int, machine: Machine, reads: Iterable[Storage]) -> Storage:
    """A kernel that copies `count` bytes to a new storage, which nobody holds yet."""
    made = Storage(count)
    tasks.kernel(name, place, machine.traffic_seconds(2 * count), 1, [made], reads=reads)
    return made


@dataclass(frozen=True)
class Sent:
    """A collective at any place of the model: the arguments of `TaskList.collective`."""

    kind: str
    seconds: float
    channel: str
    traffic: tuple[Traffic, ...]
    sent: float
    limit: str

    def listed(
        self, tasks: TaskList, place: str, builds: Sequence[Storage], purpose: Purpose, reads: Sequence[Storage]
    ) -> int:
        given = self.kind, place, self.seconds, self.channel, self.traffic, self.sent, builds, self.limit
        return tasks.collective(*given, purpose, reads, () if builds else reads)


def sent_by(name: str, step: Step, transfer: Transfer, mesh: Mesh) -> Sent:
    """The collective of that name for a transfer in the group of a step."""
    traffic = tuple(Traffic(link.level, link.seconds) for link in transfer.links)
    limit = "link" if 2 * transfer.latency <= transfer.seconds else "latency"
    return Sent(name, transfer.seconds, channel_of(step.axes, mesh), traffic, transfer.sent, limit)


@dataclass(frozen=True)
class _Made:
    """A step of a conversion, as in every iteration of a repeat. `after` is the size in bytes of a device's result. It
    is made `by` a view (None), a kernel of so many seconds, or a collective.
    """

    step: Step
    after: int
    by: float | Sent | None


class Conversions:
    """Lists the tasks of conversions of values on a mesh."""

    def __init__(self, tasks: TaskList, prices: ConversionModel) -> None:
        self.tasks, self.prices = tasks, prices
        self._known: dict[object, tuple[_Made, ...]] = {}

    def run(self, steps: Sequence[Step], x: Local, value: Value, start: Layout, place: str) -> Local:
        """The tensor after the steps in order. Later kernels wait for it. Nobody holds it yet."""
        return self._through(self._made(steps, value, start), x, x, place)

    def start_together(
        self, gathers: Sequence[tuple[Step, Local, Value, Layout]], place: str, *, ahead: bool
    ) -> tuple[list[Local], int]:
        """All-gathers several tensors in one group as one collective. Returns the tensors that will arrive, and the
        task. They may be needed at once, or prefetched (`ahead`).
        """
        arriving = []
        for step, x, value, start in gathers:
            (made,) = self._made((step,), value, start)
            arriving.append(Local(made.after, Storage(made.after), x.moves))
        first, _, _, _ = gathers[0]
        storages = [tensor.storage for tensor in arriving]
        name = place if len(gathers) == 1 else f"{place} and {len(gathers) - 1} more"
        self.tasks.hold(storages)
        mesh, machine = self.prices.mesh, self.prices.machine
        held = sum(tensor.bytes for tensor in arriving) / mesh.degree(first.axes)
        purpose = Purpose.WEIGHTS if ahead else Purpose.VALUES
        reads = [x.storage for _, x, _, _ in gathers]
        return arriving, add_collective(self.tasks, first, name, held, mesh, machine, storages, purpose, reads=reads)

    def run_begun(
        self, steps: Sequence[Step], arriving: Local, task: int, value: Value, start: Layout, place: str
    ) -> Local:
        """The tensor after steps whose first one, an all-gather, was started before."""
        self.tasks.wait(task)
        first, *rest = self._made(steps, value, start)
        x = arriving
        if joins(first.step):
            x = Local(first.after, self._copy("join", first.after, place, arriving.storage), arriving.moves)
        x = self._through(rest, x, arriving, place)
        if x.storage is not arriving.storage:
            self.tasks.drop([arriving.storage])
        else:
            self.tasks.release(arriving.storage)
        return x

    def _through(self, every: Iterable[_Made], x: Local, given: Local, place: str) -> Local:
        """The tensor after the steps. Intermediate tensors are freed, the `given` one is not."""
        for one in every:
            made = self._step(one, x, place)
            self.tasks.settle([] if x.storage in (given.storage, made.storage) else [x.storage])
            x = made
        return x

    def _made(self, steps: Sequence[Step], value: Value, start: Layout) -> tuple[_Made, ...]:
        """How each step is made. Computed once for all iterations."""
        key = *steps, start, value.shape, value.bytes
        if key not in self._known:
            prices = zip(steps, self.prices.prices(steps, start, value.shape), strict=True)
            self._known[key] = tuple(
                _Made(step, round(held * value.bytes), self._way(step, price, value)) for step, (price, held) in prices
            )
        return self._known[key]

    def _way(self, step: Step, price: Price, value: Value) -> float | Sent | None:
        if step.kind is StepKind.SLICE:
            return None
        count, prices = float(value.bytes), self.prices
        if prices.stays(step, value.shape):
            return max(price.seconds(count) - prices.machine.launch_seconds, 0.0)
        return sent_by(described(step), step, price.transfer(count), prices.mesh)

    def begin(
        self, steps: Sequence[Step], x: Local, value: Value, start: Layout, place: str
    ) -> tuple[Local, Callable[[], None]]:
        """Starts a conversion. Returns the resulting tensor, and a callable after whose call later kernels may read it.
        All steps are run but the last, if that can be started asynchronously. Nobody holds the tensor yet.
        """
        every = self._made(steps, value, start)
        if not every or every[-1].step.kind not in BEGUN or not isinstance(last := every[-1].by, Sent):
            return self._through(every, x, x, place), lambda: None
        before = self._through(every[:-1], x, x, place)
        sent = self._send(every[-1], last, before, place)
        self.tasks.settle([] if before.storage is x.storage else [before.storage])
        return sent

    def _step(self, one: _Made, x: Local, place: str) -> Local:
        if one.by is None:
            return Local(one.after, x.storage, x.moves)
        if isinstance(one.by, Sent):
            found, end = self._send(one, one.by, x, place)
            end()
            return found
        made = Storage(one.after)
        self.tasks.kernel(one.step.kind.value, place, one.by, 1, [made], reads=[x.storage])
        return Local(one.after, made, x.moves)

    def _send(self, one: _Made, by: Sent, x: Local, place: str) -> tuple[Local, Callable[[], None]]:
        """Starts a collective. Returns its result, and a callable that makes later kernels wait for it."""
        tasks, step, after, arrived = self.tasks, one.step, one.after, Storage(one.after)
        packed = [self._copy("pack", x.bytes, place, x.storage)] if packs(step) else []
        task = by.listed(tasks, place, [arrived], Purpose.VALUES, packed or [x.storage])
        tasks.settle(packed)
        if not joins(step):
            return Local(after, arrived, x.moves), lambda: tasks.wait(task)
        made = Storage(after)
        tasks.hold([arrived])

        def end() -> None:
            tasks.wait(task)
            seconds = self.prices.machine.traffic_seconds(2 * after)
            tasks.kernel("join", place, seconds, 1, [made], reads=[arrived])
            tasks.drop([arrived])

        return Local(after, made, x.moves), end

    def _copy(self, name: str, count: int, place: str, read: Storage) -> Storage:
        return add_copy(self.tasks, name, place, count, self.prices.machine, [read])

"""The tasks of conversions between layouts: collectives, and the copies before and after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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
    """A collective of tensors of which each device holds `count` bytes; what it `builds` nothing for is made in place
    of what it `reads`. Returns its task.
    """
    price, _ = price_step(step, mesh, machine, 1.0)
    return _collective(tasks, step, place, price.transfer(count), builds, mesh, purpose, reads)


def add_copy(tasks: TaskList, name: str, place: str, count: int, machine: Machine, reads: Iterable[Storage]) -> Storage:
    """A kernel that copies so many bytes to a new storage, which nobody holds yet."""
    made = Storage(count)
    tasks.kernel(name, place, machine.traffic_seconds(2 * count), 1, [made], reads=reads)
    return made


def _collective(
    tasks: TaskList,
    step: Step,
    place: str,
    transfer: Transfer,
    builds: Sequence[Storage],
    mesh: Mesh,
    purpose: Purpose,
    reads: Sequence[Storage],
) -> int:
    traffic = tuple(Traffic(link.level, link.seconds) for link in transfer.links)
    channel = channel_of(step.axes, mesh)
    limit = "link" if 2 * transfer.latency <= transfer.seconds else "latency"
    kind, seconds, sent = step.kind.value, transfer.seconds, transfer.sent
    into = () if builds else reads
    return tasks.collective(kind, place, seconds, channel, traffic, sent, builds, limit, purpose, reads, into)


class Conversions:
    """Lists the tasks of conversions of values on a mesh."""

    def __init__(self, tasks: TaskList, prices: ConversionModel) -> None:
        self.tasks, self.prices = tasks, prices
        self._known: dict[object, tuple[tuple[Step, Price, int], ...]] = {}

    def run(self, steps: Sequence[Step], x: Local, value: Value, start: Layout, place: str) -> Local:
        """The tensor after steps, one after the other; later kernels wait for it. Nobody holds it yet."""
        return self._through(self._priced(steps, value, start), x, x, value, place)

    def start_together(
        self, gathers: Sequence[tuple[Step, Local, Value, Layout]], place: str, *, ahead: bool
    ) -> tuple[list[Local], int]:
        """All-gathers of several tensors in one group, as one collective: what will have arrived, and its task. They
        may be wanted at once, or be begun `ahead`.
        """
        arriving = []
        for step, x, value, start in gathers:
            ((_, _, after),) = self._priced((step,), value, start)
            arriving.append(Local(after, Storage(after), x.moves))
        first, _, _, _ = gathers[0]
        made = [tensor.storage for tensor in arriving]
        name = place if len(gathers) == 1 else f"{place} and {len(gathers) - 1} more"
        self.tasks.hold(made)
        mesh, machine = self.prices.mesh, self.prices.machine
        held = sum(tensor.bytes for tensor in arriving) / mesh.degree(first.axes)
        purpose = Purpose.WEIGHTS if ahead else Purpose.VALUES
        reads = [x.storage for _, x, _, _ in gathers]
        return arriving, add_collective(self.tasks, first, name, held, mesh, machine, made, purpose, reads=reads)

    def run_begun(
        self, steps: Sequence[Step], arriving: Local, task: int, value: Value, start: Layout, place: str
    ) -> Local:
        """The tensor after steps of which the first, an all-gather, was started before."""
        self.tasks.wait(task)
        (first, _, after), *rest = self._priced(steps, value, start)
        x = arriving
        if joins(first):
            x = Local(after, self._copy("join", after, place, arriving.storage), arriving.moves)
        x = self._through(rest, x, arriving, value, place)
        if x.storage is not arriving.storage:
            self.tasks.drop([arriving.storage])
        else:
            self.tasks.release(arriving.storage)
        return x

    def _through(
        self, priced: Iterable[tuple[Step, Price, int]], x: Local, given: Local, value: Value, place: str
    ) -> Local:
        """The tensor after steps. What is between is freed, what was `given` is not."""
        for step, price, after in priced:
            made = self._step(step, x, price, value, after, place)
            self.tasks.settle([] if x.storage in (given.storage, made.storage) else [x.storage])
            x = made
        return x

    def _priced(self, steps: Sequence[Step], value: Value, start: Layout) -> tuple[tuple[Step, Price, int], ...]:
        """Every step with its price, and the bytes that a device holds after it: found once for each iteration."""
        key = *steps, start, value.shape, value.bytes
        if key not in self._known:
            prices = zip(steps, self.prices.prices(steps, start, value.shape), strict=True)
            self._known[key] = tuple((step, price, round(held * value.bytes)) for step, (price, held) in prices)
        return self._known[key]

    def begin(
        self, steps: Sequence[Step], x: Local, value: Value, start: Layout, place: str
    ) -> tuple[Local, Callable[[], None]]:
        """The tensor after steps, which later kernels may read when what is returned beside it was called. All steps
        are taken but for the last one, if that can be begun. Nobody holds it yet.
        """
        priced = self._priced(steps, value, start)
        if not priced or priced[-1][0].kind not in BEGUN:
            return self._through(priced, x, x, value, place), lambda: None
        before = self._through(priced[:-1], x, x, value, place)
        step, price, after = priced[-1]
        sent = self._send(step, price, after, before, place, float(value.bytes))
        self.tasks.settle([] if before.storage is x.storage else [before.storage])
        return sent

    def _step(self, step: Step, x: Local, price: Price, value: Value, after: int, place: str) -> Local:
        tasks, shape, count = self.tasks, value.shape, float(value.bytes)
        if step.kind is StepKind.SLICE:
            return Local(after, x.storage, x.moves)
        if self.prices.stays(step, shape):
            made = Storage(after)
            seconds = price.seconds(count) - self.prices.machine.launch_seconds
            tasks.kernel(step.kind.value, place, max(seconds, 0.0), 1, [made], reads=[x.storage])
            return Local(after, made, x.moves)
        found, end = self._send(step, price, after, x, place, count)
        end()
        return found

    def _send(
        self, step: Step, price: Price, after: int, x: Local, place: str, count: float
    ) -> tuple[Local, Callable[[], None]]:
        """What a collective brings, of a value of `count` bytes, and what makes later kernels wait for it."""
        tasks, arrived = self.tasks, Storage(after)
        packed = [self._copy("pack", x.bytes, place, x.storage)] if packs(step) else []
        transfer, read = price.transfer(count), packed or [x.storage]
        task = _collective(tasks, step, place, transfer, [arrived], self.prices.mesh, Purpose.VALUES, read)
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

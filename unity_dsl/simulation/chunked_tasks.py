"""The tasks of communication that overlaps with a decomposed matmul: blocks of a gathered tensor, partial sums of a
result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph.chunked_products import ChunkedProduct
from ..graph.collective_steps import Step, StepKind
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import price_block, price_step
from ..machine.conversion_model import ConversionModel
from ..machine.price import Transfer
from .collective_tasks import Sent, sent_by
from .local_tensors import Local
from .task import Purpose
from .task_list import TaskList

SEND = "send"
"""The name of the task that sends a block to one device and receives that of another."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a gathered tensor, in the order in which they are multiplied: the storage that represents each, and
    the task that receives it. The task is None for the device's own block.
    """

    pieces: tuple[Storage, ...]
    tasks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Chunks:
    """How a product runs in parts: its operand comes in `arriving` blocks, or its result is sent as `summed`. In the
    backward pass, `returning` has the blocks of the incoming gradient if that is gathered.
    """

    product: ChunkedProduct
    arriving: Blocks | None = None
    summed: PartialSums | None = None
    returning: list[Blocks] = field(default_factory=list)


def gather_blocks(tasks: TaskList, prices: ConversionModel, step: Step, x: Local, place: str) -> tuple[Local, Blocks]:
    """Starts to gather a tensor block by block. Each block of another device is received by a task of its own; the
    device's own block is copied. Nobody holds the tensor yet.
    """
    mesh, machine = prices.mesh, prices.machine
    degree = mesh.degree(step.axes)
    whole = Local(degree * x.bytes, Storage(degree * x.bytes), x.moves)
    own, *others = (Storage(0) for _ in range(degree))
    sent = sent_by(SEND, step, price_block(step, mesh, machine).transfer(float(x.bytes)), mesh)
    found: list[int | None] = [None]
    for number, piece in enumerate(others):
        builds, into = [] if number else [whole.storage], [piece, whole.storage]
        found.append(_listed(tasks, sent, place, builds, [x.storage], into))
    seconds = machine.traffic_seconds(2 * x.bytes)
    tasks.kernel("copy", place, seconds, 1, reads=[x.storage], into=[own, whole.storage])
    return whole, Blocks((own, *others), tuple(found))


class PartialSums:
    """Sums over devices of the parts of a result of `count` bytes; every device has one term."""

    def __init__(
        self, tasks: TaskList, prices: ConversionModel, step: Step, count: int, parts: int, place: str
    ) -> None:
        self.tasks, self.place = tasks, place
        price, _ = price_step(step, prices.mesh, prices.machine, 1.0)
        transfer: Transfer = price.transfer(count / parts)
        self.sent = sent_by(step.kind.value, step, transfer, prices.mesh)
        self.whole = step.kind is StepKind.ALL_REDUCE
        degree = 1 if self.whole else prices.mesh.degree(step.axes)
        self.bytes = count // degree
        self.storage = Storage(self.bytes)
        self.begun: list[int] = []

    def send(self, term: Storage, piece: Storage) -> None:
        """Starts the next sum. `piece` represents the rows of the term that it sums."""
        if self.whole:
            self.storage = term
        builds = [] if self.whole or self.begun else [self.storage]
        self.begun.append(_listed(self.tasks, self.sent, self.place, builds, [piece], [self.storage]))

    def wait(self) -> None:
        for task in self.begun:
            self.tasks.wait(task)


def _listed(
    tasks: TaskList, sent: Sent, place: str, builds: list[Storage], reads: list[Storage], into: list[Storage]
) -> int:
    given = sent.kind, place, sent.seconds, sent.channel, sent.traffic, sent.sent, builds, sent.limit
    return tasks.collective(*given, Purpose.VALUES, reads, into)

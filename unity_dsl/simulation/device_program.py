"""The state that the functions of a schedule share while the tasks of a device are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..graph.layout import Placement
from ..graph.plan import Plan
from ..index.lowering.local_tensor import Storage
from ..machine.conversion_model import ConversionModel
from ..schedule.ir import Function
from .backward_pass import BackwardPass
from .collective_tasks import Conversions
from .gathering_tasks import Gathering
from .listed_iterations import EVERY, Listed, ListedIteration, Stretch
from .local_tensors import Local
from .offloading_tasks import HostMemory
from .operator_tasks import Operators
from .task_list import TaskList


@dataclass
class Program:
    """A plan's schedule on one device. `stored` has its stored tensors by name; those in `trained` have a gradient.
    `place` are the device's coordinates along the mesh axes on whose coordinates devices do different things.

    If `listed` iterations represent others, a tensor represents `times[tensor]` tensors, and its gradient
    `trained[tensor]` gradients. `number` is that of the pass.
    """

    plan: Plan
    schedule: Function
    tasks: TaskList
    prices: ConversionModel
    operators: Operators
    place: Mapping[int, int] = field(default_factory=dict)
    listed: Listed = EVERY
    number: int = 0
    stored: dict[str, Local] = field(default_factory=dict)
    trained: dict[Local, int] = field(default_factory=dict)
    times: dict[Local, int] = field(default_factory=dict)
    waiting: dict[str, list[Callable[[], Storage]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conversions = Conversions(self.tasks, self.prices)
        self.gathering = Gathering(self.tasks, self.conversions, self.plan.passes.regathered)
        self.host = HostMemory(self.tasks, self.prices.machine)
        mesh, machine, bucket_bytes = self.prices.mesh, self.prices.machine, self.plan.passes.bucket_mib * 2**20
        self.backward = BackwardPass(self.tasks, mesh, machine, bucket_bytes)
        self._standing = 1, 1

    @contextmanager
    def standing(self, tensors: int, gradients: int) -> Iterator[None]:
        """Within it, each tensor that is stored represents so many tensors, and its gradient so many gradients. Nested
        contexts multiply.
        """
        before = self._standing
        self._standing = tensors * before[0], gradients * before[1]
        try:
            yield
        finally:
            self._standing = before

    def mark(self, current: ListedIteration | None) -> None:
        """Marks tasks and records from here on as those of an iteration of a fold, or of none."""
        stretch = (
            None
            if current is None or current.fold is None
            else Stretch(self.number, False, current.fold, current.position)
        )
        if stretch != self.tasks.stretch:
            self.tasks.mark(stretch)
            self.backward.mark(None if stretch is None else replace(stretch, backward=True))

    def is_at(self, placement: Placement) -> bool:
        """Whether the device is in the placement."""
        return all(self.place[axis] == coordinate for axis, coordinate in placement)

    @property
    def trained_bytes(self) -> int:
        return sum(self.times[tensor] * tensor.bytes for tensor in self.trained)

    @property
    def stored_bytes(self) -> int:
        return sum(self.times[tensor] * tensor.storage.bytes for tensor in self.stored.values())

    def keep(self, name: str, tensor: Local, *, trained: bool = False) -> Local:
        """The stored tensor of that name, the same in every pass. It exists before the step and after it."""
        if name not in self.stored:
            self.stored[name] = tensor
            self.times[tensor], gradients = self._standing
            if trained:
                self.trained[tensor] = gradients
            self.tasks.hold([tensor.storage])
        return self.stored[name]

"""The tasks that gather sharded weights: those of a block together, and those of the next block while one computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..graph.collective_steps import StepKind
from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.layout_conversion import Conversion
from ..graph.plan import without_iterations
from ..index.lowering.local_tensor import Storage
from ..schedule.ir import Convert
from .cast_tasks import as_read, settle_cast
from .collective_tasks import Conversions
from .local_tensors import Local
from .task_list import TaskList


@dataclass(frozen=True, eq=False)
class Gather:
    """A weight that one operator reads gathered, as a device stores it."""

    convert: Convert
    place: str
    stored: Local

    @property
    def value(self) -> Value:
        return self.convert.value

    @property
    def layout(self) -> Layout:
        """The layout in which it is stored."""
        return self.convert.source

    @property
    def conversion(self) -> Conversion:
        return self.convert.conversion


@dataclass(eq=False)
class Block:
    """Weights that are gathered together. Those that are not kept are re-gathered before the backward pass reads them.

    `before` is the block whose backward pass comes next, `again` has the re-gathers in flight.
    """

    gathers: Sequence[Gather]
    before: Block | None
    wanted: set[Local] = field(default_factory=set)
    again: dict[Local, tuple[Local, int]] | None = None


@dataclass
class Gathering:
    """Gathers weights as the emitted Gathered does. The weights `freed`, by path, are not kept gathered for the
    backward pass. This does not apply to recomputed bodies: their first run saves nothing, and their recomputation is
    held whole.
    """

    tasks: TaskList
    conversions: Conversions
    freed: Collection[str]
    _begun: dict[Local, tuple[Local, int]] = field(default_factory=dict)
    _blocks: dict[Storage, tuple[Block, Local]] = field(default_factory=dict)
    _last: Block | None = None
    _run_again: bool = False

    @contextmanager
    def in_what_is_run_again(self, begins: bool = True) -> Iterator[None]:
        """Within it runs a body that the backward pass recomputes, or the recomputation itself. Without `begins`
        nothing changes.
        """
        before, self._run_again = self._run_again, self._run_again or begins
        try:
            yield
        finally:
            self._run_again = before

    def start(self, gathers: Iterable[Gather], *, ahead: bool = True) -> None:
        """Starts the all-gathers with which conversions begin, one collective per group. They may be needed at once, or
        prefetched (`ahead`).
        """
        self._begun |= self._begin([gather for gather in gathers if gather.stored not in self._begun], ahead)

    def gather(self, gathers: Sequence[Gather]) -> list[Local]:
        """All weights, gathered. Nobody holds them yet."""
        self.start(gathers, ahead=False)
        found = [self._finish(gather, self._begun.pop(gather.stored, None)) for gather in gathers]
        if self.freed and not self._run_again:
            self._last = Block(gathers, self._last)
            for gather, tensor in zip(gathers, found, strict=True):
                if without_iterations(gather.place) in self.freed:
                    self._blocks[tensor.storage] = self._last, gather.stored
        return found

    def forgotten(self, saved: Iterable[Storage]) -> list[tuple[Block, Local]]:
        """The weights among what an operator saves that are re-gathered instead of kept."""
        found = [self._blocks[storage] for storage in saved if storage in self._blocks]
        for block, stored in found:
            block.wanted.add(stored)
        return found

    def gather_again(self, block: Block, stored: Local) -> Storage:
        """Re-gathers a weight for the backward pass, together with its block, and prefetches the block that comes next.
        The result is held.
        """
        begun = self._start_again(block, ahead=False)
        if block.before is not None:
            self._start_again(block.before, ahead=True)
        gather = next(gather for gather in block.gathers if gather.stored == stored)
        found = self._finish(gather, begun.pop(stored, None))
        self.tasks.hold([found.storage])
        return found.storage

    def _start_again(self, block: Block, *, ahead: bool) -> dict[Local, tuple[Local, int]]:
        if block.again is None:
            block.again = self._begin((gather for gather in block.gathers if gather.stored in block.wanted), ahead)
        return block.again

    def _begin(self, gathers: Iterable[Gather], ahead: bool) -> dict[Local, tuple[Local, int]]:
        together: dict[object, list[Gather]] = {}
        for gather in gathers:
            first = gather.conversion.forward[0]
            if first.kind is StepKind.ALL_GATHER:
                together.setdefault((first.axes, first.first), []).append(gather)
        begun: dict[Local, tuple[Local, int]] = {}
        for some in together.values():
            slices = [self._as_read(gather) for gather in some]
            arriving, task = self.conversions.start_together(
                [
                    (gather.conversion.forward[0], x, gather.value, gather.layout)
                    for gather, x in zip(some, slices, strict=True)
                ],
                some[0].place,
                ahead=ahead,
            )
            for gather, x in zip(some, slices, strict=True):
                settle_cast(self.tasks, x, gather.stored)
            begun |= {gather.stored: (tensor, task) for gather, tensor in zip(some, arriving, strict=True)}
        return begun

    def _finish(self, gather: Gather, begun: tuple[Local, int] | None) -> Local:
        steps, value, place = gather.conversion.forward, gather.value, gather.place
        if begun is None:
            given = self._as_read(gather)
            found = self.conversions.run(steps, given, value, gather.layout, place)
            settle_cast(self.tasks, given, gather.stored, found)
            return found
        return self.conversions.run_begun(steps, *begun, value, gather.layout, place)

    def _as_read(self, gather: Gather) -> Local:
        return as_read(self.tasks, gather.stored, gather.value, gather.place, self.conversions.prices.machine)

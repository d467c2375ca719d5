"""The tasks that sum parameters' gradients over groups of devices, in buckets, overlapped with the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ..graph.collective_steps import Step, StepKind
from ..graph.graph import Value
from ..graph.layout import Mesh
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import packs
from ..machine.machine import Machine
from ..machine.operator_price import ACCUMULATION_PASSES
from .collective_tasks import add_collective, add_copy
from .listed_iterations import NotAlikeError, Stretch
from .local_tensors import Local
from .task import Purpose
from .task_list import TaskList

_Key = tuple[Step, str]


@dataclass(eq=False)
class _Gradient:
    """A parameter's gradient that is to be summed: so many `bytes`, in `rows`. A device keeps `kept` bytes of the sum.
    It represents the gradients of `times` parameters, and is added in a `stretch`.
    """

    name: str
    rows: Storage
    bytes: int
    kept: int
    times: int
    stretch: Stretch | None

    @property
    def more(self) -> int:
        """Bytes kept of the sums of the other parameters that it represents."""
        return (self.times - 1) * self.kept

    def bytes_with_copies(self, now: Stretch | None) -> int:
        """Its bytes, and those of copies of its iteration if the backward pass is past these."""
        made = self.stretch
        return self.bytes if made is None or not made.is_left_behind(now) else self.bytes * len(made.iterations)


@dataclass
class _Bucket:
    """Gradients that wait to be sent. `alone` are the bytes of those outside of a stretch, which are counted once."""

    parts: list[_Gradient] = field(default_factory=list)
    alone: int = 0
    of_stretches: list[_Gradient] = field(default_factory=list)

    def add(self, part: _Gradient) -> None:
        self.parts.append(part)
        if part.stretch is None:
            self.alone += part.bytes
        else:
            self.of_stretches.append(part)

    def bytes(self, now: Stretch | None) -> int:
        return self.alone + sum(part.bytes_with_copies(now) for part in self.of_stretches)


@dataclass(frozen=True)
class Waiting:
    """Bytes that wait in buckets, and the bytes kept of their sums, by group. `flying` is the number of buckets in
    flight whose sums are still to be accumulated.
    """

    sizes: Mapping[_Key, Sequence[tuple[int, int]]]
    flying: int

    def is_followed(self, other: Waiting, last: Waiting) -> bool:
        """Whether `other` and `last`, one and two periods later, continue this pattern: every group waits unchanged, or
        grows by the same gradients each period.
        """
        if not self.flying == other.flying == last.flying or not self.sizes.keys() <= other.sizes.keys():
            return False
        return other.sizes.keys() == last.sizes.keys() and all(
            _grows(self.sizes.get(key, ()), other.sizes[key], last.sizes[key]) for key in other.sizes
        )


def _grows(first: Sequence[object], second: Sequence[object], third: Sequence[object]) -> bool:
    more = second[len(first) :]
    return [*first, *more] == [*second] and [*second, *more] == [*third]


@dataclass(eq=False)
class _Flying:
    """A bucket in flight: its task, the storages of its sums, and the gradients in it. If it `lands`, its sums are
    added to those of other passes.
    """

    task: int
    results: list[Storage]
    parameters: list[_Gradient]
    lands: bool


@dataclass
class GradientBuckets:
    """Buckets of gradients, as in the emitted GradientSync: a bucket is sent when it holds `bucket_bytes`. While
    `accumulating`, gradients that a device keeps whole are accumulated.
    """

    tasks: TaskList
    mesh: Mesh
    machine: Machine
    bucket_bytes: int
    accumulating: bool = False
    _sums: dict[str, Local] = field(default_factory=dict)
    _landed: dict[str, Local] = field(default_factory=dict)
    _waiting: dict[_Key, _Bucket] = field(default_factory=dict)
    _flying: list[_Flying] = field(default_factory=list)

    def add(self, value: Value, step: Step, gradient: Local, name: str, times: int = 1) -> None:
        """Adds a finished gradient, possibly a view, that `step` still has to sum over a group. It may represent the
        gradients of `times` parameters. Takes over the caller's hold.
        """
        tasks = self.tasks
        tasks.mark_gradient(gradient.storage)
        if step.kind is StepKind.ALL_REDUCE:
            before = self._sums.pop(name, None)
            gradient = self._added(before, gradient)
            if self.accumulating:
                tasks.mark_gradient(gradient.storage, (times - 1) * gradient.bytes if before is None else 0.0)
                self._sums[name] = gradient
                return
        rows, kept = gradient.storage, gradient.bytes
        if step.kind is StepKind.REDUCE_SCATTER:
            kept = gradient.bytes // self.mesh.degree(step.axes)
        if packs(step):
            rows = self._copy("pack", name, gradient.bytes, [gradient.storage])
            tasks.drop([gradient.storage])
        key = Step(step.kind, step.axes, first=step.first), value.dtype
        bucket, now = self._waiting.setdefault(key, _Bucket()), self.tasks.stretch
        bucket.add(_Gradient(name, rows, gradient.bytes, kept, times, now))
        if bucket.bytes(now) >= self.bucket_bytes:
            self._send(key)

    def waiting(self) -> Waiting:
        """The state that decides when the next buckets are sent: bytes by group, and the number of buckets still to
        accumulate.
        """
        sizes = {key: [(part.bytes, part.kept) for part in bucket.parts] for key, bucket in self._waiting.items()}
        return Waiting(sizes, len(self._flying) if self.accumulating or self._landed else 0)

    def begin(self, *, accumulating: bool) -> None:
        """Begins a forward pass. The gradients left of the previous backward pass are sent."""
        self._send_left()
        self.accumulating = accumulating

    def _send_left(self) -> None:
        for key in list(self._waiting):
            self._send(key)

    def finish(self) -> list[Storage]:
        """Sends what is left and waits for everything. Returns the storages of the gradients, each
        held once per entry.
        """
        self._send_left()
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
        """Waits for the bucket that was sent first, and adds its sums to those of earlier backward passes."""
        flying = self._flying.pop(0)
        self.tasks.wait(flying.task)
        for number, part in enumerate(flying.parameters):
            brought = flying.results[number if len(flying.results) > 1 else 0]
            self.tasks.hold([brought])
            before = self._landed.get(part.name)
            if before is None and flying.lands:
                self.tasks.mark_gradient(brought, part.more)
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
        step, _ = key
        listed = self._waiting.pop(key).parts
        parts = self._with_copies(listed)
        name = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
        flat = self._copy("bucket", name, sum(part.bytes for part in parts), [part.rows for part in parts])
        self.tasks.drop(part.rows for part in listed)
        in_place = step.kind is StepKind.ALL_REDUCE
        results = [flat] if in_place else [Storage(part.kept) for part in parts]
        builds = [] if in_place else results
        given = self.tasks, step, name, flat.bytes, self.mesh, self.machine, builds, Purpose.GRADIENTS
        task = add_collective(*given, reads=[flat])
        self.tasks.hold(results)
        self.tasks.drop([flat])
        lands = self.accumulating or bool(self._landed)
        for number, result in enumerate(results):
            own = parts if in_place else [parts[number]]
            self.tasks.mark_gradient(result, 0.0 if lands else sum(part.more for part in own))
        self._flying.append(_Flying(task, results, parts, lands))
        while lands and len(self._flying) > 1:
            self._land()

    def _with_copies(self, parts: Sequence[_Gradient]) -> list[_Gradient]:
        """The gradients to send, with those that copies of iterations would have added. They are known if all are sent
        after the copies, in a bucket that no copy would have filled. They are also known if each is sent in its own
        iteration or in the next ones. Otherwise raises NotAlikeError.
        """
        now, found = self.tasks.stretch, list[_Gradient]()
        for _, some in groupby(parts, lambda part: None if part.stretch is None else part.stretch.fold):
            every = [copy for part in some for copy in self._copies(part, now)]
            every.sort(key=lambda copy: copy[0], reverse=True)
            found += [part for _, part in every]
        before = sum(part.bytes for part in found[:-1])
        if len(found) > len(parts) and before >= self.bucket_bytes:
            raise NotAlikeError(self._filling(found))
        return found

    def _copies(self, part: _Gradient, now: Stretch | None) -> Iterator[tuple[int, _Gradient]]:
        """A gradient and its copies, with the numbers of their iterations in the segment."""
        made = part.stretch
        if made is None:
            yield 0, part
            return
        own, fold = made.fold.first + made.fold.iteration(made.position), made.fold
        yield own, part
        if not made.is_left_behind(now):
            assert now is not None, "it is beside"
            if made.position - now.position > fold.period:
                raise NotAlikeError
            return
        prefix = f"{fold.segment}.{own}."
        if not part.name.startswith(prefix):
            raise NotAlikeError
        for number in made.iterations[1:]:
            name = f"{fold.segment}.{fold.first + number}.{part.name.removeprefix(prefix)}"
            yield fold.first + number, replace(part, name=name)

    def _filling(self, parts: Sequence[_Gradient]) -> Iterator[tuple[str, int]]:
        """The iterations whose gradients fill buckets, by segment and number."""
        count = 0
        for part in parts:
            count += part.bytes
            if count >= self.bucket_bytes:
                count = 0
                segment, number, *_ = (*part.name.split(".", 2), "")
                if part.stretch is not None and segment == part.stretch.fold.segment and number.isdigit():
                    yield segment, int(number)

    def _copy(self, what: str, name: str, count: int, reads: Sequence[Storage]) -> Storage:
        """A copy of gradients in a new storage, which is held."""
        made = add_copy(self.tasks, what, name, count, self.machine, reads)
        self.tasks.hold([made])
        self.tasks.mark_gradient(made)
        return made

"""The tasks of a plan's training step: the emitted program's forward pass, its backward pass by autograd, the update.

The forward pass runs operators in order, each after the conversions that it reads; variables hold their tensors until
the function around them returns. The backward pass runs what was recorded, the latest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ..graph.graph import Series, Value
from ..graph.layout import Layout, Mesh, invariant
from ..graph.layout_conversion import Conversion
from ..graph.plan import Plan, PlannedGraph, PlannedNode, PlannedSegment, gathered_once
from ..graph.precision import arithmetic, operand_types, result_types
from ..index.library import Library
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import local_fraction
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..machine.operator_price import MOMENTS, price_update
from .backward_pass import BackwardPass
from .cast_tasks import add_cast, as_read, settle_cast
from .collective_tasks import Conversions, add_copy
from .event_loop import simulate
from .gathering_tasks import Gather, Gathering
from .hardware import hardware_of
from .local_tensors import Cotangents, Local, Recorded, made
from .operator_tasks import Operators
from .task import Phase, TaskGraph
from .task_list import TaskList
from .timeline import Timeline


def step_tasks(plan: Plan, machine: Machine, library: Library) -> TaskGraph:
    """The tasks of one training step, the passes of all its micro-batches; of a model without a loss, of one call."""
    tasks = TaskList()
    prices = ConversionModel(plan.mesh, machine, library)
    program = _Program(plan, tasks, prices, Operators(tasks, plan.mesh, machine, library))
    for number in range(1, plan.micro_batches + 1):
        _list_passes(program, last=number == plan.micro_batches)
    if tasks.phase is Phase.BACKWARD:
        gradients = program.backward.finish()
        tasks.phase = Phase.UPDATE
        if updated := program.trained_bytes:
            temporary = Storage(updated)
            tasks.kernel("optimizer", "", price_update(updated, machine), 1, [temporary])
            tasks.settle([temporary])
        tasks.drop(gradients)
    held = sum(tensor.storage.bytes for tensor in program.stored.values())
    if plan.model.loss is not None:
        held += MOMENTS * program.trained_bytes
    return tasks.finished(held)


def _list_passes(program: _Program, *, last: bool) -> None:
    """The forward pass of a micro-batch and its backward pass; gradients are sent with those of the `last` one."""
    tasks, plan = program.tasks, program.plan
    tasks.phase = Phase.FORWARD
    program.backward.buckets.accumulating = not last
    whole = _Forward(program, plan.graph, "", {})
    whole.steps()
    loss = [] if plan.model.loss is None else [whole.variable(plan.model.loss, invariant(plan.mesh))]
    tasks.hold(tensor.storage for tensor in loss)
    whole.update()
    whole.leave()
    if loss and loss[0].moves:
        tasks.phase = Phase.BACKWARD
        program.backward.run(loss[0], program.trained)
        tasks.drop([loss[0].storage])


def simulate_step(plan: Plan, machine: Machine, library: Library) -> Timeline:
    """The tasks of a step, as they run on devices of that machine."""
    return simulate(step_tasks(plan, machine, library), hardware_of(machine))


@dataclass
class _Program:
    """What the functions of a program share. Of what is `stored`, by name, the tensors `trained` have a gradient."""

    plan: Plan
    tasks: TaskList
    prices: ConversionModel
    operators: Operators
    stored: dict[str, Local] = field(default_factory=dict)
    trained: set[Local] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.conversions = Conversions(self.tasks, self.prices)
        self.gathering = Gathering(self.tasks, self.conversions, self.plan.gathered_again)
        self.backward = BackwardPass(self.tasks, self.prices.mesh, self.prices.machine)

    @property
    def trained_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.trained)

    def keep(self, name: str, tensor: Local) -> Local:
        """The tensor of that name, which is there before the step and after it: in every pass the same."""
        if name not in self.stored:
            self.stored[name] = tensor
            self.tasks.hold([tensor.storage])
        return self.stored[name]

    def steps(self, value: Value, source: Layout, target: Layout) -> Conversion:
        return self.prices.conversion(source, target, value.shape, value.bytes, value.stored_bytes)


@dataclass
class _Held:
    """A value with the tensors that variables hold of it, by layout.

    Of a weight that is cast these are casts, of the tensor `uncast`. `casts` are those to the type of an operator.
    """

    value: Value
    produced: Layout
    tensors: dict[Layout, Local]
    sources: dict[Layout, Layout]
    stored: bool = False
    uncast: Local | None = None
    casts: dict[tuple[Local, str], Local] = field(default_factory=dict)


class _Forward:
    """One run of a forward function: of the model, or of an iteration of a body. `path` stands before its names."""

    def __init__(self, program: _Program, graph: PlannedGraph, path: str, given: Mapping[str, _Held]) -> None:
        self.program, self.graph, self.path = program, graph, path
        self.held = dict(given)
        self.named: list[Storage] = []
        self.once = gathered_once(graph)
        for source in graph.graph.inputs:
            self.add(source.value, program.keep(path + source.value.name, self._input(source.value)))
        for weight in graph.graph.weights:
            self._store(weight.value, trained=True)
        for buffer in graph.graph.buffers:
            self._store(buffer.value, trained=False)

    @property
    def mesh(self) -> Mesh:
        return self.program.plan.mesh

    # ------------------------------------------------------------------------------------------ values

    def _input(self, value: Value) -> Local:
        """A device's part of an input. That of a micro-batch is a slice of the whole batch's, which is there."""
        given, division = made(value, self.graph.values[value.name].produced, self.mesh), self.program.plan.division
        if division is None or value.name not in division.inputs:
            return given
        return replace(given, storage=Storage(division.count * given.bytes))

    def _store(self, value: Value, *, trained: bool) -> None:
        layout = self.graph.values[value.name].produced
        count = round(value.stored_bytes * local_fraction(layout, self.mesh))
        tensor = Local(count, Storage(count), trained and value.needs_gradient)
        tensor = self.program.keep(self.path + value.name, tensor)
        if tensor.moves:
            self.program.trained.add(tensor)
        self.add(value, tensor, layout, stored=tensor.moves)

    def add(self, value: Value, tensor: Local, layout: Layout | None = None, *, stored: bool = False) -> None:
        planned = self.graph.values.get(value.name)
        if layout is None:
            assert planned is not None
            layout = planned.produced
        sources = {made.layout: made.source for made in planned.materialised} if planned else {}
        tensors, uncast = ({}, tensor) if value.is_cast else ({layout: tensor}, None)
        self.held[value.name] = _Held(value, layout, tensors, sources, stored, uncast)

    def name(self, tensors: Iterable[Storage]) -> None:
        """Variables hold these until the function returns. Takes over holds."""
        self.named += tensors

    def leave(self) -> None:
        """The function returns."""
        self.program.tasks.drop(self.named)
        self.named = []

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> Local:
        """The tensor of a value in a layout, in a float type of its own if `dtype` says so; conversion and cast run
        where there is none yet.
        """
        held, given = self.held[value.name], self._in_layout(value, layout)
        if dtype is None or dtype in ("int", value.dtype):
            return given
        if (given, dtype) not in held.casts:
            held.casts[given, dtype] = self._cast(given, value.name, value.dtype, dtype)
        return held.casts[given, dtype]

    def _cast(self, given: Local, name: str, source: str, target: str) -> Local:
        """A variable for a tensor in another float type, with its way back recorded."""
        tasks, machine, place = self.program.tasks, self.program.prices.machine, self.path + name
        result = add_cast(tasks, given, source, target, place, machine)
        tasks.hold([result.storage])
        self.name([result.storage])
        if given.moves:

            def back(outgoing: Cotangents) -> Cotangents:
                (arrived,) = outgoing
                assert arrived is not None
                gradient = Local(result.bytes, arrived, False)
                return [add_cast(tasks, gradient, target, source, place, machine).storage]

            self.program.backward.record(Recorded((given,), (result,), (), back))
        return result

    def _in_layout(self, value: Value, layout: Layout) -> Local:
        held = self.held[value.name]
        if not value.needs_gradient:
            layout = layout.without_copies
            held.tensors = {found.without_copies: tensor for found, tensor in held.tensors.items()}
            sources: dict[Layout, Layout] = {}
            for target, source in held.sources.items():
                sources.setdefault(target.without_copies, source.without_copies)
            held.sources, held.produced = sources, held.produced.without_copies
        if layout not in held.tensors:
            held.tensors[layout] = self._converted(held, layout)
        return held.tensors[layout]

    def _converted(self, held: _Held, layout: Layout) -> Local:
        program, value = self.program, held.value
        source, place = held.sources.get(layout, held.produced), self.path + value.name
        uncast = held.uncast if source == held.produced else None
        if uncast is not None and layout == source:
            return self._cast(uncast, value.name, value.stored_dtype, value.dtype)
        conversion = program.steps(value, source, layout)
        given = self._in_layout(value, source) if uncast is None else uncast
        if not (conversion.forward or (given.moves and conversion.backward)):
            return self._in_layout(value, source)
        start = given if uncast is None else as_read(program.tasks, given, value, place, program.prices.machine)
        found = program.conversions.run(conversion.forward, start, value, source, place)
        settle_cast(program.tasks, start, given, found)
        return self._recorded(held, conversion, given, found, source, layout)

    def _recorded(
        self, held: _Held, conversion: Conversion, given: Local, found: Local, source: Layout, layout: Layout
    ) -> Local:
        """The converted tensor as a variable holds it, with its way back recorded."""
        program, value = self.program, held.value
        tasks, result = program.tasks, Local(found.bytes, found.storage, given.moves)
        tasks.hold([result.storage])
        self.name([result.storage])
        if not given.moves:
            return result
        steps, place = conversion.backward, self.path + value.name
        parameter = held.stored and source == held.produced and conversion.ends_in_sum
        last = steps[-1] if parameter else None
        rest = steps[:-1] if parameter else steps

        def back(outgoing: Cotangents) -> Cotangents:
            (arrived,) = outgoing
            assert arrived is not None
            gradient = Local(result.bytes, arrived, False)
            start, wide = gradient, value
            if given is held.uncast:
                wide = value.as_stored
                start = add_cast(tasks, gradient, value.dtype, wide.dtype, place, program.prices.machine)
            left = program.conversions.run(rest, start, wide, layout.transpose, place)
            settle_cast(tasks, start, gradient, left)
            if last is None:
                return [left.storage]
            tasks.hold([left.storage])
            program.backward.buckets.add(wide, last, left.storage, place)
            return [None]

        program.backward.record(Recorded((given,), (result,), (), back))
        return result

    # ------------------------------------------------------------------------------------------ steps

    def steps(self) -> None:
        """Operators one after the other; what those between two bodies gather comes before them."""
        stretches = [
            (nodes, list(stretch))
            for nodes, stretch in groupby(self.graph.steps, lambda step: isinstance(step, PlannedNode))
        ]
        for number, (nodes, stretch) in enumerate(stretches, 1):
            following = stretches[number][1] if number < len(stretches) else []
            if nodes:
                self._gather(stretch)
            for step in stretch:
                if isinstance(step, PlannedNode):
                    self._node(step)
                else:
                    self._segment(step, following if step is stretch[-1] else [])

    def gathers(self, steps: Iterable[PlannedNode | PlannedSegment]) -> list[list[Gather]]:
        """The weights that operators among these read gathered: those whose gradients come in buckets together, and the
        others; first the kind that is read first.
        """
        found: dict[bool, list[Gather]] = {}
        for step in steps:
            for value in step.node.arguments if isinstance(step, PlannedNode) else ():
                if (layout := self.once.get(value.name)) is not None:
                    held = self.held[value.name]
                    conversion = self.program.steps(value, held.produced, layout)
                    stored, place = held.uncast or held.tensors[held.produced], self.path + value.name
                    gather = Gather(value, place, stored, held.produced, layout, conversion)
                    found.setdefault(conversion.ends_in_sum, []).append(gather)
        return list(found.values())

    def _gathers_in_buckets(self, steps: Iterable[PlannedNode | PlannedSegment]) -> list[Gather]:
        return next((found for found in self.gathers(steps) if found[0].conversion.ends_in_sum), [])

    def first_gathers(self) -> list[Gather]:
        """Those of the first operators that read any: what can be under way before the function is called."""
        for nodes, stretch in groupby(self.graph.steps, lambda step: isinstance(step, PlannedNode)):
            if nodes and (found := self.gathers(stretch)):
                return found[0]
        return []

    def _gather(self, steps: Sequence[PlannedNode | PlannedSegment]) -> None:
        for gathers in self.gathers(steps):
            for gather, found in zip(gathers, self.program.gathering.gather(gathers), strict=True):
                held = self.held[gather.value.name]
                tensor = self._recorded(held, gather.conversion, gather.stored, found, gather.layout, gather.gathered)
                held.tensors[gather.gathered] = tensor

    def _node(self, step: PlannedNode) -> None:
        node, typed = step.node, step.typed
        dtype = arithmetic(node, step.native, self.program.operators.library)
        reads = zip(node.arguments, typed.arguments, operand_types(node, dtype), strict=True)
        arguments = [self.variable(value, layout, wanted) for value, layout, wanted in reads]
        results, named, record = self.program.operators.forward(step, arguments, self.path + node.name)
        self.name(result.storage for result in results)
        self.name(named)
        if record is not None:
            self.program.backward.record(self._regathering(record))
        makes = zip(node.results, typed.results, result_types(node, dtype), results, strict=True)
        for value, layout, made_in, tensor in makes:
            cast = made_in != value.dtype
            self.add(value, self._cast(tensor, value.name, made_in, value.dtype) if cast else tensor, layout)

    def _regathering(self, record: Recorded) -> Recorded:
        """The record of an operator without the gathered weights that are not kept: they are gathered again first."""
        gathering, tasks = self.program.gathering, self.program.tasks
        forgotten = gathering.forgotten(record.saved)
        if not forgotten:
            return record
        kept = tuple(storage for storage in record.saved if not gathering.forgotten([storage]))
        tasks.drop(storage for storage in record.saved if storage not in kept)

        def run(outgoing: Cotangents) -> Cotangents:
            again = [gathering.gather_again(block, stored) for block, stored in forgotten]
            found = record.run(outgoing)
            tasks.drop(again)
            return found

        return replace(record, saved=kept, run=run)

    def _segment(self, step: PlannedSegment, after: Sequence[PlannedNode | PlannedSegment]) -> None:
        """A repeat, scan or cond: its iterations one after the other, of a cond one. While one computes, the weights of
        the next are gathered, at last those in buckets that steps `after` it gather.
        """
        segment, border = step.segment, step.border
        taken = [self.variable(value, layout) for value, layout in border.reads(segment)]
        captured = dict(zip((v.name for v in segment.captured), taken, strict=False))
        slices = [
            self._unbound(series, whole, segment.count)
            for series, whole in zip(segment.sliced, taken[len(segment.captured) :], strict=False)
        ]
        stacks: list[list[Local]] = [[] for _ in segment.stacked]
        carried: list[tuple[Value, Layout, Local]] = []
        turns = [
            (number, iteration)
            for number, run in enumerate(step.runs)
            for iteration in range(run.first, run.first + run.count)
        ]
        bodies = (self._body(step, number, iteration, captured) for number, iteration in turns)
        following = next(bodies)
        for turn, (number, iteration) in enumerate(turns):
            body, ahead = following, None
            if turn + 1 < len(turns):
                following = ahead = next(bodies)
            if len(turns) > 1:
                self.program.gathering.start(body.first_gathers())
                self.program.gathering.start(
                    self._gathers_in_buckets(after) if ahead is None else ahead.first_gathers()
                )
            carried = self._iteration(step, number, iteration, body, slices, stacks, carried)
        for value, (_, layout, tensor) in zip(segment.results, carried, strict=True):
            self.add(value, tensor, layout)
        for series, layout, parts in zip(segment.stacked, border.stacked, stacks, strict=True):
            self.add(series.whole, self._stacked(series, parts), layout.inserted(series.dim))

    def _body(self, step: PlannedSegment, number: int, iteration: int, captured: Mapping[str, Local]) -> _Forward:
        """The function of an iteration, with what it stores and what it sees of the values around it."""
        segment, run = step.segment, step.runs[number]
        given: dict[str, _Held] = {}
        for value, layout in zip(segment.captured, step.border.captured, strict=True):
            outside = self.held[value.name]
            stored = outside.stored and outside.uncast is None and layout == outside.produced
            planned = run.body.values.get(value.name)
            sources = {made.layout: made.source for made in planned.materialised} if planned else {}
            given[value.name] = _Held(value, layout, {layout: captured[value.name]}, sources, stored)
        path = f"{self.path}{segment.name}." + ("" if segment.predicate is not None else f"{iteration}.")
        return _Forward(self.program, run.body, path, given)

    def _iteration(
        self,
        step: PlannedSegment,
        number: int,
        iteration: int,
        body: _Forward,
        slices: Sequence[Sequence[Local]],
        stacks: Sequence[list[Local]],
        carried: Sequence[tuple[Value, Layout, Local]],
    ) -> list[tuple[Value, Layout, Local]]:
        """What an iteration leaves. Variables of the function around it hold that instead of what it was given."""
        segment, border, tasks = step.segment, step.border, self.program.tasks
        run = step.runs[number]
        entries = []
        for place, value in enumerate(segment.entry):
            layout = border.carried[place] if segment.predicate is not None else run.body.values[value.name].produced
            if carried:
                _, known, tensor = carried[place]
                if known != layout:
                    tensor = self._changed(segment.results[place], known, layout, tensor)
            else:
                tensor = self.variable(segment.initial[place], layout, value.dtype)
            entries.append((value, layout, tensor))
        for value, layout, tensor in entries:
            body.add(value, tensor, layout)
        for series, layout, parts in zip(segment.sliced, border.sliced, slices, strict=True):
            body.add(series.part, parts[iteration], layout)
        body.steps()
        leaving = step.leaving(number, self.graph)
        left = [
            (value, layout, body.variable(value, layout, entry.dtype))
            for value, layout, entry in zip(segment.exit, leaving, segment.entry, strict=True)
        ]
        for series, layout, stack in zip(segment.stacked, border.stacked, stacks, strict=True):
            tensor = body.variable(series.part, layout)
            tasks.hold([tensor.storage])
            stack.append(tensor)
        tasks.hold(tensor.storage for _, _, tensor in left)
        body.update()
        body.leave()
        for _, _, tensor in carried:
            tasks.drop([tensor.storage])
            self.named.remove(tensor.storage)
        self.name(tensor.storage for _, _, tensor in left)
        return left

    def _changed(self, value: Value, source: Layout, target: Layout, tensor: Local) -> Local:
        """What one run leaves, in the layout in which the next takes it."""
        held = _Held(value, source, {source: tensor}, {})
        before = self.held.get(value.name)
        self.held[value.name] = held
        found = self._converted(held, target)
        if before is not None:
            self.held[value.name] = before
        return found

    def update(self) -> None:
        """Buffers' new values: copies, in place of the old ones."""
        for update in self.graph.graph.updates:
            tensor = self.variable(update.value, self.graph.values[update.buffer.name].produced)
            self.program.tasks.settle([self._copied("update", self.path + update.buffer.name, tensor.bytes)])

    # ------------------------------------------------------------------------------------------ series of slices

    def _unbound(self, series: Series, whole: Local, count: int) -> list[Local]:
        """Views of a tensor's slices. Their gradients are put together when all are there."""
        parts = [Local(whole.bytes // count, whole.storage, whole.moves) for _ in range(count)]
        if whole.moves:
            place = self.path + series.whole.name

            def stack(_: Cotangents) -> Cotangents:
                return [self._copied("stack", place, whole.bytes)]

            self.program.backward.record(Recorded((whole,), tuple(parts), (), stack))
        return parts

    def _stacked(self, series: Series, parts: Sequence[Local]) -> Local:
        """A new tensor of slices."""
        count, place = sum(part.bytes for part in parts), self.path + series.whole.name
        storage = self._copied("stack", place, count)
        whole = Local(count, storage, any(part.moves for part in parts))
        self.program.tasks.hold([storage])
        self.name([storage])
        self.program.tasks.drop(part.storage for part in parts)
        if whole.moves:

            def unbind(outgoing: Cotangents) -> Cotangents:
                (arrived,) = outgoing
                return [arrived for part in parts if part.moves]

            moving = tuple(part for part in parts if part.moves)
            self.program.backward.record(Recorded(moving, (whole,), (), unbind))
        return whole

    def _copied(self, name: str, place: str, count: int) -> Storage:
        return add_copy(self.program.tasks, name, place, count, self.program.prices.machine)

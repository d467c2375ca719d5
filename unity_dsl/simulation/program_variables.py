"""Variables of an emitted program on one device: the tensors that they hold, and the tasks that make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ..graph.chunked_products import NONE, Chunked, ChunkedProduct, chunked_products, gathers_blocks
from ..graph.collective_steps import Step
from ..graph.delayed_gradients import Delayed, WeightProduct, delayed_gradients
from ..graph.gathered_weights import GatheredWeights
from ..graph.graph import Value
from ..graph.layout import Layout, Mesh, Placement
from ..graph.layout_conversion import Conversion
from ..graph.plan import Plan, PlannedGraph, PlannedNode
from ..graph.shared_calls import SharedCalls
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import local_fraction
from ..machine.conversion_model import ConversionModel
from .backward_pass import BackwardPass
from .cast_tasks import add_cast, as_read, settle_cast
from .chunked_tasks import Blocks, Chunks, PartialSums, gather_blocks
from .collective_tasks import Conversions
from .gathering_tasks import Gathering
from .iteration_turns import EVERY, Listed, Stretch, Turn
from .local_tensors import Cotangents, Local, Recorded, made
from .operator_tasks import DelayedGradient, Operators
from .task_list import TaskList


@dataclass
class Program:
    """What the functions of a program share. Of what is `stored`, by name, the tensors `trained` have a gradient. The
    device has the coordinates `place` along the mesh axes on whose coordinates devices do different things.

    Where iterations that are `listed` stand for others like them, a tensor of theirs does for as many as `times` says,
    and its gradient for as many as the number in `trained`. `number` is that of the pass.
    """

    plan: Plan
    tasks: TaskList
    prices: ConversionModel
    operators: Operators
    place: Mapping[int, int] = field(default_factory=dict)
    listed: Listed = EVERY
    number: int = 0
    stored: dict[str, Local] = field(default_factory=dict)
    trained: dict[Local, int] = field(default_factory=dict)
    times: dict[Local, int] = field(default_factory=dict)
    joined_of: dict[int, frozenset[str]] = field(default_factory=dict)
    delayed_of: dict[int, Delayed] = field(default_factory=dict)
    chunked_of: dict[int, Chunked] = field(default_factory=dict)
    waiting: dict[str, list[Callable[[], Storage]]] = field(default_factory=dict)
    chosen: dict[tuple[int, Layout, Layout, bool], Conversion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conversions = Conversions(self.tasks, self.prices)
        self.weights = GatheredWeights(self.plan.graph, self.plan.conversions, self.plan.interleaved)
        self.gathering = Gathering(self.tasks, self.conversions, self.plan.gathered_again)
        mesh, machine, bucket_bytes = self.prices.mesh, self.prices.machine, self.plan.bucket_mib * 2**20
        self.backward = BackwardPass(self.tasks, mesh, machine, bucket_bytes)
        self._standing = 1, 1

    @contextmanager
    def standing(self, tensors: int, gradients: int) -> Iterator[None]:
        """Within it what is stored stands for so many tensors, its gradients for so many, of each that is stored."""
        before = self._standing
        self._standing = tensors * before[0], gradients * before[1]
        try:
            yield
        finally:
            self._standing = before

    def mark(self, turn: Turn | None) -> None:
        """Marks tasks and records from here on as those of an iteration of a fold, or of none."""
        stretch = None if turn is None or turn.fold is None else Stretch(self.number, False, turn.fold, turn.position)
        if stretch != self.tasks.stretch:
            self.tasks.mark(stretch)
            self.backward.mark(None if stretch is None else replace(stretch, backward=True))

    def is_at(self, placement: Placement) -> bool:
        """Whether the device is one of these."""
        return all(self.place[axis] == coordinate for axis, coordinate in placement)

    def joined(self, graph: PlannedGraph, leaving: Iterable[Value]) -> frozenset[str]:
        """The values of a function that are joined with others later, by one call."""
        if id(graph) not in self.joined_of:
            calls = SharedCalls(graph, self.prices.mesh, self.operators.library)
            self.joined_of[id(graph)] = calls.joined({value.name for value in leaving})
        return self.joined_of[id(graph)]

    def delayed(self, graph: PlannedGraph) -> Delayed:
        """As `delayed_gradients`, which are the same of every iteration of a run; nothing if the plan has none."""
        if not self.plan.delayed_gradients:
            return {}
        if id(graph) not in self.delayed_of:
            library = self.operators.library
            self.delayed_of[id(graph)] = delayed_gradients(graph, self.plan.conversions, self.prices.mesh, library)
        return self.delayed_of[id(graph)]

    def chunked(self, graph: PlannedGraph, left: Iterable[Value]) -> Chunked:
        """As `chunked_products`, which are the same of every iteration of a run; nothing if the plan has none."""
        if self.plan.chunks == 1:
            return NONE
        if id(graph) not in self.chunked_of:
            given = self.plan.conversions, self.prices.mesh, self.operators.library, self.plan.chunks
            self.chunked_of[id(graph)] = chunked_products(graph, *given, {value.name for value in left})
        return self.chunked_of[id(graph)]

    @property
    def trained_bytes(self) -> int:
        return sum(self.times[tensor] * tensor.bytes for tensor in self.trained)

    @property
    def stored_bytes(self) -> int:
        return sum(self.times[tensor] * tensor.storage.bytes for tensor in self.stored.values())

    def keep(self, name: str, tensor: Local, *, trained: bool = False) -> Local:
        """The tensor of that name, which is there before the step and after it: in every pass the same."""
        if name not in self.stored:
            self.stored[name] = tensor
            self.times[tensor], gradients = self._standing
            if trained:
                self.trained[tensor] = gradients
            self.tasks.hold([tensor.storage])
        return self.stored[name]

    def steps(self, value: Value, source: Layout, target: Layout, *, copy: bool = False) -> Conversion:
        """Of a value as it is produced, or of a `copy`."""
        key = id(value), source, target, copy
        if key not in self.chosen:
            shape, count, back, in_buckets = value.shape, value.bytes, value.stored_bytes, value.is_weight and not copy
            ahead = not copy and self.weights.ahead.begins(value, source, target)
            found = self.plan.conversions.conversion(
                source, target, shape, count, back, in_buckets=in_buckets, ahead=ahead
            )
            self.chosen[key] = found
        return self.chosen[key]


Begin = Callable[[Local], tuple[Local, Callable[[], None]]]
"""Begins to convert a tensor: what it is to be, and what waits for that."""


@dataclass
class Held:
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


class Variables:
    """The variables of a forward function, with the conversions and casts that make them. `path` stands before their
    names, and `stored` is what the function stores, if that is there already. The values `left` are read behind it.
    Where it runs `in_turns` with others, its conversions are begun, and wait until they `arrive`.
    """

    def __init__(
        self,
        program: Program,
        graph: PlannedGraph,
        path: str,
        given: Mapping[str, Held],
        stored: Mapping[str, Local] = {},
        *,
        left: Iterable[Value],
        in_turns: bool = False,
    ) -> None:
        self.program, self.graph, self.path = program, graph, path
        self.held = dict(given)
        self.stored = dict(stored)
        self.named: list[Storage] = []
        self.in_turns, self.travelling = in_turns, dict[Local, Callable[[], None]]()
        self.leaves: list[Recorded] = []  # of parameters that are read as they are, whose gradients come at once
        self.later: dict[str, DelayedGradient] = {}  # by the operators that read the weights
        left = tuple(left)
        self.chunked = NONE if in_turns else program.chunked(graph, left)
        self.blocks: dict[str, Blocks] = {}  # of what arrives, by the operator that reads it
        self.sent: dict[tuple[str, Layout], Local] = {}  # what products have begun to send
        self.terms: list[Storage] = []  # of which sums are on their way
        self.joined = program.joined(graph, (*left, *(update.value for update in graph.graph.updates)))
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
        if value.name not in self.stored:
            here = self.program.is_at(layout.placement)
            count = round(value.stored_bytes * local_fraction(layout, self.mesh)) if here else 0
            tensor = Local(count, Storage(count), trained and value.needs_gradient)
            tensor = self.program.keep(self.path + value.name, tensor, trained=tensor.moves)
            self.stored[value.name] = tensor
        self.add(value, self.stored[value.name], layout, stored=self.stored[value.name].moves)

    def add(self, value: Value, tensor: Local, layout: Layout | None = None, *, stored: bool = False) -> None:
        planned = self.graph.values.get(value.name)
        if layout is None:
            assert planned is not None
            layout = planned.produced
        sources = {made.layout: made.source for made in planned.materialised} if planned else {}
        tensors, uncast = ({}, tensor) if value.is_cast else ({layout: tensor}, None)
        self.held[value.name] = Held(value, layout, tensors, sources, stored, uncast)

    def name(self, tensors: Iterable[Storage]) -> None:
        """Variables hold these until the function returns. Takes over holds."""
        self.named += tensors

    def leave(self) -> None:
        """The function returns."""
        self.program.tasks.drop([*self.named, *self.terms])
        self.named, self.terms = [], []

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
        self.arrive([given])
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

    def _converted(self, held: Held, layout: Layout) -> Local:
        program, value = self.program, held.value
        source, place = held.sources.get(layout, held.produced), self.path + value.name
        uncast = held.uncast if source == held.produced and (value.is_weight or layout == source) else None
        if uncast is not None and layout == source:
            return self._cast(uncast, value.name, value.stored_dtype, value.dtype)
        conversion = program.steps(value, source, layout, copy=source != held.produced)
        given = self._in_layout(value, source) if uncast is None else uncast
        self.arrive([given])
        delayed = () if self.in_turns or not given.moves else self.program.delayed(self.graph).get((value.name, layout))
        sent = self.sent.pop((value.name, layout), None)
        arriving = self.chunked.arriving.get((value.name, layout)) if given.moves else None
        if delayed or sent is not None or arriving is not None:
            forward, backward = self._ways(conversion, value, source, layout)
            if arriving is not None:
                forward = partial(self._gathered_in_blocks, arriving, conversion.forward[0])
            found = sent or self._begun(given, forward, backward)
            for product in delayed or ():
                self._delay(product)
            self.arrive([found])
            return found
        if self.in_turns and not held.stored and uncast is None and conversion.travels:
            # A body is the same where what it is given has no gradient, as an input: it waits where others would.
            if conversion.forward or value.needs_gradient:
                return self._begun(given, *self._ways(conversion, value, source, layout))
        if not (conversion.forward or (given.moves and conversion.backward)):
            return self._in_layout(value, source)
        start = given if uncast is None else as_read(program.tasks, given, value, place, program.prices.machine)
        found = program.conversions.run(conversion.forward, start, value, source, place)
        settle_cast(program.tasks, start, given, found)
        return self._recorded(held, conversion, given, found, source, layout)

    def _ways(self, conversion: Conversion, value: Value, source: Layout, layout: Layout) -> tuple[Begin, Begin]:
        """What begins a conversion, and that of the cotangent."""
        place = self.path + value.name

        def begin(steps: Sequence[Step], start: Layout, x: Local) -> tuple[Local, Callable[[], None]]:
            return self.program.conversions.begin(steps, x, value, start, place)

        return partial(begin, conversion.forward, source), partial(begin, conversion.backward, layout.transpose)

    def _begun(self, given: Local, forward: Begin, backward: Begin) -> Local:
        """A converted tensor that is to `arrive` before anything reads it; its gradient is begun and waited for in the
        same way, the other way round.
        """
        tasks, (found, end) = self.program.tasks, forward(given)
        result, token = Local(found.bytes, found.storage, given.moves), Local(0, Storage(0), True)
        tasks.hold([result.storage])
        self.name([result.storage])
        under_way: list[tuple[Local, Callable[[], None]]] = []

        def begin_back(outgoing: Cotangents) -> Cotangents:
            (arrived,) = outgoing
            assert arrived is not None
            gradient = Local(result.bytes, arrived, False)
            left, wait = backward(gradient)
            tasks.hold([left.storage])
            under_way.append((left, wait))
            return [Storage(0)]

        def end_back(outgoing: Cotangents) -> Cotangents:
            left, wait = under_way.pop()
            wait()
            tasks.release(left.storage)
            return [left.storage]

        def arrive() -> None:
            end()
            if given.moves:
                self.program.backward.record(Recorded((token,), (result,), (), begin_back))

        if given.moves:
            self.program.backward.record(Recorded((given,), (token,), (), end_back))
        self.travelling[result] = arrive
        return result

    # ------------------------------------------------------------------------------------------ products in chunks

    def _gathered_in_blocks(
        self, found: ChunkedProduct, gather: Step, given: Local
    ) -> tuple[Local, Callable[[], None]]:
        """For a product that waits for the blocks: nothing else does."""
        place = self.path + found.value.name
        whole, blocks = gather_blocks(self.program.tasks, self.program.prices, gather, given, place)
        self.blocks[found.product.step.node.name] = blocks
        return whole, lambda: None

    def chunks(self, step: PlannedNode) -> Chunks | None:
        """How an operator that is a product runs in parts, if it does."""
        reading, leaving = self.chunked.reading(step), self.chunked.leaving.get(step.node.name)
        if reading is not None and (blocks := self.blocks.pop(step.node.name, None)) is not None:
            return Chunks(reading, blocks)
        if leaving is None:
            return None
        value, produced = leaving.value, step.typed.results[0]
        (summed,) = self.program.steps(value, produced, leaving.layout).forward
        count, given = made(value, produced, self.mesh).bytes, (self.program.tasks, self.program.prices)
        return Chunks(leaving, summed=PartialSums(*given, summed, count, leaving.parts, self.path + value.name))

    def send(self, step: PlannedNode, chunks: Chunks, term: Local) -> None:
        """The result of a product, of which sums are on their way, as what is to arrive in another layout."""
        value, layout, summed, tasks = chunks.product.value, chunks.product.layout, chunks.summed, self.program.tasks
        assert summed is not None
        conversion = self.program.steps(value, step.typed.results[0], layout)
        _, backward = self._ways(conversion, value, step.typed.results[0], layout)
        gather = gathers_blocks(conversion.backward, layout.transpose, value.shape, self.mesh)
        self.terms.append(term.storage)

        def end() -> None:
            summed.wait()
            self.terms.remove(term.storage)
            tasks.drop([term.storage])

        def begin_back(gradient: Local) -> tuple[Local, Callable[[], None]]:
            if gather is None:
                return backward(gradient)
            whole, blocks = gather_blocks(tasks, self.program.prices, gather, gradient, self.path + value.name)
            chunks.returning.append(blocks)
            return whole, lambda: None

        whole = Local(summed.bytes, summed.storage, term.moves)
        self.sent[value.name, layout] = self._begun(term, lambda _: (whole, end), begin_back)

    def _delay(self, found: WeightProduct) -> None:
        """The weight of a product, whose gradient is made when the backward pass comes here."""
        program, step, node = self.program, found.step, found.step.node
        taken_in, _ = program.operators.types(step)
        weight = self.variable(node.arguments[found.weight], step.typed.arguments[found.weight], taken_in[found.weight])
        waits = program.waiting.setdefault(self.path + node.name, [])
        token = Local(0, Storage(0), True)
        self.later[node.name] = DelayedGradient(found.weight, token, waits)
        program.backward.record(Recorded((weight,), (token,), (), lambda outgoing: [waits.pop()()]))

    def arrive(self, tensors: Iterable[Local]) -> None:
        """Of these what was begun is waited for."""
        for tensor in tensors:
            if (end := self.travelling.pop(tensor, None)) is not None:
                end()

    def record_leaves(self) -> None:
        """Just before the operator that reads them: autograd accumulates their gradients when it has made them."""
        for record in self.leaves:
            self.program.backward.record(record)
        self.leaves.clear()

    def _recorded(
        self, held: Held, conversion: Conversion, given: Local, found: Local, source: Layout, layout: Layout
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
            program.backward.buckets.add(wide, last, left, place, program.trained.get(given, 1))
            return [None]

        record = Recorded((given,), (result,), (), back)
        if self.in_turns and last is not None and not (rest or conversion.forward):
            self.leaves.append(record)
        else:
            program.backward.record(record)
        return result

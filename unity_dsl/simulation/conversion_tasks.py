"""The tasks of a function's conversions and casts, which are run at once or started and waited for later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..graph.chunked_products import ChunkedProduct, gathers_blocks
from ..graph.collective_steps import Step
from ..graph.graph import Value
from ..graph.layout import Layout, Mesh
from ..graph.precision import FULL, SUMMED
from ..index.lowering.local_tensor import Storage
from ..machine.collective_price import local_fraction
from ..schedule.ir import Arrive, AwaitGathers, Begin, Cast, Compute, Convert, Defer, Function, Tensor
from .cast_tasks import add_cast, as_read, settle_cast
from .chunked_tasks import Blocks, Chunks, PartialSums, gather_blocks
from .device_program import Program
from .gathering_tasks import Gather
from .local_tensors import Cotangents, Local, Recorded, made
from .operator_tasks import DeferredGradient

Begins = Callable[[Local], tuple[Local, Callable[[], None]]]
"""Starts to convert a tensor. Returns the resulting tensor, and a callable that waits for it."""


class Variables:
    """The tensors of one call of a function. `local` has them by the tensors of the schedule. `path` is the prefix of
    their names, with the number of the iteration: `layer.3.`. `stored` has what the function stores, if that exists
    already.
    """

    def __init__(
        self,
        program: Program,
        function: Function,
        path: str,
        given: Mapping[Tensor, Local] = {},
        stored: Mapping[str, Local] = {},
    ) -> None:
        self.program, self.function, self.path = program, function, path
        self.local = dict(given)
        self.stored = dict(stored)
        self.named: list[Storage] = []
        self.flying: dict[Begin | Compute, tuple[Local, Callable[[], None]]] = {}
        self.leaves: list[Recorded] = []  # of parameters read without conversion: gradients come at once
        self.deferred: dict[Defer, DeferredGradient] = {}
        self.blocks: dict[Begin, Blocks] = {}
        self.terms: list[Storage] = []  # terms whose sums are in flight
        self.gathers: dict[Convert, Gather] = {}
        for tensor in function.inputs:
            self.local[tensor] = program.keep(path + tensor.value.name, self._input(tensor))
        for tensor in function.stored:
            self.local[tensor] = self._store(tensor)

    @property
    def mesh(self) -> Mesh:
        return self.program.plan.mesh

    def _input(self, tensor: Tensor) -> Local:
        """A device's part of an input. The input of a micro-batch is a slice of the whole batch's, which stays in
        memory.
        """
        given, division = made(tensor.value, tensor.layout, self.mesh), self.program.plan.division
        if division is None or tensor.value.name not in division.inputs:
            return given
        return replace(given, storage=Storage(division.count * given.bytes))

    def _store(self, tensor: Tensor) -> Local:
        value = tensor.value
        if value.name not in self.stored:
            here = self.program.is_at(tensor.layout.placement)
            count = round(value.stored_bytes * local_fraction(tensor.layout, self.mesh)) if here else 0
            local = Local(count, Storage(count), tensor.parameter and value.needs_gradient)
            self.stored[value.name] = self.program.keep(self.path + value.name, local, trained=local.moves)
        return self.stored[value.name]

    def name(self, tensors: Iterable[Storage]) -> None:
        """Variables hold these until the function returns. Takes over holds."""
        self.named += tensors

    def leave(self) -> None:
        """The function returns and drops what its variables hold."""
        self.program.tasks.drop([*self.named, *self.terms])
        self.named, self.terms = [], []

    # ------------------------------------------------------------------------------------------ at once

    def cast(self, cast: Cast) -> None:
        """A cast. For a sum, a CPU uses float32 and a GPU the type in which the model computes."""
        target, narrow = cast.makes.dtype, self.program.plan.model.precision or FULL
        if target == SUMMED:
            target = FULL if self.program.prices.machine.device == "cpu" else narrow
        given = self.local[cast.reads]
        self.local[cast.makes] = self.in_type(given, cast.reads.value.name, cast.reads.dtype, target)

    def in_type(self, given: Local, name: str, source: str, target: str) -> Local:
        """A variable for a tensor in another float type. The backward cast is recorded."""
        if source == target:
            return given
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

    def convert(self, convert: Convert) -> None:
        """A conversion that is waited for at once."""
        program, conversion, value = self.program, convert.conversion, convert.reads.value
        given, source, place = self.local[convert.reads], convert.source, self.path + value.name
        if not (conversion.forward or (given.moves and conversion.backward)):
            self.local[convert.makes] = given
            return
        is_cast = convert.reads.dtype != convert.makes.dtype
        start = as_read(program.tasks, given, value, place, program.prices.machine) if is_cast else given
        found = program.conversions.run(conversion.forward, start, value, source, place)
        settle_cast(program.tasks, start, given, found)
        self.local[convert.makes] = self._recorded(convert, given, found)

    def await_gathers(self, awaited: AwaitGathers) -> None:
        """Waits for weights that are gathered together."""
        gathers = self.gathers_of(awaited.gathers)
        tensors = self.program.gathering.gather(gathers)
        for gather, local, found in zip(awaited.gathers, gathers, tensors, strict=True):
            self.local[gather.makes] = self._recorded(gather, local.stored, found)

    def gathers_of(self, gathers: Sequence[Convert]) -> list[Gather]:
        """The gathers of a schedule, with the tensors that are stored here."""
        for gather in gathers:
            if gather not in self.gathers:
                self.gathers[gather] = Gather(gather, self.path + gather.value.name, self.local[gather.reads])
        return [self.gathers[gather] for gather in gathers]

    @property
    def first_gathers(self) -> list[Gather]:
        """The gathers that can start before the function is called."""
        return self.gathers_of(self.function.first)

    def _recorded(self, convert: Convert, given: Local, found: Local) -> Local:
        """The converted tensor as a variable holds it. The backward conversion is recorded."""
        program, value, conversion = self.program, convert.reads.value, convert.conversion
        tasks, result = program.tasks, Local(found.bytes, found.storage, given.moves)
        tasks.hold([result.storage])
        self.name([result.storage])
        if not given.moves:
            return result
        steps, place, start = conversion.backward, self.path + value.name, convert.makes.layout.transpose
        last = steps[-1] if convert.parameter else None
        rest = steps[:-1] if convert.parameter else steps
        is_cast = convert.reads.dtype != convert.makes.dtype

        def back(outgoing: Cotangents) -> Cotangents:
            (arrived,) = outgoing
            assert arrived is not None
            gradient = Local(result.bytes, arrived, False)
            first, wide = gradient, value
            if is_cast:
                wide = value.as_stored
                first = add_cast(tasks, gradient, value.dtype, wide.dtype, place, program.prices.machine)
            left = program.conversions.run(rest, first, wide, start, place)
            settle_cast(tasks, first, gradient, left)
            if last is None:
                return [left.storage]
            tasks.hold([left.storage])
            program.backward.buckets.add(wide, last, left, place, program.trained.get(given, 1))
            return [None]

        record = Recorded((given,), (result,), (), back)
        if self.function.interleaved and last is not None and not (rest or conversion.forward):
            self.leaves.append(record)
        else:
            program.backward.record(record)
        return result

    # ------------------------------------------------------------------------------------------ begun

    def begin(self, begin: Begin) -> None:
        """Starts a conversion. If a product reads the result in blocks, only the product waits for these."""
        value, layout = begin.reads.value, begin.makes.layout
        forward = self._way(begin.conversion.forward, value, begin.source)
        backward = self._way(begin.conversion.backward, value, layout.transpose)
        given = self.local[begin.reads]
        if begin.product is not None and given.moves:
            forward = partial(self._gathered_in_blocks, begin, begin.product, begin.conversion.forward[0])
        self.local[begin.makes] = self._begun(begin, given, forward, backward)

    def arrive(self, arrive: Arrive) -> None:
        """Waits for a conversion that was started before."""
        self.local[arrive.makes], end = self.flying.pop(arrive.begun)
        end()

    def _way(self, steps: Sequence[Step], value: Value, start: Layout) -> Begins:
        """A callable that starts the steps of a conversion."""
        place = self.path + value.name
        return lambda x: self.program.conversions.begin(steps, x, value, start, place)

    def _begun(self, key: Begin | Compute, given: Local, forward: Begins, backward: Begins) -> Local:
        """A converted tensor that must `arrive` before anything reads it. The conversion of its gradient is started and
        waited for in the same way, in reverse order.
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
        self.flying[key] = result, arrive
        return result

    def _gathered_in_blocks(
        self, begin: Begin, product: ChunkedProduct, gather: Step, given: Local
    ) -> tuple[Local, Callable[[], None]]:
        place = self.path + product.value.name
        whole, self.blocks[begin] = gather_blocks(self.program.tasks, self.program.prices, gather, given, place)
        return whole, lambda: None

    # ------------------------------------------------------------------------------------------ products in blocks

    def chunks(self, compute: Compute) -> Chunks | None:
        """How an operator runs in blocks, if it is a product that does."""
        found = compute.chunked
        if found is None:
            return None
        if compute.arrives is not None:
            blocks = self.blocks.pop(compute.arrives, None)
            return None if blocks is None else Chunks(found, blocks)
        assert compute.sends is not None, "its result is sent"
        value, produced, (summed,) = found.value, compute.step.typed.results[0], compute.sends.forward
        count, given = made(value, produced, self.mesh).bytes, (self.program.tasks, self.program.prices)
        return Chunks(found, summed=PartialSums(*given, summed, count, found.parts, self.path + value.name))

    def send(self, compute: Compute, chunks: Chunks, term: Local) -> None:
        """The result of a product whose sums are in flight, as the tensor that will arrive in another layout."""
        value, layout, summed, tasks = chunks.product.value, chunks.product.layout, chunks.summed, self.program.tasks
        conversion = compute.sends
        assert summed is not None and conversion is not None, "its result is sent"
        backward = self._way(conversion.backward, value, layout.transpose)
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
        self._begun(compute, term, lambda _: (whole, end), begin_back)

    def defer(self, defer: Defer) -> None:
        """Reads the weight of a product whose gradient is computed when the backward pass reaches this point."""
        program, node = self.program, defer.product.step.node
        waits = program.waiting.setdefault(self.path + node.name, [])
        token = Local(0, Storage(0), True)
        self.deferred[defer] = DeferredGradient(defer.product.weight, token, waits)
        weight = self.local[defer.reads]
        program.backward.record(Recorded((weight,), (token,), (), lambda outgoing: [waits.pop()()]))

    def record_leaves(self) -> None:
        """Records leaves just before the operator that reads them: autograd accumulates a gradient as soon as it is
        computed.
        """
        for record in self.leaves:
            self.program.backward.record(record)
        self.leaves.clear()

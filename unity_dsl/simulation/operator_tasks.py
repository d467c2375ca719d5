"""The tasks of one operator, forward and backward: a kernel each, and the collectives inside it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ..graph.graph import DTYPE_BYTES, Node
from ..graph.inner_steps import InnerSteps, inner_steps
from ..graph.layout import Mesh
from ..graph.layout_typing import TypedOperator
from ..graph.local_executions import execution_of
from ..graph.plan import PlannedNode
from ..graph.precision import FULL, SUMMED, emitted_arithmetic, operand_types, priced_type, result_types
from ..index.cost.work import cotangents_passed_on
from ..index.library import Library
from ..index.lowering.execution import Execution
from ..index.lowering.local_tensor import Shape, Storage
from ..machine.machine import Machine
from ..machine.operator_price import Limit, limits_of_operator, price_inner, price_operator, priced_kernels
from .chunked_tasks import Blocks, Chunks
from .collective_tasks import add_collective
from .local_tensors import Cotangents, Local, Recorded
from .task_list import TaskList

Types = tuple[tuple[str, ...], tuple[str, ...]]
"""Float types of operands, and of results."""


@dataclass(frozen=True)
class OperatorTime:
    """Seconds of an operator's kernels forward and backward without launches, the number of launches, and what bounds
    the kernels.
    """

    forward: float
    backward: float
    launches: tuple[int, int]
    limits: tuple[Limit, Limit]

    def of_others(self, others: OperatorTime) -> tuple[OperatorTime, OperatorTime]:
        """Splits the backward pass in two: the gradients of all operands but one, timed by `others`, and the gradient
        of that one alone.
        """
        last = replace(
            self,
            backward=max(self.backward - others.backward, 0.0),
            launches=(0, max(self.launches[1] - others.launches[1], 1)),
        )
        return others, last


@dataclass(frozen=True, slots=True)
class DeferredGradient:
    """The deferred gradient of a product's weight, which is computed when the backward pass reaches `token`. `weight`
    is the number of the operand, `waits` are the pending computations.
    """

    weight: int
    token: Local
    waits: list[Callable[[], Storage]]


@dataclass(frozen=True)
class _Call:
    """An operator on operands of certain strides, as in every iteration of a repeat. `run` is its execution on a
    device. `inside` is the size in bytes of the gradient of an intermediate tensor. `results` has the bytes and strides
    of each result. `shared` says for each operand with a gradient whether this is the result's gradient. `inner` are
    the collectives inside the operator with their bytes, forward and backward.
    """

    planned: PlannedNode
    run: Execution
    time: OperatorTime
    inside: int
    results: tuple[tuple[int, Shape], ...]
    shared: tuple[bool, ...]
    inner: tuple[InnerSteps, InnerSteps]


@lru_cache(maxsize=256)
def _known(
    mesh: Mesh, machine: Machine, library: Library
) -> tuple[dict[object, OperatorTime], dict[tuple[Hashable, ...], _Call]]:
    """Caches of operator times and of calls, with one entry for identical operators of all steps on a mesh."""
    return {}, {}


class Operators:
    """Lists the tasks of operators. Properties that identical operators share are computed once for all steps on a
    mesh.
    """

    def __init__(self, tasks: TaskList, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.tasks, self.mesh, self.machine, self.library = tasks, mesh, machine, library
        self._times, self._alike = _known(mesh, machine, library)
        self._calls: dict[tuple[int, tuple[Shape | None, ...]], _Call] = {}
        self._types: dict[int, tuple[PlannedNode, Types]] = {}

    def types(self, planned: PlannedNode) -> Types:
        """The float types in which an operator takes its operands and makes its results."""
        if id(planned) not in self._types:
            node, dtype = planned.node, self._arithmetic(planned)
            self._types[id(planned)] = planned, (operand_types(node, dtype), result_types(node, dtype))
        return self._types[id(planned)][1]

    def _arithmetic(self, planned: PlannedNode) -> str:
        """The float type in which an operator runs. A CPU sums in float32 where a GPU runs in the narrow type."""
        dtype = emitted_arithmetic(planned.node, planned.native, self.library)
        if dtype != SUMMED:
            return dtype
        return FULL if self.machine.device == "cpu" else planned.node.dtype

    def forward(
        self,
        planned: PlannedNode,
        arguments: Sequence[Local],
        place: str,
        *,
        last: bool = False,
        joined: bool = False,
        deferred: DeferredGradient | None = None,
        chunks: Chunks | None = None,
    ) -> tuple[tuple[Local, ...], tuple[Storage, ...], Recorded | None]:
        """Lists an operator's forward tasks. Returns its results in the types in which it makes them, the storages that
        program variables name, and its record for the backward pass.

        No kernel runs for the `last` operator of a recomputation if it saves only its operands. None runs in either
        pass if the result is only `joined` with others later, in one call. The gradient of a weight may be `deferred`,
        and a product may run in `chunks`.
        """
        node, call = planned.node, self._call(planned, tuple(argument.strides for argument in arguments))
        run, time = call.run, call.time
        own = {tensor.storage: given.storage for tensor, given in zip(run.inputs, arguments, strict=True)}
        over = planned.typed.reuse.over is not None
        arriving = chunks is not None and chunks.arriving is not None
        runs = not joined and (not last or arriving or over or not set(run.built).isdisjoint(run.saved))
        built = [Storage(storage.bytes if runs else 0) for storage in run.built]
        own |= zip(run.built, built, strict=True)
        if runs and chunks is not None:
            self._in_chunks(call, chunks, place, arguments, built, own[run.outputs[0].storage])
        elif runs:
            made = [own[tensor.storage] for tensor in run.outputs]
            self.tasks.kernel(
                node.instance.name,
                place,
                time.forward,
                time.launches[0],
                built,
                time.limits[0],
                reads=[given.storage for given in arguments],
                into=made,
            )
            self._inner(call, place, made, backward=False)
        elif joined:
            self.tasks.alias_result(own[run.outputs[0].storage], [given.storage for given in arguments])
        results = tuple(
            Local(count, own[tensor.storage], value.needs_gradient, strides)
            for value, tensor, (count, strides) in zip(node.results, run.outputs, call.results, strict=True)
        )
        named = tuple(own[storage] for storage in run.named if storage in own)
        saved = tuple(own[storage] for storage in run.saved)
        moving = tuple(a for a, needed in zip(arguments, node.gradients, strict=True) if needed)
        record = None
        if moving:

            def backward(outgoing: Cotangents) -> Cotangents:
                if joined:  # autograd gives each part a view of the joined result's gradient
                    (arrived,) = outgoing
                    return [arrived for _ in moving]
                blocks = chunks.returning.pop() if chunks is not None and chunks.returning else None
                if deferred is None and blocks is None:
                    return self._backward(call, place, moving, outgoing, saved)
                return self._backward_of_others(call, place, moving, outgoing, saved, deferred, chunks, blocks)

            given_gradients = moving
            if deferred is not None:
                weight = arguments[deferred.weight]
                given_gradients = tuple(deferred.token if local is weight else local for local in moving)
            record = Recorded(given_gradients, results, saved, backward)
        self.tasks.hold(result.storage for result in results)
        self.tasks.hold(named)
        self.tasks.hold(saved if record is not None else ())
        self.tasks.settle(built)
        return results, named, record

    def _backward(
        self, call: _Call, place: str, moving: Sequence[Local], outgoing: Cotangents, saved: Sequence[Storage]
    ) -> Cotangents:
        time, given = call.time, [storage for storage in outgoing if storage is not None]
        arrived = given[0]
        found = [arrived if same else Storage(local.bytes) for local, same in zip(moving, call.shared, strict=True)]
        built = [storage for storage in found if storage is not arrived]
        if built:
            temporary = Storage(call.inside)
            name, builds = f"{call.planned.node.instance.name} backward", [*built, temporary]
            reads = [*given, *saved]
            self.tasks.kernel(name, place, time.backward, time.launches[1], builds, time.limits[1], reads=reads)
            self.tasks.settle([temporary])
        self._inner(call, place, found, backward=True)
        return found

    def _backward_of_others(
        self,
        call: _Call,
        place: str,
        moving: Sequence[Local],
        outgoing: Cotangents,
        saved: Sequence[Storage],
        deferred: DeferredGradient | None,
        chunks: Chunks | None,
        blocks: Blocks | None,
    ) -> Cotangents:
        """The backward pass of a product whose weight gradient comes after the other gradients, or is deferred. With
        `blocks` of the incoming gradient, the other gradients are computed block by block as these arrive.
        """
        node = call.planned.node
        name = f"{node.instance.name} backward"
        number = deferred.weight if deferred is not None else -1 if chunks is None else chunks.product.product.weight
        needs = tuple(needed and operand != number for operand, needed in enumerate(node.gradients))
        typed = replace(call.planned.typed, native=call.planned.native)
        first, last = call.time.of_others(self._time(node, typed, needs))
        of_weight = sum(node.gradients[:number])
        given = [storage for storage in outgoing if storage is not None]
        arrived, limit = given[0], call.time.limits[1]
        found = [arrived if same else Storage(local.bytes) for local, same in zip(moving, call.shared, strict=True)]
        found[of_weight] = Storage(0)
        built = [storage for storage in found if storage is not arrived and storage is not found[of_weight]]
        if chunks is None or blocks is None:
            self.tasks.kernel(name, place, first.backward, first.launches[1], built, limit, reads=[*given, *saved])
        else:
            time = self._time(node, typed, needs, (chunks.product.axis, len(blocks.pieces)))
            for piece, task in zip(blocks.pieces, blocks.tasks, strict=True):
                if task is not None:
                    self.tasks.wait(task)
                builds = [] if piece is not blocks.pieces[0] else built
                reads = [piece, *saved]
                self.tasks.kernel(name, place, time.backward, time.launches[1], builds, limit, reads=reads, into=built)
        factors = [*given, *(storage for storage in saved if storage is not moving[of_weight].storage)]
        self.tasks.hold(factors)

        def make() -> Storage:
            gradient = Storage(moving[of_weight].bytes)
            self.tasks.kernel(name, place, last.backward, last.launches[1], [gradient], limit, reads=factors)
            self.tasks.drop(factors)
            return gradient

        if deferred is None:
            found[of_weight] = make()
        else:
            deferred.waits.append(make)
        return found

    def _in_chunks(
        self,
        call: _Call,
        chunks: Chunks,
        place: str,
        arguments: Sequence[Local],
        built: Sequence[Storage],
        result: Storage,
    ) -> None:
        """A decomposed matmul: each block that it reads is multiplied once it has arrived, or each part of the result
        is sent once it is computed.
        """
        node, found, blocks = call.planned.node, chunks.product, chunks.arriving
        typed = replace(call.planned.typed, native=call.planned.native)
        time = self._time(node, typed, node.gradients, (found.axis, found.parts))
        others = [given.storage for number, given in enumerate(arguments) if blocks is None or number != found.reads]
        for number in range(found.parts):
            piece, reads = Storage(0), others
            if blocks is not None:
                reads = [blocks.pieces[number], *others]
                if (task := blocks.tasks[number]) is not None:
                    self.tasks.wait(task)
            builds, into = [] if number else built, [piece, result]
            name, limit = node.instance.name, time.limits[0]
            self.tasks.kernel(name, place, time.forward, time.launches[0], builds, limit, reads=reads, into=into)
            if chunks.summed is not None:
                chunks.summed.send(result, piece)

    def _call(self, planned: PlannedNode, strides: tuple[Shape | None, ...]) -> _Call:
        key = id(planned), strides
        if key not in self._calls:
            node, typed = planned.node, planned.typed
            dtype = self._arithmetic(planned)
            of_operator = node.instance.identity, node.gradients, planned.native, typed.configuration, typed.reuse
            alike = *of_operator, node.factor_type, dtype, result_types(node, dtype), strides
            if alike not in self._alike:
                self._alike[alike] = self._new_call(planned, strides, dtype)
            self._calls[key] = replace(self._alike[alike], planned=planned)
        return self._calls[key]

    def _new_call(self, planned: PlannedNode, strides: tuple[Shape | None, ...], dtype: str) -> _Call:
        node, typed = planned.node, replace(planned.typed, native=planned.native)
        run = execution_of(planned, strides, self.mesh, self.library, dtype)
        made = zip(run.outputs, result_types(node, dtype), strict=True)
        results = tuple((prod(tensor.shape) * DTYPE_BYTES[kind], tensor.strides) for tensor, kind in made)
        shared = tuple(self._shared(node, run, typed.reuse.over is not None))
        inner = inner_steps(node.instance, typed, DTYPE_BYTES[dtype])
        # Writing a result over an operand takes as long as writing it to new memory.
        time = self._time(node, replace(typed, reuse=replace(typed.reuse, over=None)), node.gradients)
        return _Call(planned, run, time, _inside(run), results, shared, inner)

    def _shared(self, node: Node, run: Execution, over: bool) -> Iterator[bool]:
        """For each operand with a gradient: whether this is the result's gradient, or a view of it. A result made
        `over` an operand is not a view of that operand.
        """
        passed = cotangents_passed_on(node.instance, node.gradients)
        for tensor, same, needed in zip(run.inputs, passed, node.gradients, strict=True):
            if needed:
                result = run.outputs[0]
                viewed = result.storage is tensor.storage and prod(result.shape) == prod(tensor.shape) and not over
                yield len(run.outputs) == 1 and (same or viewed)

    def _inner(self, call: _Call, place: str, made: Sequence[Storage], *, backward: bool) -> None:
        """Lists the collectives inside an operator, one after the other."""
        for step, count in call.inner[backward]:
            self.tasks.wait(add_collective(self.tasks, step, place, count, self.mesh, self.machine, reads=made))

    def _time(
        self, node: Node, typed: TypedOperator, needs: tuple[bool, ...], part: tuple[str, int] | None = None
    ) -> OperatorTime:
        """The time of an operator whose backward pass computes the gradients that it `needs`. With a `part`, an axis
        and a count, it is the time of one of so many parts along the axis.
        """
        dtype = priced_type(node, typed.native, self.library)
        key = node.instance.identity, needs, typed.native, typed.configuration, typed.reuse, dtype, part
        if key not in self._times:
            if part is not None:
                axis, count = part
                typed = replace(typed, local_sizes={**typed.local_sizes, axis: typed.local_sizes[axis] // count})
            launches = priced_kernels(node.instance, typed, dtype, self.mesh, self.library, needs)
            waiting = [count * self.machine.launch_seconds for count in launches]
            forward, both = (
                price_operator(node.instance, typed, dtype, self.mesh, self.machine, wanted, self.library)
                - price_inner(node.instance, typed, dtype, self.mesh, self.machine, any(wanted))
                for wanted in ((False,) * len(needs), needs)
            )
            backward = max(both - forward - waiting[1], 0.0) if any(needs) else 0.0
            limits = limits_of_operator(node.instance, typed, dtype, self.mesh, self.machine, needs, self.library)
            self._times[key] = OperatorTime(max(forward - waiting[0], 0.0), backward, launches, limits)
        return self._times[key]


def _inside(run: Execution) -> int:
    """Bytes of the largest tensor that an operator saves and that is neither an operand nor a result."""
    others = {tensor.storage for tensor in (*run.inputs, *run.outputs)}
    return max((storage.bytes for storage in run.saved if storage not in others), default=0)

"""The tasks of one operator, forward and backward: a kernel each, and the collectives inside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..graph.collective_steps import Step, StepKind
from ..graph.graph import DTYPE_BYTES, Node
from ..graph.layout import Mesh
from ..graph.layout_typing import TypedOperator
from ..graph.local_executions import execution_of
from ..graph.plan import PlannedNode
from ..graph.precision import arithmetic, result_types
from ..index.cost.work import cotangents_passed_on
from ..index.library import Library
from ..index.lowering.division import InnerReduce
from ..index.lowering.execution import Execution
from ..index.lowering.local_tensor import Storage
from ..machine.machine import Machine
from ..machine.operator_price import Limit, limits_of_operator, price_inner, price_operator, priced_kernels
from .collective_tasks import add_collective
from .local_tensors import Cotangents, Local, Recorded
from .task_list import TaskList


@dataclass(frozen=True)
class OperatorTime:
    """Seconds of an operator's kernels forward and backward, without those of launches, how many these are, and what
    the kernels are a matter of.
    """

    forward: float
    backward: float
    launches: tuple[int, int]
    limits: tuple[Limit, Limit]


class Operators:
    """Lists the tasks of operators. What operators alike have in common is found once."""

    def __init__(self, tasks: TaskList, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.tasks, self.mesh, self.machine, self.library = tasks, mesh, machine, library
        self._times: dict[object, OperatorTime] = {}

    def forward(
        self, planned: PlannedNode, arguments: Sequence[Local], place: str, *, last: bool = False
    ) -> tuple[tuple[Local, ...], tuple[Storage, ...], Recorded | None]:
        """An operator's results in the types in which it makes them, the storages that variables of the program name,
        and what the backward pass does. Of the `last` one that is run again for what it saves, nothing runs where it
        saves only what it is given.
        """
        node, typed = planned.node, replace(planned.typed, native=planned.native)
        run = execution_of(planned, tuple(argument.strides for argument in arguments), self.mesh, self.library)
        time = self._time(node, typed)
        own = {tensor.storage: given.storage for tensor, given in zip(run.inputs, arguments, strict=True)}
        runs = not last or not set(run.built).isdisjoint(run.saved)
        built = [Storage(storage.bytes if runs else 0) for storage in run.built]
        own |= zip(run.built, built, strict=True)
        if runs:
            self.tasks.kernel(node.instance.name, place, time.forward, time.launches[0], built, time.limits[0])
            self._inner(node, typed, place, backward=False)
        types = result_types(node, arithmetic(node, typed.native, self.library))
        results = tuple(
            Local(prod(tensor.shape) * DTYPE_BYTES[made], own[tensor.storage], value.needs_gradient, tensor.strides)
            for value, made, tensor in zip(node.results, types, run.outputs, strict=True)
        )
        named = tuple(own[storage] for storage in run.named if storage in own)
        saved = tuple(own[storage] for storage in run.saved)
        moving = tuple(a for a, needed in zip(arguments, node.gradients, strict=True) if needed)
        record = None
        if moving:
            shared = tuple(self._shared(node, run))
            inside = _inside(run)

            def backward(outgoing: Cotangents) -> Cotangents:
                return self._backward(node, typed, place, time, moving, shared, inside, outgoing)

            record = Recorded(moving, results, saved, backward)
        self.tasks.hold(result.storage for result in results)
        self.tasks.hold(named)
        self.tasks.hold(saved if record is not None else ())
        self.tasks.settle(built)
        return results, named, record

    def _backward(
        self,
        node: Node,
        typed: TypedOperator,
        place: str,
        time: OperatorTime,
        moving: Sequence[Local],
        shared: Sequence[bool],
        inside: int,
        outgoing: Cotangents,
    ) -> Cotangents:
        """`inside` are the bytes of a gradient of what the operator made on the way."""
        arrived = next(storage for storage in outgoing if storage is not None)
        found = [arrived if same else Storage(local.bytes) for local, same in zip(moving, shared, strict=True)]
        built = [storage for storage in found if storage is not arrived]
        if built:
            temporary = Storage(inside)
            name, builds = f"{node.instance.name} backward", [*built, temporary]
            self.tasks.kernel(name, place, time.backward, time.launches[1], builds, time.limits[1])
            self.tasks.settle([temporary])
        self._inner(node, typed, place, backward=True)
        return found

    def _shared(self, node: Node, run: Execution) -> Iterator[bool]:
        """Of each operand with a gradient, whether its cotangent is the result's, or a view of it."""
        passed = cotangents_passed_on(node.instance, node.gradients)
        for tensor, same, needed in zip(run.inputs, passed, node.gradients, strict=True):
            if needed:
                result = run.outputs[0]
                viewed = result.storage is tensor.storage and prod(result.shape) == prod(tensor.shape)
                yield len(run.outputs) == 1 and (same or viewed)

    def _inner(self, node: Node, typed: TypedOperator, place: str, *, backward: bool) -> None:
        """All-reduces of intermediates: forward where a result is reduced, backward where a copy is made."""
        width = DTYPE_BYTES[arithmetic(node, typed.native, self.library)]
        for collective in typed.inner:
            reduces = isinstance(collective, InnerReduce)
            if reduces is backward:
                continue
            operand = (
                node.instance.equations[collective.equation].target
                if isinstance(collective, InnerReduce)
                else node.instance.operand(collective.operand)
            )
            count = prod(typed.local_sizes[axis] for axis in operand.axes) * width
            step = Step(StepKind.ALL_REDUCE, collective.axes)
            self.tasks.wait(add_collective(self.tasks, step, place, count, self.mesh, self.machine))

    def _time(self, node: Node, typed: TypedOperator) -> OperatorTime:
        dtype = arithmetic(node, typed.native, self.library)
        key = node.instance.identity, node.gradients, typed.native, typed.configuration, dtype
        if key not in self._times:
            launches = priced_kernels(node.instance, typed, dtype, self.mesh, self.library, node.gradients)
            waiting = [count * self.machine.launch_seconds for count in launches]
            forward, both = (
                price_operator(node.instance, typed, dtype, self.mesh, self.machine, needs, self.library)
                - price_inner(node.instance, typed, dtype, self.mesh, self.machine, any(needs))
                for needs in ((False,) * len(node.gradients), node.gradients)
            )
            backward = max(both - forward - waiting[1], 0.0) if any(node.gradients) else 0.0
            limits = limits_of_operator(
                node.instance, typed, dtype, self.mesh, self.machine, node.gradients, self.library
            )
            self._times[key] = OperatorTime(max(forward - waiting[0], 0.0), backward, launches, limits)
        return self._times[key]


def _inside(run: Execution) -> int:
    """Bytes of the largest tensor that an operator keeps of what is neither given to it nor its result."""
    others = {tensor.storage for tensor in (*run.inputs, *run.outputs)}
    return max((storage.bytes for storage in run.saved if storage not in others), default=0)

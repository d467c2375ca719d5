"""The tasks of a plan's training step: the emitted program's forward pass, its backward pass by autograd, the update.

The forward pass runs operators in order, each after the conversions that it reads. Variables hold their tensors until
the enclosing function returns. The backward pass runs the recorded operations in reverse order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from ..graph.layout import Mesh
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.placed_order import different_places
from ..graph.plan import Exposure, Plan, PlannedGraph
from ..graph.reused_operands import with_reused_operands
from ..index.library import Library
from ..index.lowering.local_tensor import Storage
from ..machine.conversion_model import ConversionModel
from ..machine.machine import Machine
from ..machine.operator_price import MOMENTS, price_update
from ..schedule.build import build_schedule
from ..schedule.ir import Function
from .device_joining import join_devices
from .device_program import Program
from .event_loop import simulate
from .forward_pass import ForwardPass
from .hardware import hardware_of
from .listed_iterations import ATTEMPTS, EVERY, PASSES, PERIODS, Listed, NotAlikeError
from .operator_tasks import Operators
from .task import OPTIMIZER, Phase, TaskGraph
from .task_list import TaskList
from .timeline import Timeline


def step_tasks(plan: Plan, machine: Machine, library: Library) -> TaskGraph:
    """The tasks of one training step: the passes of all its micro-batches. A model without a loss runs one call.

    One device represents all if all do the same. If some operators run on some devices only, one device for each
    coordinate is listed.
    """
    plan, schedule, prices = as_simulated(plan, machine, library)
    places = different_places(plan.graph, plan.mesh)
    graphs = []
    for place in places:
        graphs.append(_device_graph(plan, schedule, prices, place))
    if len(graphs) == 1:
        return graphs[0]
    names = {plan.mesh.axes[axis].name: axis for axis in places[0]}
    return join_devices(places, graphs, lambda channel: [names[name] for name in channel.split(", ") if name in names])


def _device_graph(plan: Plan, schedule: Function, prices: ConversionModel, place: Mapping[int, int]) -> TaskGraph:
    """The tasks of a device. Identical passes and iterations are listed once and copied where this is possible. Folds
    are split at a few places where iterations would otherwise differ.
    """

    def graph(listed: Listed) -> TaskGraph:
        tasks, held = device_tasks(plan, schedule, prices, place, listed)
        return tasks.finished(held)

    cuts = frozenset[tuple[str, int]]()
    for period in PERIODS[-1:] if plan.passes.offloaded else PERIODS:
        for _ in range(ATTEMPTS):
            try:
                return graph(Listed(once=True, period=period, cuts=cuts))
            except NotAlikeError as found:
                if found.cuts <= cuts:
                    break
                cuts |= found.cuts
        else:
            break
    with suppress(NotAlikeError):
        return graph(Listed(once=True))
    return graph(EVERY)


def as_simulated(plan: Plan, machine: Machine, library: Library) -> tuple[Plan, Function, ConversionModel]:
    """The plan as its program runs it, its schedule, and the prices of its conversions without any overlap. Neither
    plan nor schedule depends on the bucket size of gradients, so the last ones are cached for other bucket sizes.
    """
    prices = _prices(plan.mesh, machine.exposing(Exposure()), library, plan.model.gradient_bytes)
    same = plan.graph, plan.conversions, plan.model, library
    key = tuple(map(id, same)), plan.mesh, replace(plan.passes, bucket_mib=BUCKET_MIB)
    if key not in _SCHEDULES:
        graph = with_reused_operands(plan.graph, plan.model, plan.mesh, library, plan.passes.recomputed)
        _SCHEDULES[key] = same, graph, build_schedule(replace(plan, graph=graph), library)
        if len(_SCHEDULES) > KEPT:
            _SCHEDULES.popitem(last=False)
    _SCHEDULES.move_to_end(key)
    _, graph, schedule = _SCHEDULES[key]
    return replace(plan, graph=graph), schedule, prices


KEPT = 8
"""The number of cached schedules, and of meshes with cached prices."""
_SCHEDULES: OrderedDict[object, tuple[object, PlannedGraph, Function]] = OrderedDict()
"""Keyed by the identities of a plan's parts, which each entry keeps alive, its mesh and its passes."""


@lru_cache(maxsize=KEPT)
def _prices(mesh: Mesh, machine: Machine, library: Library, gradient_bytes: float) -> ConversionModel:
    """The conversion prices of all plans on a mesh: one object, which caches its results."""
    return ConversionModel(mesh, machine, library, gradient_bytes)


def device_tasks(
    plan: Plan,
    schedule: Function,
    prices: ConversionModel,
    place: Mapping[int, int],
    listed: Listed = EVERY,
) -> tuple[TaskList, float]:
    """The tasks of a device with these coordinates, and its memory in bytes before and after them. Raises NotAlikeError
    if the listed iterations are known to differ, so that they cannot be copied.
    """
    tasks, machine = TaskList(), prices.machine
    operators = Operators(tasks, plan.mesh, machine, prices.library)
    program = Program(plan, schedule, tasks, prices, operators, place, listed)
    passes = min(plan.micro_batches, PASSES) if listed.brief else plan.micro_batches
    while passes:
        alike = tasks.begin_pass(program.backward.buckets.waiting()) if listed.once else False
        if alike and passes > 1:
            tasks.repeat_pass(passes - 1)
            passes = 1
        program.number, passes = program.number + 1, passes - 1
        _list_passes(program, last=not passes)
    if tasks.phase is Phase.BACKWARD:
        gradients = program.backward.finish()
        tasks.phase = Phase.UPDATE
        if updated := program.trained_bytes:
            temporary = Storage(updated if machine.device == "cpu" else 0)  # on a GPU the step is one kernel
            tasks.kernel(OPTIMIZER, "", price_update(updated, machine), 1, [temporary], reads=gradients)
            tasks.settle([temporary])
        tasks.drop(gradients)
    held = program.stored_bytes
    if plan.model.loss is not None:
        held += MOMENTS * program.trained_bytes
    return tasks, held


def _list_passes(program: Program, *, last: bool) -> None:
    """Lists the forward pass and the backward pass of a micro-batch. Accumulated gradients are sent with the `last`
    one.
    """
    tasks, plan = program.tasks, program.plan
    tasks.phase = Phase.FORWARD
    program.backward.buckets.begin(accumulating=not last)
    loss, *outputs = ForwardPass(program, program.schedule, "").run()
    if plan.model.loss is not None:
        tasks.drop(tensor.storage for tensor in outputs)
    if plan.model.loss is not None and loss.moves:
        tasks.phase = Phase.BACKWARD
        program.backward.run(loss, program.trained)
        program.host.end_backward()
        tasks.drop([loss.storage])


def simulate_step(plan: Plan, machine: Machine, library: Library) -> Timeline:
    """Simulates the tasks of a step on the devices of that machine."""
    return simulate(step_tasks(plan, machine, library), hardware_of(machine))

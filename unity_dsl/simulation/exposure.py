"""The exposed fractions of a simulated step's launches, sums of gradients and gathers of weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..graph.plan import Exposure, without_iterations
from .breakdown import KernelTime
from .task import COMPUTE, Phase, Purpose
from .timeline import HOST, Timeline


def exposure_of(timeline: Timeline, otherwise: Exposure) -> Exposure:
    """Exposed fractions on device 0: for launches, the part of their time for which the device waits; for collectives,
    the part in which no kernel runs. A fraction that is unknown, because the step has no such collective, is that of
    `otherwise`.
    """
    kernels = KernelTime(timeline)

    def of(purpose: Purpose, unknown: float) -> float:
        some = _numbers(timeline, purpose)
        seconds = float((timeline.end[some] - timeline.start[some]).sum())
        return kernels.outside(timeline.start[some], timeline.end[some]) / seconds if seconds > 0 else unknown

    sums, gathers = of(Purpose.GRADIENTS, otherwise.sums), of(Purpose.WEIGHTS, otherwise.gathers)
    launches, devices = _of_launches(timeline)
    return Exposure(launches, sums, gathers, devices=devices)


def exposed_backwards(timeline: Timeline) -> float:
    """The fraction of a step in which values are communicated in the backward pass and no kernel runs, on device 0."""
    return exposed_values(timeline, (Phase.BACKWARD,))


def exposed_values(
    timeline: Timeline, phases: Collection[Phase] = tuple(Phase), paths: Collection[str] | None = None
) -> float:
    """The fraction of a step in which values are communicated in one of these phases and no kernel runs, on device 0.
    If `paths` are given, only the values at these paths count, in any iteration.
    """
    tasks = timeline.graph.tasks
    some = [i for i in _numbers(timeline, Purpose.VALUES) if tasks[i].phase in phases and tasks[i].channel != COMPUTE]
    return _exposed(timeline, [i for i in some if paths is None or without_iterations(tasks[i].place) in paths])


def exposed_sums(timeline: Timeline) -> float:
    """The fraction of a step in which gradients of parameters are summed and no kernel runs, on device 0."""
    return _exposed(timeline, gradient_sums(timeline))


def exposed_gathers(timeline: Timeline) -> float:
    """The fraction of a step in which weights are prefetched and no kernel runs, on device 0."""
    return _exposed(timeline, _numbers(timeline, Purpose.WEIGHTS))


def gradient_sums(timeline: Timeline) -> list[int]:
    """The numbers of the tasks of device 0 that sum gradients of parameters."""
    return _numbers(timeline, Purpose.GRADIENTS)


def _numbers(timeline: Timeline, purpose: Purpose) -> list[int]:
    return [i for i, task in enumerate(timeline.graph.tasks) if task.purpose is purpose and task.device == 0]


def _exposed(timeline: Timeline, some: Sequence[int]) -> float:
    """The fraction of a step in which some of these tasks run and no kernel does."""
    return KernelTime(timeline).outside(timeline.start[some], timeline.end[some]) / timeline.seconds if some else 0.0


def _of_launches(timeline: Timeline) -> tuple[float, float]:
    """The exposed fractions of a device's launches and of all device work. The critical path begins with a task that
    waited only for its launch. Until then the host issues one launch after the other, and the devices wait for
    launches. From then on launches are ahead of the devices. If the host computes, launches are part of the kernels
    that they start.
    """
    path = timeline.critical_path
    if timeline.hardware.host_computes or not path:
        return 1.0, 1.0
    device, waited = timeline.graph.tasks[path[0]].device, float(timeline.start[path[0]])
    issued = timeline.busy[device, HOST]
    return min(1.0, waited / issued) if issued > 0 else 1.0, 1 - waited / timeline.seconds

"""What of a simulated step's launches, sums of gradients and gathers of weights nothing else hides."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..graph.plan import Exposure, without_iterations
from .breakdown import KernelTime
from .task import COMPUTE, Phase, Purpose
from .timeline import HOST, Timeline


def exposure_of(timeline: Timeline, otherwise: Exposure) -> Exposure:
    """Of device 0: of launches, the part of their time for which the device waits; of collectives, that in which no
    kernel runs. Of what a step does not have nothing is known: that is as `otherwise`.
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
    """The part of a step in which values travel in the backward pass, and no kernel runs: of device 0."""
    return exposed_values(timeline, (Phase.BACKWARD,))


def exposed_values(
    timeline: Timeline, phases: Collection[Phase] = tuple(Phase), paths: Collection[str] | None = None
) -> float:
    """The part of a step in which values travel in one of these phases, and no kernel runs: of device 0. If `paths` are
    given, of the values of these alone, in whatever iteration.
    """
    tasks = timeline.graph.tasks
    some = [i for i in _numbers(timeline, Purpose.VALUES) if tasks[i].phase in phases and tasks[i].channel != COMPUTE]
    return _exposed(timeline, [i for i in some if paths is None or without_iterations(tasks[i].place) in paths])


def exposed_sums(timeline: Timeline) -> float:
    """The part of a step in which gradients of parameters are summed, and no kernel runs: of device 0."""
    return _exposed(timeline, gradient_sums(timeline))


def exposed_gathers(timeline: Timeline) -> float:
    """The part of a step in which weights are gathered, and no kernel runs: of device 0."""
    return _exposed(timeline, _numbers(timeline, Purpose.WEIGHTS))


def gradient_sums(timeline: Timeline) -> list[int]:
    """The numbers of the tasks of device 0 that sum gradients of parameters."""
    return _numbers(timeline, Purpose.GRADIENTS)


def _numbers(timeline: Timeline, purpose: Purpose) -> list[int]:
    return [i for i, task in enumerate(timeline.graph.tasks) if task.purpose is purpose and task.device == 0]


def _exposed(timeline: Timeline, some: Sequence[int]) -> float:
    """The part of a step in which some of these tasks run, and no kernel."""
    return KernelTime(timeline).outside(timeline.start[some], timeline.end[some]) / timeline.seconds if some else 0.0


def _of_launches(timeline: Timeline) -> tuple[float, float]:
    """Of the launches of a device, and of all that devices do. The critical path begins with a task that waited for its
    launch alone: up to there the host issues one launch after the other, and what devices do is behind them; from there
    on they are ahead of the devices. Where the host computes, launches are a part of the kernels that they start.
    """
    path = timeline.critical_path
    if timeline.hardware.host_computes or not path:
        return 1.0, 1.0
    device, waited = timeline.graph.tasks[path[0]].device, float(timeline.start[path[0]])
    issued = timeline.busy[device, HOST]
    return min(1.0, waited / issued) if issued > 0 else 1.0, 1 - waited / timeline.seconds

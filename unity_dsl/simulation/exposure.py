"""What of a simulated step's launches, sums of gradients and gathers of weights nothing else hides."""

from __future__ import annotations

import numpy as np

from ..graph.plan import Exposure
from .breakdown import KernelTime
from .task import COMPUTE, Purpose
from .timeline import Timeline


def exposure_of(timeline: Timeline, otherwise: Exposure) -> Exposure:
    """Of device 0: of launches, the part of their time for which the device waits; of collectives, that in which no
    kernel runs. Of what a step does not have nothing is known: that is as `otherwise`.
    """
    kernels = KernelTime(timeline)

    def of(purpose: Purpose, unknown: float) -> float:
        some = [i for i, task in enumerate(timeline.graph.tasks) if task.purpose is purpose and task.device == 0]
        seconds = float((timeline.end[some] - timeline.start[some]).sum())
        return kernels.outside(timeline.start[some], timeline.end[some]) / seconds if seconds > 0 else unknown

    sums, gathers = of(Purpose.GRADIENTS, otherwise.sums), of(Purpose.WEIGHTS, otherwise.gathers)
    return Exposure(_of_launches(timeline), sums, gathers)


def _of_launches(timeline: Timeline) -> float:
    """Where the host computes, launches are a part of the kernels that they start."""
    if timeline.hardware.host_computes:
        return 1.0
    waited, before = 0.0, 0.0
    begins, ends = timeline.start.tolist(), timeline.end.tolist()
    for task, begin, end in zip(timeline.graph.tasks, begins, ends, strict=True):
        if task.device == 0 and task.channel == COMPUTE:
            ready = max(before, *(ends[other] for other in task.after), 0.0)
            waited += max(0.0, begin - ready)
            before = end
    issued = float((timeline.issued - timeline.launch).sum())
    return float(np.clip(waited / issued, 0.0, 1.0)) if issued > 0 else 1.0

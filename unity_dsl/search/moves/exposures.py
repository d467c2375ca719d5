"""The exposures measured in a simulated step, at which layouts are solved again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace

from ...graph.chunked_products import chunks_of_plan
from ...graph.plan import Exposure, without_iterations
from ...simulation.breakdown import KernelTime
from ...simulation.exposure import exposure_of
from ...simulation.task import COMPUTE, Purpose
from ...simulation.timeline import Timeline
from ..accounting.summed_gradients import summed_part
from ..constants import AGREES, LEAST_EXPOSED, LEAST_OF_DEVICES
from ..point import Point
from ..solver import Solver


def measured(point: Point, timeline: Timeline, solver: Solver) -> Exposure:
    """The exposed fraction of each kind of work in a point's step; for a kind that the step lacks, the fraction of its
    price.
    """
    plan, otherwise = point.plan, point.exposure
    found = {name: max(LEAST_EXPOSED, part) for name, part in asdict(exposure_of(timeline, otherwise)).items()}
    values = _exposed_part(timeline) if plan.passes.interleaved else otherwise.values
    products = 1.0
    if plan.passes.chunks > 1:
        chunked = chunks_of_plan(plan, point.context.library, plan.passes.chunks)
        products = _exposed_part(timeline, {path + product.value.name for path, product in chunked})
    return replace(
        Exposure(**found),
        devices=max(LEAST_OF_DEVICES, found["devices"]),
        summed=summed_part(plan) or 1.0,
        values=values,
        products=products,
    )


def _exposed_part(timeline: Timeline, paths: Collection[str] | None = None) -> float:
    """The fraction of the time of value conversions on device 0 in which no kernel runs: of all, or of these paths."""
    some = [
        number
        for number, task in enumerate(timeline.graph.tasks)
        if task.purpose is Purpose.VALUES
        and task.device == 0
        and task.channel != COMPUTE
        and (paths is None or without_iterations(task.place) in paths)
    ]
    start, end = timeline.start[some], timeline.end[some]
    seconds = float((end - start).sum())
    part = KernelTime(timeline).outside(start, end) / seconds if seconds else 1.0
    return min(1.0, max(LEAST_EXPOSED, part))


def worst_exposure(found: Exposure, priced: Exposure, timeline: Timeline) -> tuple[str, Exposure]:
    """The price with one kind set to what was found: the kind whose seconds on device 0 were priced most wrongly. Its
    name comes first.
    """
    seconds = dict.fromkeys(("gathers", "sums", "devices", "launches"), 0.0)
    kinds = {Purpose.WEIGHTS: "gathers", Purpose.GRADIENTS: "sums"}
    for number, task in enumerate(timeline.graph.tasks):
        if task.device == 0:
            taken = float(timeline.end[number] - timeline.start[number])
            if task.purpose in kinds:
                seconds[kinds[task.purpose]] += taken
            elif task.channel == COMPUTE:
                seconds["devices"] += taken
            seconds["launches"] += float(timeline.issued[number] - timeline.launch[number])
    worst = max(seconds, key=lambda kind: seconds[kind] * abs(getattr(found, kind) - getattr(priced, kind)))
    if worst in ("devices", "launches"):
        return "exposure of launches", replace(priced, launches=found.launches, devices=found.devices)
    return f"exposure of {worst}", replace(priced, **{worst: getattr(found, worst)}, summed=found.summed)


def agree(one: Exposure, other: Exposure) -> bool:
    """Whether two exposures are the same for a search."""
    return all(abs(part - getattr(other, kind)) <= AGREES for kind, part in asdict(one).items())


def halfway(one: Exposure, other: Exposure) -> Exposure:
    """The mean of two exposures."""
    return Exposure(**{kind: (part + getattr(other, kind)) / 2 for kind, part in asdict(one).items()})

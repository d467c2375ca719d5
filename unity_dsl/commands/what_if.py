"""`unityc explain OUT --pin …`: the cost and memory of the best plan with other pins, next to the compiled one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..machine.byte_count import describe_bytes
from ..written_figures import duration
from .summary import relative

if TYPE_CHECKING:
    from ..emit.plan_file import PlanFile
    from ..graph.plan import Plan, PlannedGraph
    from ..machine.machine import Machine

SHOWN = 20
"""How many of the differing layouts are shown; --json has all."""


@dataclass(frozen=True)
class WhatIf:
    """The best plan under a `condition`, in words, on the mesh of the plan that it is compared with.

    `differ` are the layouts of stored weights and of values that differ: by path, before and then. Seconds are those of
    the search's cost and of the simulation, bytes those of a device.
    """

    condition: str
    cost_seconds: float
    simulated_seconds: float
    memory_bytes: float
    fits: bool
    differ: dict[str, tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "differ": {path: list(pair) for path, pair in self.differ.items()}}


def what_if(
    record: PlanFile, plan: Plan, machine: Machine, pins: Sequence[str], forbidden: Sequence[str]
) -> list[WhatIf]:
    """The best plan with all these pins and without the `forbidden` layouts. They win over the plan's own pins of the
    same names. Without either: the plans without each of its own pins, and without any.

    Raises E305 to E308 for what is no pin of this model, E307 and E309 if there is no such plan. A plan that is not
    searched, random or of one device, has no alternatives; asking for pins then raises a usage error.
    """
    from ..search.layout_pins import parse_pin
    from ..search.strategies import STRATEGIES

    if plan.mesh.size == 1 or record.strategy not in STRATEGIES:
        if pins or forbidden:
            place = "one device" if plan.mesh.size == 1 else f"the strategy {record.strategy}"
            raise click.UsageError(f"a plan of {place} is not searched: nothing else could be chosen")
        return []
    if pins or forbidden:
        words = ", ".join((*(f"with {pin}" for pin in pins), *(f"without {pin}" for pin in forbidden)))
        named = {name for name, _ in map(parse_pin, (*pins, *forbidden))}
        own = [pin for pin in record.pins if parse_pin(pin)[0] not in named]
        return [_searched(record, plan, machine, words, (*own, *pins), forbidden)]
    found = []
    for pin in record.pins:
        left = [other for other in record.pins if other != pin]
        found.append(_searched(record, plan, machine, f"without the pin {pin}", left, ()))
    if len(record.pins) > 1:
        found.append(_searched(record, plan, machine, "without any pin", (), ()))
    return found


def _searched(
    record: PlanFile, plan: Plan, machine: Machine, condition: str, pins: Sequence[str], forbidden: Sequence[str]
) -> WhatIf:
    from ..emit.program_check import replan
    from ..simulation.step_tasks import simulate_step

    other, library = replan(record, record.devices, plan.mesh.degrees, record.strategy, pins, forbidden)
    before, then = layouts_by_path(plan.graph), layouts_by_path(other.graph)
    return WhatIf(
        condition=condition,
        cost_seconds=other.cost.seconds,
        simulated_seconds=simulate_step(other, machine, library).seconds,
        memory_bytes=other.cost.memory.total,
        fits=not other.warnings,
        differ={path: (before[path], then[path]) for path in before if path in then and before[path] != then[path]},
    )


def layouts_by_path(graph: PlannedGraph) -> dict[str, str]:
    """The layout in which every weight is stored and every value made. If iterations differ, each of their layouts is
    listed.
    """
    found: dict[str, dict[str, None]] = {}
    for path, layout in _layouts(graph, ""):
        found.setdefault(path, {})[layout] = None
    return {path: " and ".join(layouts) for path, layouts in found.items()}


def _layouts(graph: PlannedGraph, prefix: str) -> Iterator[tuple[str, str]]:
    from ..graph.plan import PlannedSegment

    for name, planned in graph.values.items():
        yield prefix + name, str(planned.produced)
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from _layouts(run.body, f"{prefix}{step.segment.name}.*.")


def show_what_if(found: Sequence[WhatIf], plan: Plan, simulated: float) -> None:
    """Prints a table, and below it the layouts that differ."""
    if not found:
        return
    width = max(len("this plan"), *(len(other.condition) for other in found))
    click.echo(f"\n{'what if':<{width}}  {'cost':>18}  {'simulated':>18}  {'memory':>8}")
    held = describe_bytes(plan.cost.memory.total)
    click.echo(f"{'this plan':<{width}}  {duration(plan.cost.seconds):>18}  {duration(simulated):>18}  {held:>8}")
    for other in found:
        cost = _beside(other.cost_seconds, plan.cost.seconds)
        then, held = _beside(other.simulated_seconds, simulated), describe_bytes(other.memory_bytes)
        lack = "" if other.fits else ", does not fit"
        click.echo(f"{other.condition:<{width}}  {cost:>18}  {then:>18}  {held:>8}{lack}")
    for other in found:
        count = len(other.differ)
        click.echo(f"\n{other.condition}: {'1 layout differs' if count == 1 else f'{count} layouts differ'}")
        for path, (before, then) in list(other.differ.items())[:SHOWN]:
            click.echo(f"  {path}: {before} -> {then}")
        if len(other.differ) > SHOWN:
            click.echo(f"  {len(other.differ) - SHOWN} more; --json lists all")


def _beside(seconds: float, own: float) -> str:
    return f"{duration(seconds)} ({relative(seconds, own)})"

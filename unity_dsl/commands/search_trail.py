"""What `unityc explain OUT --search` prints: every plan that the search looked at, and how good the result is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ..graph.plan import Plan
from ..graph.search_trail import Trial
from ..machine.machine import Machine
from ..simulation.hardware import hardware_of
from ..simulation.lower_bound import lower_bound
from ..simulation.timeline import Timeline
from ..written_figures import duration, percent

LAST = 5
"""How many of the moves tried last are listed, with the step that they would have given."""


def show_search(out: Path) -> None:
    """Print the trail of the search that found the program in `out`, and three lines on its result."""
    from .plan_explanation import simulated_plan

    plan, timeline, machine, _, record = simulated_plan(out)
    click.echo("\n".join(trail_lines(record.trail)))
    click.echo()
    for line in result_lines(plan, record.trail, timeline, machine):
        click.echo(line)


def trail_lines(trail: tuple[Trial, ...]) -> list[str]:
    """A table: simulated steps so far, the move, the mesh and micro-batches, the step, and whether it was the best so
    far.
    """
    if not trail:
        return ["the plan was not searched for: its strategy chose it"]
    rows = [("simulated", "move", "mesh", "micro-batches", "step", "")]
    for one in trail:
        mesh = " x ".join(map(str, one.mesh)) or "one device"
        step = "does not fit" if one.seconds is None else duration(one.seconds)
        rows.append((str(one.evaluations), one.move, mesh, str(one.micro_batches), step, "best" if one.best else ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def result_lines(plan: Plan, trail: tuple[Trial, ...], timeline: Timeline, machine: Machine) -> Iterator[str]:
    """The gap between the step and its lower bound, what limits the step, and what was tried after the best plan."""
    bound = lower_bound(timeline.graph, hardware_of(machine))
    gap = percent(100 * max(0.0, timeline.seconds / bound.seconds - 1)) if bound.seconds else "0 %"
    yield f"gap: the step takes {duration(timeline.seconds)}, {gap} more than its tasks take in any order"
    spent = timeline.spent()
    parts = {
        "kernels": spent.compute,
        "the optimizer": spent.update,
        "exposed communication": spent.exposed,
        "waiting for launches": spent.idle,
    }
    order = sorted(parts, key=lambda name: -parts[name])
    told = (f"{name} {percent(100 * parts[name] / timeline.seconds)}" for name in order if parts[name])
    yield f"limit: {', '.join(told)}"
    found = max((number for number, one in enumerate(trail) if one.best), default=-1)
    others = [one for one in trail[found + 1 :] if one.seconds is not None]
    last = (f"{one.move} {percent(100 * (one.seconds / plan.seconds - 1))}" for one in others[-LAST:] if one.seconds)
    yield f"tried last, longer by: {', '.join(last) or 'nothing'}"

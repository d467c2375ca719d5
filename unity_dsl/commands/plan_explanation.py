"""`unityc explain OUT`: what a simulated step of a compiled program spends its time on, and what bounds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..emit.passes_data import describe_passes
from ..graph.model_flops import model_flops, seconds_at_peak
from ..graph.padding import padding_words
from ..machine.byte_count import describe_bytes
from ..written_figures import duration
from .console import show_lines
from .summary import batch_text, describe_flops, precision_text, relative
from .what_if import WhatIf, show_what_if, what_if

if TYPE_CHECKING:
    from ..emit.plan_file import PlanFile
    from ..graph.layout import Layout
    from ..graph.plan import Plan, PlannedGraph, PlannedValue
    from ..index.library import Library
    from ..machine.machine import Machine
    from ..simulation.breakdown import Spent
    from ..simulation.timeline import Timeline

SHOWN = 20
"""Rows of the table; --json has all."""
COMPARED = "data_parallel"
"""The strategy that a plan is compared with."""


@dataclass(frozen=True)
class Explained:
    """A simulated plan, and the simulated data-parallel plan of the same model on as many devices, or why that is
    `refused`.
    """

    plan: Plan
    timeline: Timeline
    spent: Sequence[Spent]
    other: Timeline | None
    refused: str
    machine: Machine
    library: Library
    record: PlanFile

    @property
    def utilisation(self) -> float | None:
        """Model FLOPs utilisation of the simulated step; None if the step takes no time because it computes nothing."""
        plan = self.plan
        if not self.timeline.seconds:
            return None
        least = seconds_at_peak(plan.model, self.machine.peak, plan.mesh.size)
        return plan.micro_batches * least / self.timeline.seconds


def explain_plan(out: Path, part: str | None, pins: Sequence[str], forbidden: Sequence[str], as_json: bool) -> None:
    """Print what a step of the program in `out` is spent on, or only one operator or value, if `part` names it. With
    pins or `forbidden` layouts, also print the best plan under them. For a plan with pins, also print the plans without
    these.

    Raises E403 to E405 for a folder without a sound plan, E031 if the plan has nothing of that name, and what `what_if`
    raises.
    """
    found = explained(out)
    others = (
        what_if(found.record, found.plan, found.machine, pins, forbidden) if part is None or pins or forbidden else []
    )
    names = () if part is None else full_names(found, part)
    rows = found.spent if part is None else list(dict.fromkeys(row for name in names for row in named(found, name)))
    layouts = {path: text for name in names for path, text in layouts_of(found.plan.graph, name).items()}
    next_best = next_best_of(found, names[0]) if layouts and len(names) == 1 else None
    if as_json:
        click.echo(json.dumps(summarise_explained(found, rows, layouts, next_best, others), indent=1))
        return
    show_explained(found, layouts, next_best)
    show_table(rows, found.timeline.seconds)
    show_what_if(others, found.plan, found.timeline.seconds)


def show_schedule(out: Path) -> None:
    """Print the step of the program in `out` in the order in which devices issue it, for each group of devices that act
    alike.
    """
    from ..simulation.step_text import step_lines

    _, timeline, *_ = simulated_plan(out)
    count = timeline.graph.devices
    for device in range(count):
        if count > 1:
            click.echo(f"device {device}, one of {count} that do different things:\n")
        click.echo("\n".join(step_lines(timeline, device)))


def simulated_plan(out: Path) -> tuple[Plan, Timeline, Machine, Library, PlanFile]:
    """The plan of a compiled program, its simulated step, and what both were made from."""
    from ..emit.plan_file import load_plan_file
    from ..emit.written_plan import written_plan
    from ..machine.machine import read_machine
    from ..simulation.step_tasks import simulate_step

    record = load_plan_file(out)
    machine = read_machine(record.sources.machine)
    plan, library = written_plan(record, out)
    return plan, simulate_step(plan, machine, library), machine, library, record


def explained(out: Path) -> Explained:
    from ..emit.program_check import replan
    from ..simulation.breakdown import break_down
    from ..simulation.step_tasks import simulate_step
    from ..syntax.diagnostic import InputError

    plan, timeline, machine, library, record = simulated_plan(out)
    other, refused = None, ""
    if plan.mesh.size > 1 and record.strategy != COMPARED:
        try:
            beside, _ = replan(record, record.devices, None, COMPARED, (), micro_batches=1)
            other = simulate_step(beside, machine, library)
        except InputError as error:
            refused = error.diagnostic.message
    return Explained(plan, timeline, break_down(timeline), other, refused, machine, library, record)


def named(found: Explained, part: str) -> list[Spent]:
    """Rows of an operator, `gelu_tanh`, of a place, `layer.*.mlp.h`, with or without its iterations, or of both as the
    table prints them.
    """
    return [
        row
        for row in found.spent
        if part in (row.name, f"{row.name} {row.place}") or (row.place and uniterated(row.place) == uniterated(part))
    ]


def uniterated(path: str) -> str:
    """`layer.w`, as pins name it, for `layer.7.w` and `layer.*.w`."""
    from ..simulation.breakdown import without_iterations

    return without_iterations(path).replace(".*.", ".")


def full_names(found: Explained, part: str) -> tuple[str, ...]:
    """The names in the plan that `part` stands for: itself, or the paths of the values to which a pin of that name
    applies.

    Raises E031 if there is nothing of that name, E306 if one word of the program's texts stands for several.
    """
    from ..search.choices.restriction import places
    from ..search.layout_pins import matching
    from ..syntax.diagnostic import InputError, fail, suggest

    if named(found, part) or layouts_of(found.plan.graph, part):
        return (part,)
    every = list(places(found.plan.model))
    try:
        return tuple(place.path for place in matching(part, every))
    except InputError as error:
        if " may be " in error.diagnostic.message:
            raise
    paths = {row.place for row in found.spent} | {row.name for row in found.spent} | {place.path for place in every}
    hint = suggest(part, sorted(paths)) or "without a name the command lists them"
    raise fail("E031", f"the plan has no operator or value called `{part}`", help=hint)


@dataclass(frozen=True)
class NextBest:
    """The cheapest plan on the same mesh in which a value has none of its present layouts."""

    layouts: tuple[str, ...]
    cost_seconds: float
    simulated_seconds: float


def next_best_of(found: Explained, part: str) -> NextBest | None:
    """The next best plan for the value that `part` names; None if there is none, for example because the value is
    pinned.
    """
    from ..graph.plan import in_micro_batches
    from ..search.layout_pins import parse_pins
    from ..search.plan_search import search
    from ..search.strategies import STRATEGIES
    from ..simulation.step_tasks import simulate_step
    from ..syntax.diagnostic import InputError

    plan = found.plan
    if plan.mesh.size == 1 or plan.strategy not in STRATEGIES:
        return None
    excluded = {part.replace(".*.", "."): frozenset(made_in(plan.graph, part))}
    try:
        pins = parse_pins(found.record.pins)
        priced, again = found.machine.exposing(plan.exposed), plan.passes.recomputed
        other = search(
            plan.model,
            plan.mesh,
            priced,
            found.library,
            pins=pins,
            excluded=excluded,
            recompute=again,
            kept_iterations=plan.passes.kept_iterations,
        )
        other = in_micro_batches(other, plan.division)
    except InputError:
        return None
    timeline = simulate_step(other, found.machine, found.library)
    layouts = tuple(dict.fromkeys(map(str, made_in(other.graph, part))))
    if {*layouts} & {*map(str, made_in(plan.graph, part))}:
        return None  # an input is whole on every device
    return NextBest(layouts, other.cost.seconds, timeline.seconds)


def values_called(
    graph: PlannedGraph, part: str, prefix: str = "", anywhere: str = ""
) -> Iterator[tuple[str, PlannedValue]]:
    """Every value of that name with its path, once for iterations of a loop that share a plan.

    `prefix` and `anywhere` stand before the names of a body: the former with its iterations, the latter with `*`.
    """
    from ..graph.plan import PlannedSegment

    for name, planned in graph.values.items():
        if part in (prefix + name, anywhere + name, anywhere.replace(".*.", ".") + name):
            yield prefix + name, planned
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                last = run.first + run.count - 1
                index = f"{run.first}" if run.count == 1 else "*" if len(step.runs) == 1 else f"{run.first}-{last}"
                name = step.segment.name
                asked = re.fullmatch(rf"({re.escape(f'{prefix}{name}.')})(\d+)(\..*)", part)
                own = f"{asked[1]}{index}{asked[3]}" if asked and run.first <= int(asked[2]) <= last else part
                yield from values_called(run.body, own, f"{prefix}{name}.{index}.", f"{anywhere}{name}.*.")


def made_in(graph: PlannedGraph, part: str) -> list[Layout]:
    """The layouts in which a value is made or stored."""
    return [planned.produced for _, planned in values_called(graph, part)]


def layouts_of(graph: PlannedGraph, part: str) -> dict[str, str]:
    """The layouts in which a value is made or stored, and those it is converted to, by its path."""
    found = {}
    for path, planned in values_called(graph, part):
        others = ", ".join(str(made.layout) for made in planned.materialised)
        found[path] = f"{planned.produced}{f', converted to {others}' if others else ''}"
    return found


def summarise_explained(
    found: Explained,
    rows: Sequence[Spent],
    layouts: dict[str, str],
    next_best: NextBest | None,
    others: Sequence[WhatIf],
) -> dict[str, Any]:
    """The explanation as plain data, in seconds and bytes."""
    return {
        "model": found.plan.model.name,
        "machine": found.plan.machine,
        "devices": found.plan.mesh.size,
        "strategy": found.plan.strategy,
        "precision": found.plan.model.precision,
        "micro_batches": found.plan.micro_batches,
        **describe_passes(found.plan.passes),
        "seconds": found.timeline.seconds,
        "exposed": found.timeline.exposed(),
        "utilisation": found.utilisation,
        "model_flops": found.plan.micro_batches * sum(model_flops(found.plan.model).values()),
        "peak_memory_bytes": found.plan.cost.memory.total,
        COMPARED: None if found.other is None else found.other.seconds,
        f"{COMPARED}_refused": found.refused or None,
        "layouts": layouts,
        "next_best": None if next_best is None else asdict(next_best),
        "cost_seconds": found.plan.cost.seconds,
        "memory_bytes": found.plan.cost.memory.total,
        "what_if": [other.to_json() for other in others],
        "spent": [
            {name: value for name, value in asdict(row).items() if name != "first"} | {"seconds": row.seconds}
            for row in rows
        ],
    }


def show_explained(found: Explained, layouts: dict[str, str], next_best: NextBest | None) -> None:
    """Prints a few lines for people."""
    from ..search.accounting.kept_iterations import recomputed_words, segment_words
    from ..search.pass_notes import bucket_words, chunked_words

    plan, timeline = found.plan, found.timeline
    step = "step" if plan.model.loss is not None else "call"
    devices = "1 device" if plan.mesh.size == 1 else f"{plan.mesh.size} devices"
    axes = " × ".join(f"{axis.name}={axis.degree}" for axis in plan.mesh.axes)
    memory = plan.cost.memory
    at_peak = f", {memory.at}" if memory.at else ""
    place = f"{devices} of {plan.machine}{', mesh ' + axes if axes else ''}"
    lines = [
        ("plan", f"{plan.model.name} on {place}, {plan.strategy}{precision_text(plan)}"),
        (
            "simulated",
            f"{duration(timeline.seconds)} a {step}, {duration(timeline.exposed())} of it waiting for others",
        ),
    ]
    if found.utilisation is not None:
        used = f"{100 * found.utilisation:.3g}% of the peak, {describe_flops(plan)} a {step}"
        lines.append(("utilisation", used))
    lines.append(("memory", f"at most {describe_bytes(memory.total)} a device{at_peak}"))
    if plan.division is not None:
        lines.append(("batch", batch_text(plan)))
    if plan.model.padding:
        lines.append(("padding", padding_words(plan.model)))
    if plan.passes.recomputed:
        lines.append(("recomputed", f"{recomputed_words(plan)}, in the backward pass"))
    if plan.passes.offloaded:
        lines.append(("offloaded", f"activations in host memory: {segment_words(plan, plan.passes.offloaded)}"))
    if words := chunked_words(plan, found.library):
        lines.append(("in chunks", words))
    if words := bucket_words(plan):
        lines.append(("buckets", words))
    if found.other is not None:
        ratio = f", {found.other.seconds / timeline.seconds:.2f} times that" if timeline.seconds else ""
        lines.append((COMPARED, f"{duration(found.other.seconds)} a {step}{ratio}"))
    if found.refused:
        lines.append((COMPARED, found.refused.removeprefix(f"{COMPARED} ")))
    lines += [("layout", f"{path}: {text}") for path, text in layouts.items()]
    if next_best is not None:
        lines.append(("next best", _next_best_text(next_best, plan, timeline)))
    show_lines(lines)


def _next_best_text(next_best: NextBest, plan: Plan, timeline: Timeline) -> str:
    more = relative(next_best.cost_seconds, plan.cost.seconds)
    simulated = relative(next_best.simulated_seconds, timeline.seconds)
    layouts = " and ".join(next_best.layouts)
    return f"{layouts}, with all else as is best then: {more} by the cost of the search, {simulated} simulated"


def show_table(rows: Sequence[Spent], seconds: float) -> None:
    """Prints what takes most of the step first. Only the `exposed` part of collectives counts, as kernels overlap with
    the rest.
    """
    if not rows:
        return
    click.echo(f"\n{'share':>6} {'forward':>9} {'backward':>9} {'exposed':>9}  {'bound by':<10}  what")
    for row in rows[:SHOWN]:
        times = f"{_time(row.forward + row.update):>9} {_time(row.backward):>9} {_time(row.exposed):>9}"
        what = f"{row.name} {row.place}".rstrip() + (f", {row.tasks} times" if row.tasks > 1 else "")
        sent = f", {describe_bytes(row.sent)} sent" if row.sent else ""
        click.echo(f"{_share(row.weight, seconds):>6} {times}  {row.limit:<10}  {what}{sent}")
    left = rows[SHOWN:]
    if left:
        click.echo(f"{_share(sum(row.weight for row in left), seconds):>6} {len(left)} more; --json lists all")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "-"

"""`unityc trace`: what a compiled program does when in a simulated step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .console import replace_file, show_lines

if TYPE_CHECKING:
    from ..graph.plan import Plan
    from ..simulation.timeline import Timeline

VIEWER = "https://ui.perfetto.dev"


@click.command("trace", short_help="Simulate a step of a compiled program and write its trace.")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("trace.json"),
    metavar="FILE",
    show_default=True,
    help="The trace.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def trace_command(out: Path, output: Path, as_json: bool) -> None:
    """Predict when each kernel and collective of a step of the program in OUT runs, on the machine it was compiled for.

    FILE is in the trace-event format, which Perfetto opens (https://ui.perfetto.dev): a track for the launches, for the
    kernels and for the collectives of each group of devices, and the memory that a device holds.

    \b
    unityc trace out/ -o step.json
    """
    from ..emit.plan_file import load_plan_file
    from ..emit.written_plan import written_plan
    from ..machine.machine import read_machine
    from ..simulation.step_tasks import simulate_step
    from ..simulation.trace import render_trace

    record = load_plan_file(out)
    plan, library = written_plan(record, out)
    machine = read_machine(record.sources.machine)
    timeline = simulate_step(plan, machine, library)
    replace_file(output, render_trace(timeline))
    if as_json:
        click.echo(json.dumps(summarise_timeline(timeline), indent=1))
    else:
        show_timeline(plan, timeline, output)


def summarise_timeline(timeline: Timeline) -> dict[str, Any]:
    """Seconds of a step and what they are spent on, and bytes, of one device."""
    from ..simulation.lower_bound import lower_bound
    from ..simulation.task import COMPUTE
    from ..simulation.timeline import HOST

    tasks, memory = timeline.graph.tasks, timeline.most_memory()
    busy = {channel: seconds for (device, channel), seconds in timeline.busy.items() if device == 0}
    bound = lower_bound(timeline.graph, timeline.hardware)
    return {
        "tasks": len(tasks),
        "seconds": timeline.seconds,
        "lower_bound": {"seconds": bound.seconds, "work": bound.work, "path": bound.path, "link": bound.link},
        "compute": busy.get(COMPUTE, 0.0),
        "launches": busy.get(HOST, 0.0),
        "communication": sum(seconds for channel, seconds in busy.items() if channel not in (COMPUTE, HOST)),
        "exposed": timeline.exposed(),
        "sent": dict(sorted(timeline.sent.items())),
        "memory": {
            "peak": memory.peak,
            "seconds": memory.peak_time,
            "at": [{"name": tasks[i].name, "place": tasks[i].place} for i in memory.at_peak],
        },
    }


def show_timeline(plan: Plan, timeline: Timeline, output: Path) -> None:
    """Prints a few lines for people."""
    from ..machine.byte_count import describe_bytes
    from ..search.accounting.kept_iterations import recomputed_words, segment_words
    from ..written_figures import duration
    from .summary import batch_text

    found = summarise_timeline(timeline)
    step = "step" if plan.model.loss is not None else "call"
    devices = "1 device" if plan.mesh.size == 1 else f"{plan.mesh.size} devices"
    spent = ", ".join(f"{name} {duration(found[name])}" for name in ("compute", "launches", "communication"))
    at_peak = " and ".join(f"{task['name']} of {task['place']}" for task in found["memory"]["at"])
    lines = [
        ("plan", f"{plan.model.name} on {devices} of {plan.machine}, {plan.strategy}"),
        ("simulated", f"{duration(found['seconds'])} a {step}: {spent}, of it {duration(found['exposed'])} exposed"),
        ("bound", f"no order of these tasks takes less than {duration(found['lower_bound']['seconds'])}"),
        ("memory", f"at most {describe_bytes(found['memory']['peak'])} a device{', in ' + at_peak if at_peak else ''}"),
    ]
    if plan.division is not None:
        lines.append(("batch", batch_text(plan)))
    if plan.passes.recomputed:
        lines.append(("recomputed", f"{recomputed_words(plan)}, in the backward pass"))
    if plan.passes.offloaded:
        lines.append(("offloaded", f"activations in host memory: {segment_words(plan, plan.passes.offloaded)}"))
    if found["sent"]:
        lines.append(("sent", ", ".join(f"{name} {describe_bytes(count)}" for name, count in found["sent"].items())))
    lines.append(("wrote", f"{output}: {found['tasks']} tasks, to be opened in {VIEWER}"))
    show_lines(lines)

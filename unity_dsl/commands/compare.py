"""`unityc compare`: plans of the strategies for a model side by side, all timed by one simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from .console import say_progress
from .option_values import parse_setting

if TYPE_CHECKING:
    from ..compile import Compilation, Request

BASELINE = "data_parallel"
"""The strategy that others are faster than by the factor that is shown."""
REFUSALS = ("E309", "E311", "E318")
"""What a strategy says where it has no plan for a model on these devices."""


@dataclass(frozen=True)
class Row:
    """The plan of a strategy: seconds of the search and of a simulated step, the peak of a device's memory and what it
    sends in a step, in bytes, and the rules that it applied; or why there is none.
    """

    name: str
    search_s: float
    iteration_s: float | None = None
    peak_memory_bytes: float | None = None
    comm_bytes: float | None = None
    fits: bool = False
    rules: tuple[str, ...] = ()
    mesh: tuple[int, ...] = ()
    micro_batches: int = 1
    refused: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Rows of strategies for a model, and the examples that a step trains on: the same for all. Where it was
    `interrupted`, rows are missing.
    """

    model: str
    machine: str
    devices: int
    global_batch: int
    strategies: tuple[Row, ...]
    interrupted: bool = False

    def speedup(self, row: Row) -> float | None:
        """How many times faster than the baseline; None where either has no plan."""
        base = next((other.iteration_s for other in self.strategies if other.name == BASELINE), None)
        return None if base is None or row.iteration_s is None else base / row.iteration_s


@click.command("compare", short_help="Compare the plans of all strategies for a model.")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL.udl")
@click.option("--machine", "-m", default="local", metavar="NAME|FILE", show_default=True, help="Hardware to plan for.")
@click.option("--devices", "-d", type=int, required=True, metavar="N", help="World size.")
@click.option("--strategies", "-s", metavar="NAME,…", help="These only; by default all of `unityc list strategies`.")
@click.option("--preset", "-p", metavar="NAME", help="A preset of the models.")
@click.option("--precision", metavar="f32|bf16|f16", help="Float type of the arithmetic; weights stay in float32.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of a model (repeatable).")
@click.option("--memory", metavar="40GB", help="What a device may hold, if not all that it has.")
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE", help="Draw speedups: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def compare_command(
    models: tuple[Path, ...],
    machine: str,
    devices: int,
    strategies: str | None,
    preset: str | None,
    precision: str | None,
    settings: tuple[str, ...],
    memory: str | None,
    ops: tuple[Path, ...],
    picture: Path | None,
    as_json: bool,
) -> None:
    """Plan MODEL.udl by every strategy, over the same space and prices, and show the simulated step of each plan.

    Of each plan: seconds of a step and how many times faster that is than data parallelism, seconds of the search, the
    most that a device holds, what it sends in a step, and the rules that were applied. A strategy that has no plan for
    the model on these devices says why. With several models --picture shows all of them.

    \b
    unityc compare examples/gpt2.udl --machine dgx-a100 --devices 8
    unityc compare examples/mlp_unity.udl -m summit -d 4 -s auto,data_parallel,flexflow --json
    """
    from ..compile import Request
    from ..machine.byte_count import parse_bytes

    names = chosen_strategies(strategies)
    if picture is not None:
        from .compare_picture import check_picture

        check_picture(picture)
    request = Request(
        models[0],
        settings=dict(map(parse_setting, settings)),
        preset=preset,
        precision=precision,
        machine=machine,
        devices=devices,
        memory=None if memory is None else parse_bytes(memory),
        operators=ops,
    )
    found: list[Comparison] = []
    for model in models:
        found.append(compared(replace(request, model=model), names))
        if found[-1].interrupted:
            break
    if as_json:
        every = [as_data(comparison) for comparison in found]
        click.echo(json.dumps(every[0] if len(every) == 1 else {"models": every}, indent=1))
    else:
        for number, comparison in enumerate(found):
            click.echo("\n" * bool(number) + "\n".join(table_lines(comparison)))
    if found[-1].interrupted:
        raise click.Abort
    if picture is not None:
        from .compare_picture import draw

        draw(found, picture)
    if all(row.iteration_s is None for comparison in found for row in comparison.strategies):
        raise click.exceptions.Exit(1)


def chosen_strategies(listed: str | None) -> tuple[str, ...]:
    """The strategies of a list, each once. Raises E310 for what is none."""
    from ..search.strategies import STRATEGIES, check_strategy

    if listed is None:
        return tuple(STRATEGIES)
    names = tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("no strategy is named", param_hint="--strategies")
    for name in names:
        check_strategy(name)
    return names


def compared(request: Request, names: Sequence[str]) -> Comparison:
    """The plans of some strategies for a model; of those before an interruption. Raises InputError for what no strategy
    could plan.
    """
    from ..compile import compile_model
    from ..syntax.diagnostic import InputError

    rows: list[Row] = []
    batch, model = 0, request.model.stem
    for number, name in enumerate(names):
        begun = perf_counter()
        try:
            with say_progress(f"{model}: {name}, {number + 1} of {len(names)}"):
                found = compile_model(replace(request, strategy=name))
                rows.append(simulated(found, name, perf_counter() - begun))
        except InputError as error:
            if error.diagnostic.code not in REFUSALS:
                raise
            reason = f"{error.diagnostic.message} ({error.diagnostic.code})"
            rows.append(Row(name, perf_counter() - begun, refused=reason))
        except KeyboardInterrupt:
            return Comparison(model, request.machine, request.devices, batch, tuple(rows), interrupted=True)
        else:
            batch, model = global_batch(found), found.plan.model.name
    return Comparison(model, request.machine, request.devices, batch, tuple(rows))


def simulated(found: Compilation, name: str, seconds: float) -> Row:
    """The row of a plan that took so many seconds to find."""
    from ..machine.machine import read_machine
    from ..simulation.step_tasks import simulate_step

    plan = found.plan
    timeline = simulate_step(plan, read_machine(found.sources.machine), found.library)
    return Row(
        name,
        seconds,
        timeline.seconds,
        timeline.memory().peak,
        sum(timeline.sent.values()),
        not plan.warnings,
        tuple(used.rule for used in plan.rules),
        plan.mesh.degrees,
        plan.micro_batches,
    )


def global_batch(found: Compilation) -> int:
    """The examples of a step, 0 where no input has a first dimension."""
    plan = found.plan
    shapes = [source.value.shape for source in plan.model.graph.inputs if source.value.shape]
    return plan.micro_batches * shapes[0][0] if shapes else 0


def as_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain data: seconds and bytes."""
    rows = [
        {**asdict(row), "rules": list(row.rules), "mesh": list(row.mesh), "speedup": comparison.speedup(row)}
        for row in comparison.strategies
    ]
    return {**asdict(comparison), "strategies": rows}


def table_lines(comparison: Comparison) -> Iterator[str]:
    """A table for people, the fastest plan first, then why strategies have none."""
    batch = f", {comparison.global_batch} examples a step" if comparison.global_batch else ""
    devices = f"{comparison.devices} device{'s' if comparison.devices != 1 else ''}"
    yield click.style(f"{comparison.model} on {devices} of {comparison.machine}{batch}", bold=True)
    planned = [row for row in comparison.strategies if row.iteration_s is not None]
    cells = [_HEAD, *(_cells(comparison, row) for row in sorted(planned, key=lambda row: row.iteration_s or 0.0))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells if planned else []:
        aligned = (f"{cell:>{width}}" for cell, width in zip(others[:-1], widths[1:-1], strict=True))
        yield "  ".join((f"{first:<{widths[0]}}", *aligned, others[-1])).rstrip()
    for row in comparison.strategies:
        if row.refused is not None:
            yield f"{row.name}: no plan: {row.refused}"


_HEAD = ("strategy", "step", "speedup", "search", "memory", "sent", "mesh", "rules")


def _cells(comparison: Comparison, row: Row) -> tuple[str, ...]:
    from ..machine.byte_count import describe_bytes
    from .summary import duration

    speedup, times = comparison.speedup(row), Counter(row.rules)
    named = ", ".join(f"{rule} x {count}" if count > 1 else rule for rule, count in list(times.items())[:_NAMED])
    more = f", {len(times) - _NAMED} more" if len(times) > _NAMED else ""
    assert row.iteration_s is not None and row.peak_memory_bytes is not None and row.comm_bytes is not None
    return (
        row.name,
        duration(row.iteration_s),
        "-" if speedup is None else f"{speedup:.2f}",
        duration(row.search_s),
        describe_bytes(row.peak_memory_bytes) + ("" if row.fits else ", does not fit"),
        describe_bytes(row.comm_bytes),
        " x ".join(map(str, row.mesh)) or "1",
        named + more,
    )


_NAMED = 3
"""Of many rules these are named: --json has all."""

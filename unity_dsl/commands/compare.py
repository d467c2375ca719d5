"""`unityc compare`: a table, data or a picture of the plans of all strategies for a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from .option_values import parse_seconds, parse_settings
from .strategy_comparison import Comparison, Row, as_data, compared


@click.command("compare", short_help="Compare the plans of all strategies for a model.")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL.udl")
@click.option("--machine", "-m", default="local", metavar="NAME|FILE", show_default=True, help="Hardware to plan for.")
@click.option("--devices", "-d", type=int, required=True, metavar="N", help="World size.")
@click.option("--strategies", "-s", metavar="NAME,…", help="These only; by default all of `unityc list strategies`.")
@click.option("--preset", "-p", metavar="NAME", help="A preset of the models.")
@click.option("--precision", metavar="f32|tf32|bf16|f16", help="Float type of products; weights stay in float32.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of a model (repeatable).")
@click.option("--memory", metavar="40GB", help="Memory of a device that a plan may use; by default all.")
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option(
    "--plan",
    "plans",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A plan that Galvatron, nnScaler or autoparallel exported (repeatable).",
)
@click.option(
    "--time-limit",
    callback=parse_seconds,
    metavar="SECONDS",
    help="End each search with the best plan by then.",
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
    plans: tuple[Path, ...],
    time_limit: float | None,
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
    from ..compilation import Request
    from ..machine.byte_count import parse_bytes

    names = chosen_strategies(strategies)
    if picture is not None:
        from .compare_picture import check_picture

        check_picture(picture, names)
    request = Request(
        models[0],
        settings=parse_settings(settings),
        preset=preset,
        precision=precision,
        machine=machine,
        devices=devices,
        memory=None if memory is None else parse_bytes(memory),
        operators=ops,
        time_limit=time_limit,
    )
    found: list[Comparison] = []
    for model in models:
        found.append(compared(replace(request, model=model), names, plans))
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
    """The strategies in a comma-separated list, each once; all if there is no list. Raises E310 for an unknown one."""
    from ..search.strategies import STRATEGIES, check_strategy

    if listed is None:
        return tuple(STRATEGIES)
    names = tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("no strategy is named", param_hint="--strategies")
    for name in names:
        check_strategy(name)
    return names


def table_lines(comparison: Comparison) -> Iterator[str]:
    """A table for people, the fastest plan first, then why strategies have no plan."""
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
        if row.ended is not None:
            yield f"{row.name}: its search was ended by {row.ended}"


_HEAD = ("strategy", "step", "speedup", "search", "memory", "sent", "mesh", "rules")


def _cells(comparison: Comparison, row: Row) -> tuple[str, ...]:
    from ..machine.byte_count import describe_bytes
    from ..written_figures import duration

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
"""How many of a plan's rules are named; --json has all."""

"""`unityc rules configurations`: the table of what is proved about dividing operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..rules.sharding_table import Row

COLOURS = {"proved": "green", "declared": "yellow", "blocked": "cyan", "not proved": "red"}


@click.command("configurations", short_help="Prove along which axes operators may be divided.")
@click.argument("names", nargs=-1, metavar="[OPERATOR...]")
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def configurations_command(names: tuple[str, ...], ops: tuple[Path, ...], as_json: bool) -> None:
    """Prove of every operator, or of OPERATOR..., along which of its axes it may be divided.

    One line for each axis, and one for each set of operands that may be terms of a sum: whether it is proved, for
    the operator and for its gradients, how many theorems that takes, and in what time. An axis that is blocked
    comes with the reason. What an extern operator declares is assumed, and tried on samples here. Kept proofs are
    not looked at. Exit code 0 where nothing is left that is neither.
    """
    from ..index.declarations.loading import load_library
    from ..rules.sharding_table import table_of
    from ..rules.sharding_theorems import ShardingTheorems
    from ..rules.theorem_file import TheoremFile
    from ..syntax.diagnostic import fail, suggest
    from .progress import say_progress

    library = load_library(ops)
    for name in names:
        if name not in library.operators:
            help = suggest(name, library.operators) or "`unityc list` shows all operators"
            raise fail("E210", f"there is no operator called `{name}`", help=help)
    theorems = ShardingTheorems(library, TheoremFile({}))
    rows: list[Row] = []
    wanted = names or tuple(library.operators)
    for number, name in enumerate(wanted):
        with say_progress(f"{name}, {number + 1} of {len(wanted)}") as tell:
            found = []
            for row in table_of(library.operators[name], theorems):
                found.append(row)
                tell(f"proved: {row.subject}")
        rows += found
        if not as_json:
            show_rows(found)
    left = [row for row in rows if row.status == "not proved"]
    if as_json:
        click.echo(json.dumps({"configurations": [summarise_row(row) for row in rows]}, indent=1))
    else:
        counts = {status: sum(row.status == status for row in rows) for status in COLOURS}
        text = ", ".join(f"{count} {status}" for status, count in counts.items())
        click.echo(f"{text}: {sum(row.theorems for row in rows)} theorems in {sum(r.seconds for r in rows):.1f} s")
    if left:
        raise click.exceptions.Exit(1)


def show_rows(rows: Sequence[Row]) -> None:
    """Prints operator, axis, class, status, theorems and milliseconds in columns; below, the reason and the assumed
    facts.
    """
    for row in rows:
        status = click.style(f"{row.status:<11}", fg=COLOURS[row.status])
        proofs = f"{row.theorems:>2} theorems {row.seconds * 1e3:>8.1f} ms" if row.theorems else row.reason
        click.echo(f"{row.operator:<22} {row.subject:<14} {row.kind:<8} {status}{proofs}")
        if row.theorems and row.reason:
            click.echo(f"  {row.reason}")
        for fact in row.assumed:
            click.echo(f"  assumes {fact}")


def summarise_row(row: Row) -> dict[str, str | int | float | list[str] | None]:
    """A row as plain data."""
    return {
        "operator": row.operator,
        "subject": row.subject,
        "class": row.kind,
        "status": row.status.replace(" ", "_"),
        "reason": row.reason or None,
        "theorems": row.theorems,
        "ms": round(row.seconds * 1e3, 3),
        "assumed": list(row.assumed),
    }

"""`unityc rules generate`: the library of rules from a table of signatures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..rules.generation.pipeline import Generation

PROCESSES = 2
WIDTH = 24
"""Columns of the progress bar."""


@click.command("generate", short_help="Enumerate, prove and minimise the rules of operators.")
@click.option(
    "--table", type=click.Path(path_type=Path), metavar="FILE", help="Signatures, else rules/signatures.toml."
)
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option("--theme", "wanted", multiple=True, metavar="NAME", help="Only this theme of the table (repeatable).")
@click.option("--only", metavar="NAME", help="Only rules with the operator NAME, beside the shipped ones.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("rules_out"), metavar="DIR", show_default=True
)
@click.option("--cache", type=click.Path(path_type=Path), metavar="DIR", help="Keep what is finished here.")
@click.option("--processes", type=click.IntRange(1, 64), default=PROCESSES, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def generate_command(
    table: Path | None,
    ops: tuple[Path, ...],
    wanted: tuple[str, ...],
    only: str | None,
    output: Path,
    cache: Path | None,
    processes: int,
    as_json: bool,
) -> None:
    """Enumerate the substitutions of a table of signatures, prove them, and write THEME.rules with certificates.

    What the rules kept so far derive within a bound is left out; in the end no rule is derived from the others.

    With --only NAME the graphs are those of NAME, of a table or of its declaration, beside common operators; the
    shipped rules are taken as known. With --cache an interrupted run goes on where it was.
    """
    from ..index.declarations.loading import load_library
    from ..resources import folder
    from ..rules.enumeration.signature_table import load_table
    from ..rules.generation.library_files import check_target, write_library
    from ..rules.generation.operator_table import operator_table
    from ..rules.generation.pipeline import Generator, known_rules
    from ..syntax.diagnostic import fail, suggest

    library = load_library(ops)
    if only is not None and only not in library.operators and only not in library.parallels:
        hint = suggest(only, library.operators) or "`unityc list ops` names all operators"
        raise fail("E210", f"unknown operator `{only}`", help=hint)
    if only is not None and table is None:
        signatures = operator_table(only, library)
    else:
        signatures = load_table(table or folder("rules") / "signatures.toml")
    themes = [theme.name for theme in signatures.themes]
    for name in wanted:
        if name not in themes:
            raise fail(
                "E509", f"the table has no theme `{name}`", help=suggest(name, themes) or f"it has {', '.join(themes)}"
            )
    if wanted:
        signatures = replace(signatures, themes=tuple(one for one in signatures.themes if one.name in wanted))
        themes = [theme.name for theme in signatures.themes]
    check_target(output, themes)
    generator = Generator(library, processes, cache, only, known=known_rules(library, themes if only is None else None))
    generator.progress = tell
    try:
        made = generator.run(signatures)
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)
    write_library(made.files, output)
    if as_json:
        click.echo(json.dumps(summarise_generation(made), indent=1))
    else:
        show_generation(made, output)


def tell(what: str, done: int, whole: int) -> None:
    """Shows a progress bar on a terminal."""
    if sys.stderr.isatty():
        part = WIDTH * done // max(whole, 1)
        click.echo(f"\r{'█' * part}{'·' * (WIDTH - part)} {done}/{whole} {what}\x1b[K", nl=False, err=True)


def show_generation(made: Generation, output: Path) -> None:
    """Prints the counts of all stages, and the files."""
    for what, count in made.counts.items():
        click.echo(f"{count:>9,}  {what.replace('_', ' ')}")
    for one in made.files:
        click.echo(f"{output / f'{one.theme}.rules'}: {one.count} rules")


def summarise_generation(made: Generation) -> dict[str, Any]:
    """The counts, those of each theme's enumeration, and the rules that were not kept. `median_ms` is the median
    processor time of a proof with all that belongs to it, in milliseconds.
    """
    from ..rules.generation.rule_text import sides_text

    return {
        "counts": dict(made.counts),
        "themes": {
            name: {"contexts": one.contexts, **one.enumerated, "processor seconds": round(one.seconds, 1)}
            for name, one in made.themes.items()
        },
        "median_ms": round(median(made.seconds) * 1e3, 1) if made.seconds else None,
        "files": {one.theme: one.count for one in made.files},
        "not_proved": [sides_text(rule) for rule in made.not_proved],
        "refuted": [sides_text(rule) for rule in made.refuted],
    }

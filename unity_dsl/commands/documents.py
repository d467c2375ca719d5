"""`unityc docs`: pages about all operators, from their declarations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click


@click.command("docs", short_help="Write pages about all operators, from their declarations.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("docs/operators"), metavar="DIR", show_default=True
)
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
def docs_command(output: Path, ops: Sequence[Path]) -> None:
    """Write a page per .uop file, and a table of all operators, into DIR.

    Everything on them is derived from the declarations: what `unityc explain` says of each. What else is in DIR is left
    alone.
    """
    from ..index.declarations.loading import load_library
    from ..report.operator_pages import operator_pages
    from ..rules.sharding_theorems import ShardingTheorems
    from ..syntax.diagnostic import fail

    library = load_library(ops)
    pages = operator_pages(library, ShardingTheorems(library))
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (output / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise fail("E030", f"cannot write {output}: {error.strerror or error}") from None
    click.echo(f"wrote {output}: {', '.join(pages)}")

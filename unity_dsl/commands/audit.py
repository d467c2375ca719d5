"""`unityc rules audit`: which rules of another system's file are true."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..rules.audit.classification import Finding
    from ..rules.audit.reading import Reading

PROCESSES = 2
COLOURS = {"proved": "green", "proved_with_conditions": "yellow", "refuted": "red"}


@click.command("audit", short_help="Say which rules of another system's FILE are true.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
@click.option(
    "--reading", "readings", multiple=True, metavar="OPERATOR=NAME", help="Another meaning of an operator (repeatable)."
)
@click.option(
    "--processes", type=click.IntRange(1, 64), default=PROCESSES, show_default=True, help="How many prove at once."
)
def audit_command(file: Path, as_json: bool, readings: tuple[str, ...], processes: int) -> None:
    """Classify every rule of FILE, which is TASO's graph_subst.pb or Unity's graph_subst_3_v2.json.

    \b
    proved                  the target has the source's values, at all sizes at which both sides have shapes
    proved_with_conditions  it has them under the condition given, the weakest that was found, and not always
    refuted                 there are sizes and inputs at which the sides differ
    unbound                 the target reads a tensor that the source does not have
    not_proved              neither a proof nor a counterexample was found
    unsupported             there is no reading of an operator

    What the operators mean is a reading, the same for the whole file, and printed. Exit code 0, whatever the answers
    are; 2 where FILE cannot be read.
    """
    from ..rules.audit.classification import findings
    from ..rules.audit.formats import FORMATS
    from ..rules.audit.reading import chosen_reading
    from ..rules.audit.rule_file import read_rule_file

    begun = perf_counter()
    rules = read_rule_file(file)
    reading = chosen_reading(FORMATS[rules.format], readings)
    answered: list[Finding] = []
    if not as_json:
        show_reading(reading)
    try:
        for finding in findings(rules, reading, processes, Progress(len(rules.rules))):
            answered.append(finding)
            if not as_json:
                show_finding(finding)
    finally:
        # What is finished is printed after an interruption too.
        clear_progress()
        seconds = perf_counter() - begun
        if as_json:
            click.echo(json.dumps(summarise_audit(answered, reading, seconds), indent=1, ensure_ascii=False))
        else:
            counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts(answered).items())
            click.echo(f"{len(answered)} of {len(rules.rules)} rules in {seconds:.1f} s: {counted}")


def counts(answered: Sequence[Finding]) -> dict[str, int]:
    """How many rules have each status."""
    from ..rules.audit.classification import Status

    found = Counter(finding.status for finding in answered)
    return {str(status): found[status] for status in Status}


def summarise_audit(answered: Sequence[Finding], reading: Reading, seconds: float) -> dict[str, object]:
    """The answers as plain data, in the order of the file."""
    return {
        "counts": counts(answered),
        "seconds": round(seconds, 3),
        "reading": reading.texts,
        "rules": [finding.summary() for finding in answered],
    }


def show_reading(reading: Reading) -> None:
    """Prints what each operator is taken to mean, and which other meanings there are."""
    width = max(map(len, reading.texts))
    for kind, text in reading.texts.items():
        others = [name for name in reading.format.meanings[kind] if name != reading.choices.get(kind, name)]
        more = f" (or --reading {kind}={'|'.join(others)})" if others else ""
        lines = textwrap.wrap(text + more, 118 - width, break_on_hyphens=False)
        for label, line in zip((kind, *[""] * len(lines)), lines, strict=False):
            click.echo(click.style(f"{label:<{width}}  ", bold=True) + line)
    click.echo()


def show_finding(finding: Finding) -> None:
    """Prints the status of a rule that is not simply proved, its conditions, and where its sides differ."""
    status = str(finding.status)
    if status == "proved":
        return
    where = f"  where {', '.join(finding.conditions)}" if finding.conditions else ""
    click.echo(f"{click.style(status.replace('_', ' '), fg=COLOURS.get(status))}  {finding.name}{where}")
    for line in (
        *finding.text.splitlines(),
        *([finding.reason] if finding.reason else []),
        *finding.counterexample.splitlines(),
    ):
        click.echo(f"  {line}".rstrip())


class Progress:
    """Progress bar of finished rules, on one line of stderr, if that is a terminal."""

    WIDTH = 40

    def __init__(self, total: int) -> None:
        self.total = total

    def __call__(self, done: int) -> None:
        if sys.stderr.isatty():
            filled = self.WIDTH * done // self.total
            bar = "#" * filled + "-" * (self.WIDTH - filled)
            click.echo(f"\r[{bar}] {done}/{self.total}\x1b[K", nl=False, err=True)


def clear_progress() -> None:
    """Removes the progress bar."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)

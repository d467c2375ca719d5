"""`unityc rules list`: the rules of files, or all that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..syntax.parse_rules import RuleDecl


def shipped_files() -> list[Path]:
    """The shipped files of rules."""
    from ..resources import folder

    return sorted(folder("rules").glob("*.rules"))


@click.command("list", short_help="List the rules of FILE..., or the shipped ones.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE...]")
@click.option("--json", "as_json", is_flag=True, help="Print the rules as JSON.")
def list_rules_command(files: tuple[Path, ...], as_json: bool) -> None:
    """Print a line for each rule of FILE..., or of the shipped files: its name, its theme and its two sides.

    The theme is the name of the file. `unityc rules show NAME` shows the proof of a rule.
    """
    from ..rules.generation.rule_text import sides_text
    from ..syntax.parse_rules import parse_rules
    from ..syntax.read import read_source

    found = [(path.stem, rule) for path in files or shipped_files() for rule in parse_rules(read_source(path)).rules]
    if as_json:
        click.echo(json.dumps({"rules": [summarise_rule(theme, rule) for theme, rule in found]}, indent=1))
        return
    names = max((len(rule.name) for _, rule in found), default=0)
    themes = max((len(theme) for theme, _ in found), default=0)
    for theme, rule in found:
        click.echo(f"{rule.name:<{names}}  {theme:<{themes}}  {sides_text(rule)}")


def summarise_rule(theme: str, rule: RuleDecl) -> dict[str, Any]:
    """A rule as plain data: its parts as texts."""
    from ..index.equations.term_text import condition_text
    from ..rules.generation.rule_text import input_text, rule_text, sides_text

    return {
        "name": rule.name,
        "theme": theme,
        "inputs": list(map(input_text, rule.inputs)),
        "conditions": list(map(condition_text, rule.conditions)),
        "sides": sides_text(rule),
        "text": rule_text(rule),
    }

"""`unityc list`: operators, machines, strategies and examples, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..syntax.doc_comment import first_sentence


def list_operators(ops: Sequence[Path]) -> list[tuple[str, str]]:
    """Operators, then parallel ops, each with the first sentence of its doc comment."""
    from ..index.declarations.loading import load_library

    library = load_library(ops)
    operators = [(name, first_sentence(declaration.doc)) for name, declaration in library.operators.items()]
    return operators + [(name, first_sentence(declaration.doc)) for name, declaration in library.parallels.items()]


def list_machines() -> list[tuple[str, str]]:
    """Shipped machines, each with its number of devices and its levels."""
    from ..machine.machine import load_machine
    from ..resources import folder

    machines = [load_machine(path.stem) for path in sorted(folder("machines").glob("*.toml"))]
    rows = []
    for machine in machines:
        levels = " × ".join(f"{level.size} over {level.name}" for level in machine.levels)
        rows.append((machine.name, f"{machine.devices} devices: {levels}"))
    return rows


def list_strategies() -> list[tuple[str, str]]:
    """Strategies, each with what it does."""
    from ..search.strategies import RANDOM, STRATEGIES, random

    return [
        *((name, strategy.about) for name, strategy in STRATEGIES.items()),
        (RANDOM, first_sentence(random.__doc__ or "")),
    ]


def list_examples() -> list[tuple[str, str]]:
    """Paths of the shipped models, ready to be compiled, with the first sentence of their doc comments."""
    from ..resources import folder
    from ..syntax.parse_model import parse_model
    from ..syntax.read import read_source

    paths = sorted(folder("examples").glob("*.udl"))
    return [(str(path), first_sentence(parse_model(read_source(path)).model.doc)) for path in paths]

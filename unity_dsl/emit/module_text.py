"""Classes of an emitted program: what they store, which are subclasses of others, and how their tables are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedSegment
from ..syntax.ast import Initialiser
from .program_names import Names, class_name

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Stored:
    """A parameter or buffer of a module. Its name there is dotted if blocks contain it. A parameter may have weight
    decay.
    """

    name: str
    value: Value
    layout: Layout
    initialiser: Initialiser
    trained: bool
    decays: bool


@dataclass
class ModuleText:
    """A class of the program: what it stores, the modules that it repeats, its forward. It is a function if it `stores`
    nothing. `words` are the lines of its docstring.

    `constants` are the names of its tables of parameters and buffers. `sites` means that it draws random numbers, and
    so must know its iteration. `gathers` are lines that return what is gathered before all else. With `interleaved` its
    forward is a generator, which is interleaved with others. A class with a `base` differs from it only in the forward.
    """

    name: str
    words: Sequence[str]
    stored: list[Stored] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    gathers: list[str] = field(default_factory=list)
    sites: bool = False
    constants: tuple[str, str] = ("PARAMETERS", "BUFFERS")
    stores: bool = True
    interleaved: bool = False
    base: ModuleText | None = None

    def stores_as(self, other: ModuleText) -> bool:
        """Whether both store and gather the same, and neither repeats modules."""
        same = self.stored == other.stored and self.gathers == other.gathers and self.sites == other.sites
        return same and not self.repeats and not other.repeats


@dataclass(frozen=True)
class Repeat:
    """A ModuleList: per run of iterations with one plan, the class, the first iteration and how many there are.

    For a cond it is a single module, `alone`.
    """

    name: str
    count: int
    runs: tuple[tuple[ModuleText, int, int], ...]
    alone: bool = False


def name_constants(repeat: Repeat, modules: list[ModuleText], names: Names) -> None:
    """Name the tables of a repeat's classes. Classes that store the same as the base become its subclasses and share
    its tables.

    The base is the class of the most iterations. It is moved before its subclasses in `modules`.
    """
    base = max(repeat.runs, key=lambda run: run[2])[0]
    heirs = [module for module, _, _ in repeat.runs if module is not base and module.stores_as(base)]
    for module, _, _ in repeat.runs:
        if all(module is not heir for heir in heirs):
            stem = _WORD.sub("_", module.name).upper()
            module.constants = names.fresh(f"{stem}_PARAMETERS"), names.fresh(f"{stem}_BUFFERS")
    for heir in heirs:
        heir.base, heir.constants = base, base.constants
    places = [place for place, module in enumerate(modules) if any(module is one for one in (base, *heirs))]
    if modules[places[0]] is not base:
        modules.remove(base)
        modules.insert(places[0], base)


def body_name(step: PlannedSegment, number: int, stores: bool, names: Names, classes: Names) -> str:
    """The name of a run's class or function. No variable of the caller may have the name of the function."""
    word = step.segment.name.rpartition(".")[2]
    if len(step.runs) > 1 and step.runs[number].count == 1:
        word = {0: f"first_{word}", len(step.runs) - 1: f"last_{word}"}.get(number, word)
    if stores:
        return classes.fresh(class_name(word))
    name = classes.fresh(f"{word}_body")
    while names.fresh(name) != name:
        name = classes.fresh(f"{word}_body")
    return name

"""Finds modules of an imported model that compute the same except for sizes: their lines, and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, repeat

from torch import nn

from .block_sizes import Place
from .text_lines import DECLARING, Line, Quantity, Token, joined, renamed

Path = tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """The lines of one module: the `rows` of its statements, and those that declare what it alone reads. `inputs` are
    the names that it reads from outside, `results` those that are read there. `form` is equal for similar parts;
    `quantities` are their numbers in order, each at one of `places`.
    """

    path: Path
    scope: int
    rows: range
    declared: tuple[int, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    form: object
    quantities: tuple[Quantity, ...]
    places: tuple[Place, ...]

    @property
    def all_rows(self) -> tuple[int, ...]:
        return (*self.declared, *self.rows)


@dataclass(frozen=True)
class Surroundings:
    """The context of lines: the model's module, the `local_name` of a weight within the module of a path, and the
    settings that calls leave out. These are `defaults` of operators and `usual` settings of blocks.
    """

    module: nn.Module
    local_name: Callable[[str, Path, int], str]
    defaults: Mapping[str, Mapping[str, str]]
    usual: dict[str, Mapping[str, str]]

    def module_of(self, path: Path) -> nn.Module | None:
        """The module of a path; None if it is no torch module."""
        try:
            return self.module.get_submodule(".".join(path))
        except AttributeError:
            return None

    def filled(self, line: Line) -> Line:
        """The call of an operator, completed with the settings that it leaves out."""
        known = self.defaults.get(line.operator, {})
        left = {key: (Quantity(float(text), text),) for key, text in known.items() if key not in line.settings}
        return replace(line, settings={**line.settings, **left}) if left else line


def similar(lines: Sequence[Line], around: Surroundings) -> list[list[Part]]:
    """Groups of at least two parts whose modules have one class and compute the same except for sizes."""
    groups: dict[object, list[Part]] = {}
    for part in _parts(lines, around):
        group = groups.setdefault(part.form, [])
        if not any(part.rows == other.rows for other in group):
            group.append(part)
    return [group for group in groups.values() if len(group) > 1]


def _parts(lines: Sequence[Line], around: Surroundings) -> Iterator[Part]:
    """The parts of all modules whose statements are contiguous; in a repeat, those of its layers and of modules
    inside.
    """
    uses = _Uses(lines)
    least = [0, *(len(line.path) for line in lines if line.word == "repeat")]
    rows = [row for row, line in enumerate(lines) if line.is_statement]
    deepest = max((len(lines[row].path) for row in rows), default=0)
    for depth in range(1, deepest + 1):
        keys = {row: (lines[row].scope, lines[row].path[:depth]) for row in rows}
        runs = [(key, list(run)) for key, run in groupby(rows, keys.__getitem__) if len(key[1]) == depth]
        calls = Counter(path for (_, path), _ in runs)
        for (scope, path), run in runs:
            inside = range(run[0], run[-1] + 1)
            is_whole = calls[path] == 1 and all(lines[row].is_statement for row in inside)
            if is_whole and len(run) > 1 and depth >= least[scope]:
                part = _part(path, scope, inside, uses, around)
                if part.results:
                    yield part


def _part(path: Path, scope: int, rows: range, uses: _Uses, around: Surroundings) -> Part:
    lines = uses.lines
    made = dict.fromkeys(name for row in rows for name in lines[row].targets)
    results = tuple(name for name in made if uses.is_read_later(name, rows))
    places = {name: uses.declared.get(name) for row in rows for name in lines[row].reads}
    declared = tuple(
        row
        for name, row in places.items()
        if row is not None and lines[row].scope == scope and all(reader in rows for reader in uses.readers[name])
    )
    form = _Form(path, scope, around)
    content = tuple(form.of(lines[row]) for row in (*declared, *rows))
    kind = type(around.module_of(path))
    whole = f"{kind.__module__}.{kind.__qualname__}", content, tuple(form.names[name] for name in results)
    sizes, places_of = tuple(form.quantities), tuple(form.places)
    return Part(path, scope, rows, declared, tuple(form.inputs), results, whole, sizes, places_of)


class _Uses:
    """The rows where names of a text are declared, made and read."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.readers: dict[str, list[int]] = {}
        self.makers: dict[str, list[int]] = {}
        self.declared = {line.targets[0]: row for row, line in enumerate(lines) if line.word in DECLARING}
        for row, line in enumerate(lines):
            for name in line.reads:
                self.readers.setdefault(name, []).append(row)
            for name in line.targets:
                self.makers.setdefault(name, []).append(row)

    def is_read_later(self, name: str, rows: range) -> bool:
        """Whether a line after the rows, or the next layer of a repeat, reads what they make under a name."""
        again = min((row for row in self.makers[name] if row >= rows.stop), default=len(self.lines))
        if any(rows.stop <= row <= again for row in self.readers.get(name, ())):
            return True
        scope = self.lines[rows.start].scope
        is_last = again == len(self.lines) or self.lines[again].scope != scope
        return scope > 0 and len(self.makers[name]) > 1 and is_last


class _Form:
    """The common form of similar modules, line by line, and their differences: outside names, and numbers with their
    places.
    """

    def __init__(self, path: Path, scope: int, around: Surroundings) -> None:
        self.path = path
        self.scope = scope
        self.around = around
        self.names: dict[str, object] = {}
        self.numbers = count()
        self.inputs: list[str] = []
        self.quantities: list[Quantity] = []
        self.places: list[Place] = []

    def of(self, line: Line) -> object:
        if line.word in DECLARING:
            name = line.targets[0]
            self.names[name] = local = self.around.local_name(name, self.path, self.scope)
            begins = line.body.index("~")
            dims = iter(("outputs", "inputs"))
            shape = self.content(line.body[:begins], (Place(next(dims, "size")) for _ in count()))
            text = joined(line.body[begins + 2 :])
            value = next((token.value for token in line.body[begins:] if isinstance(token, Quantity)), 0.0)
            sizes = [token.value for token in line.body[:begins] if isinstance(token, Quantity)]
            is_constant = text.startswith("constant") and sizes != [1]  # a single element is a plain number
            kind = text if text in ("zeros", "ones") else "constant" if is_constant else "drawn"
            self.quantities.append(Quantity(value, text))
            start, may_differ = f"{local.rpartition('.')[2]}_start", is_constant or len(sizes) > 1
            self.places.append(Place(start, is_initialiser=True, may_differ=may_differ))
            return line.word, local, shape, kind
        line, usual = self.around.filled(line), self.around.usual.get(line.operator)
        settings = tuple(
            (key, self.content(line.settings[key], repeat(Place(key, has_default=usual is None or key in usual))))
            for key in sorted(line.settings)
        )
        for name in line.reads:
            if name not in self.names:
                self.names[name] = next(self.numbers)
                self.inputs.append(name)
        plain = renamed(line.body, {name: f"`{self.names[name]}`" for name in line.reads})
        content = self.content(plain, repeat(Place("size")))
        for target in line.targets:
            self.names[target] = next(self.numbers)
        return line.word, line.operator, settings, content, len(line.targets)

    def content(self, body: Iterable[Token], places: Iterator[Place]) -> tuple[str, ...]:
        found = []
        for token in body:
            if isinstance(token, Quantity):
                self.quantities.append(token)
                self.places.append(next(places))
            found.append(token if isinstance(token, str) else "#")
        return tuple(found)

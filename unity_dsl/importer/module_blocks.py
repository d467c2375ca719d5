"""Blocks for similar modules: their common computation is written once, and called with the sizes of each module."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from ..index.library import Library
from .block_sizes import Sizing, sizing_of
from .formulas import Formula
from .model_text import ModelText, Names
from .similar_modules import Part, Path, Surroundings, similar
from .text_lines import DECLARING, Line, Quantity, Token, joined, lines_of, renamed

_LEAST = 4
"""The fewest lines that a block has to save."""


def with_module_blocks(
    text: ModelText, formulas: Mapping[tuple[int, int], Formula], module: nn.Module, library: Library
) -> ModelText:
    """The text with formulas in place of numbers, and with blocks for similar modules, innermost first.

    Similar modules have the same class, and lines that differ in names and numbers alone. The numbers that differ
    become parameters of the block, named after the modules' attributes.
    """
    found = _Blocks(text, lines_of(text.lines, text.paths, formulas), module, library)
    while (best := found.best()) is not None:
        found.write(best)
    pairs = zip(found.lines, [*found.lines[1:], None], strict=True)
    found.lines = [line for line, after in pairs if line != after or not line.is_empty]
    lines = tuple(line.text(found.around.usual) for line in found.lines)
    paths = tuple(line.path for line in found.lines)
    weights = {name: text.weights[old] for name, old in found.weights.items()}
    outputs = {value: found.given.get(name, name) for value, name in text.outputs.items()}
    blocks = (*text.blocks, *found.texts)
    return replace(text, blocks=blocks, lines=lines, paths=paths, weights=weights, outputs=outputs)


class _Blocks:
    """The lines of a model while parts of them become blocks. `weights` maps current names to names in the original
    text, `given` maps original names of results to current ones. `labels` are the names of repeats, by scope.
    """

    def __init__(self, text: ModelText, lines: list[Line], module: nn.Module, library: Library) -> None:
        self.lines = lines
        self.texts: list[str] = []
        self.weights = {name: name for name in text.weights}
        self.states = text.weights
        self.given: dict[str, str] = {}
        written = re.findall(r"^block (\w+)", "\n".join(text.blocks), re.MULTILINE)
        defaults = {
            name: {one.name: f"{float(one.default):g}" for one in operator.attributes if one.default is not None}
            for name, operator in library.operators.items()
        }
        self.around = Surroundings(module, self.local_name, defaults, {name: {} for name in written})
        self.reserved = Names(text.parameters).taken
        self.reserved |= {str(line.body[-1]) for line in lines if line.word == "output" and "as" in line.body}
        self.labels = ["", *(str(line.body[-1]) for line in lines if line.word == "repeat")]

    def best(self) -> list[Part] | None:
        """The group of smallest similar parts that is worth a block; containers of other modules come last."""
        worth = [group for group in similar(self.lines, self.around) if self.saved(group) >= _LEAST]
        return min(
            worth,
            key=lambda group: (self.is_container(group[0]), len(group[0].all_rows), len(group[0].path)),
            default=None,
        )

    def saved(self, group: Sequence[Part]) -> int:
        """How many lines a block for these parts saves."""
        called = sum(1 + sum(map(self.is_carried, part.results)) for part in group)
        return sum(len(part.all_rows) for part in group) - called - len(group[0].all_rows) - 3

    def is_container(self, part: Part) -> bool:
        module = self.around.module_of(part.path)
        return module is None or type(module).__module__ == nn.Sequential.__module__

    def is_carried(self, name: str) -> bool:
        """Whether a name is assigned several times, as the carried names of layers are."""
        return sum(name in line.targets for line in self.lines) > 1

    # ------------------------------------------------------------------------------------------ what is written

    def write(self, group: Sequence[Part]) -> None:
        """Adds the block of these parts, and replaces them by calls."""
        name, first = self.block_name(group[0]), group[0]
        modules = [self.around.module_of(part.path) for part in group]
        sizing = sizing_of([part.quantities for part in group], modules, first.places, self.reserved)
        inner = self.inner_names(group, sizing.names)
        kind = type(modules[0]).__name__ if modules[0] is not None and not self.is_container(first) else ""
        place = f"such as {'.'.join(first.path)}"
        self.texts += [f"## `{kind}`, {place}." if kind else f"## Several modules, {place}."]
        self.texts += self.block_text(name, first, inner, sizing)
        gone = {row for part in group for row in part.all_rows}
        calls, others = dict[int, list[Line]](), dict[str, str]()
        kept = {name for row, line in enumerate(self.lines) if row not in gone for name in line.targets}
        free = Names({*kept, *self.reserved, *self.labels, "split"})
        owns = self.call_names(group, free)
        weights = [self.weights_of(part, first, inner, own) for part, own in zip(group, owns, strict=True)]
        renamed_weights = {old: new for some in weights for old, new in some.items()}
        self.weights = {renamed_weights.get(name, name): old for name, old in self.weights.items()}
        for part, given, own in zip(group, sizing.arguments, owns, strict=True):
            made = (own, *(free.fresh(f"{own}_{inner[one]}") for one in first.results[1:]))
            operands: tuple[Token, ...] = tuple(token for one in part.inputs for token in (one, ", "))[:-1]
            settings = {key: (value,) for key, value in given.items()}
            call = Line("", made, operands, part.path, part.scope, name, settings)
            both = list(zip(part.results, made, strict=True))
            carried = [(one, other) for one, other in both if self.is_carried(one)]
            calls[part.rows.start] = [call, *(Line("", (one,), (other,), (), part.scope) for one, other in carried)]
            others |= dict(one for one in both if one not in carried)
        self.around.usual[name] = sizing.usual
        lines = list[Line]()
        for row, line in enumerate(self.lines):
            some = calls.get(row, [] if row in gone else [line])
            lines += [*(one.reading(others) for one in some[:1]), *some[1:]]  # carried ones read new names already
        self.lines = lines
        self.given = {old: others.get(now, now) for old, now in self.given.items()} | {
            old: now for old, now in others.items() if old not in self.given.values()
        }

    def block_text(self, name: str, part: Part, inner: Mapping[str, str], sizing: Sizing) -> list[str]:
        """The lines of a block, followed by an empty line."""
        sizes = iter(sizing.body)
        body: list[str] = []
        for row in part.all_rows:
            given = self.lines[row]
            line, known = self.around.filled(given), self.around.defaults.get(given.operator, {})
            settings = {key: _sized(line.settings[key], sizes) for key in sorted(line.settings)}
            begins = line.body.index("~") if line.word in DECLARING else len(line.body)
            own = _sized(line.body[:begins], sizes)
            own = (*own, "~ ", next(sizes)) if line.word in DECLARING else renamed(own, inner)
            is_told = {key: key in given.settings or joined(settings[key]) != known[key] for key in line.settings}
            told = {key: settings[key] for key, is_one in is_told.items() if is_one}
            made = replace(line, targets=tuple(inner[one] for one in line.targets), body=own, settings=told, scope=1)
            body.append(made.text(self.around.usual))
        inputs = ", ".join(inner[one] for one in part.inputs)
        results = ", ".join(inner[one] for one in part.results)
        return [f"block {name}{sizing.head}({inputs})", *body, f"  return {results}", ""]

    # ------------------------------------------------------------------------------------------ names

    def block_name(self, part: Part) -> str:
        """The name of a block, after the class of the module, or after its path if it is one of torch's containers."""
        module = self.around.module_of(part.path)
        words = [word for word in reversed(part.path) if not word.isdecimal()]
        word = _snake(type(module).__name__) if module is not None and not self.is_container(part) else ""
        word = word or re.sub(r"\W|_?\d+$", "", words[0] if words else "part")
        targets = {name for line in self.lines for name in line.targets}
        word = f"{word}_block" if word in self.around.defaults or word in targets else word
        word = f"{word}_module" if word in self.reserved or not word.isidentifier() else word
        return Names({*self.reserved, *self.around.usual}).fresh(word)

    def inner_names(self, group: Sequence[Part], sizes: Iterable[str]) -> dict[str, str]:
        """Names in the block for all names of the first part. Weights are named as in the module, results lose their
        numbers, and an input that all parts read under one name keeps it.
        """
        found: dict[str, str] = {}
        names, part = Names({*self.reserved, *sizes}), group[0]

        def give(name: str, wanted: str) -> None:
            found[name] = names.fresh(wanted.strip("_"))

        lines = [self.lines[row] for row in part.all_rows]
        outside = {line.targets[0] for line in self.lines if line.word in (*DECLARING, "input")}
        for name, *others in zip(*(one.inputs for one in group), strict=True):
            give(name, name if {name} == {*others} & outside else "x")
        own = [line.targets[0] for line in lines[: len(part.declared)]]
        for name in own:
            local = self.local_name(name, part.path, part.scope)
            give(name, "w" if local == "weight" else local)
        updated = {
            name: f"new_{found[line.reads[0]]}" for line in lines if line.word == "update" for name in line.reads
        }
        for line in lines[len(own) :]:
            path = "_".join(line.path[len(part.path) :]) or "y"
            has_path = line.operator in self.around.usual or any(name in own for name in line.reads)
            for target in line.targets:
                if target not in found:
                    plain = (
                        f"{found[line.reads[0]]}_part" if line.operator == "slice" else re.sub(r"(_\d+)+$", "", target)
                    )
                    give(target, updated.get(target) or (path if has_path else plain))
        return found

    def made_in(self, part: Part) -> list[str]:
        """The names that a part declares and makes, in order."""
        return [name for row in part.all_rows for name in self.lines[row].targets]

    def local_name(self, name: str, path: Path, scope: int) -> str:
        """The name of a weight within a module."""
        full = f"{self.labels[scope]}.0.{name}" if scope else name
        stored = self.states[self.weights[full]]
        word = stored.state.removeprefix(".".join(path) + ".")
        return f"{word}_{stored.part.word}" if stored.part is not None else word

    def call_names(self, group: Sequence[Part], free: Names) -> list[str]:
        """A name for the first result of each call, after its module; the names of its weights begin with it."""
        repeats = [line.path for line in self.lines if line.word == "repeat"]
        words = [part.path[len(repeats[part.scope - 1]) :] if part.scope else part.path for part in group]
        wanted = list(map(_endings, words))
        often = Counter((part.scope, word) for part, some in zip(group, wanted, strict=True) for word in some)
        return [
            free.fresh(*([word for word in some if often[part.scope, word] == 1] or some))
            for part, some in zip(group, wanted, strict=True)
        ]

    def weights_of(self, part: Part, first: Part, inner: Mapping[str, str], own: str) -> dict[str, str]:
        """New names for the weights of a part and of its calls: the name of the call before that of `inner`, which has
        the names of the first part.
        """
        counterpart = dict(zip(self.made_in(part), self.made_in(first), strict=True))
        declared = {self.lines[row].targets[0] for row in part.declared}
        called = {self.lines[row].targets[0] for row in part.rows if self.lines[row].operator in self.around.usual}
        start = re.compile(re.escape(self.labels[part.scope]) + r"\.\d+\.") if part.scope else re.compile("")
        found = {}
        for name in self.weights:
            match = start.match(name)
            before = match[0] if match else ""
            word, dot, rest = name[len(before) :].partition(".")
            if match and (word in called if dot else word in declared):
                found[name] = f"{before}{own}.{inner[counterpart[word]]}{dot}{rest}"
        return found


def _endings(path: Path) -> list[str]:
    """Endings of a path as names, shorter ones first. They begin at or before its last word that is no number; a path
    of numbers is used whole. `layer` is prepended to what is no name.
    """
    named = next((place for place in reversed(range(len(path))) if not path[place].isdecimal()), 0)
    words = (re.sub(r"\W", "_", "_".join(path[start:])).strip("_") for start in range(named, -1, -1))
    return [word if word[:1].isalpha() else f"layer_{word}".rstrip("_") for word in words]


def _sized(body: Sequence[Token], sizes: Iterator[Quantity]) -> tuple[Token, ...]:
    """A body with other quantities in place of its own."""
    return tuple(next(sizes) if isinstance(token, Quantity) else token for token in body)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_")

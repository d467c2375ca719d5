"""Names in scope at a statement of a model, and the names of new values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword

from ..syntax.ast import Assign, ModelStatement, Name, StorageDecl
from ..syntax.diagnostic import InputError, Label, fail, suggest
from ..syntax.span import Span
from .blocks import assignments, names_of, written
from .graph import Value
from .model_parameters import Numeric


class Names:
    """The names of one graph's values; each is given once.

    `reserved` are the names that the model's text uses. A name with an added number is never one of these.
    """

    def __init__(self, reserved: frozenset[str], used: Iterable[str] = ()) -> None:
        self._reserved = reserved
        self._used = set(used)

    def __contains__(self, name: str) -> bool:
        return name in self._used

    def take(self, name: str) -> None:
        self._used.add(name)

    def after(self, name: str) -> str:
        """A name for a value that the text calls `name`: `x`, then `x_1`, `x_2`, …"""
        if name not in self._used:
            self._used.add(name)
            return name
        return self.numbered(name)

    def numbered(self, name: str) -> str:
        """A name for a value that the text does not name: `linear_1`, `linear_2`, …"""
        word = name.rpartition(".")[2]
        number = 1
        while f"{name}_{number}" in self._used or f"{word}_{number}" in self._reserved:
            number += 1
        self._used.add(f"{name}_{number}")
        return f"{name}_{number}"


@dataclass
class Scope:
    """The names of a model, of a block at one call, or of a repeat's body (which sees its `parent`'s).

    `declared` are the parameters, whose names no tensor may have. `prefix` stands before the names of values that are
    made here. `statements` are those of the body; they tell a name that is assigned later from an unknown one. `hidden`
    are names that are no longer visible, with the kind of body in which each was last seen, and where.
    """

    numbers: Mapping[str, Numeric]
    declared: Mapping[str, Span | None]
    prefix: str = ""
    parent: Scope | None = None
    block: str | None = None
    statements: tuple[ModelStatement, ...] = ()
    tensors: dict[str, Value] = field(default_factory=dict)
    hidden: dict[str, tuple[str, Span | None]] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        if name in self.tensors:
            return self.tensors[name]
        return self.parent.find(name) if self.parent is not None else None

    def visible(self) -> dict[str, Value]:
        outer = self.parent.visible() if self.parent is not None else {}
        return {**outer, **self.tensors}

    def look_up(self, name: Name) -> Value | Numeric:
        """What a name stands for. Raises E207 (unknown) or E208 (assigned later, or in a cycle)."""
        value = self.find(name.name)
        if value is not None:
            return value
        if name.name in self.numbers:
            return self.numbers[name.name]
        raise self._unknown(name)

    def declare(self, name: str, value: Value, span: Span | None) -> None:
        """Give a storage declaration its name. Raises E206 where something visible has it."""
        other = self.find(name)
        if other is not None:
            raise _duplicate(f"`{name}` is already the name of a tensor", span, other.span)
        self.check_free(name, span)
        self.tensors[name] = value

    def name_call(self, block: str, names: Names, called: set[str]) -> str:
        """A path for a block's call that is not assigned: `norm`, then `norm_2`, …, but no name in this body's text.

        `called` are the paths of the other calls in the graph; the new path is added to it.
        """
        given = set(written(self.statements))
        word, number = block, 1
        while (path := self.prefix + word) in names or path in called or word in given:
            number += 1
            word = f"{block}_{number}"
        called.add(path)
        return path

    def check_free(self, name: str, span: Span | None) -> None:
        """Raises E206 for the name of a parameter, in a block one of its own, and for a keyword of Python."""
        if name in self.declared:
            raise _duplicate(f"`{name}` is already a parameter", span, self.declared[name])
        if iskeyword(name):
            raise fail("E206", f"`{name}` is a word of Python: the program could not name a tensor so", span)

    def _unknown(self, name: Name) -> InputError:
        word = name.name
        for scope in self._chain():
            if word in scope.hidden:
                kind, span = scope.hidden[word]
                notes = _notes(span, "it is made here" if kind == "cond" else "it is made here, once per iteration")
                help = f"assign `{word}` before the {kind} as well: it is then carried from iteration to iteration"
                if kind == "cond":
                    help = f"assign `{word}` before the cond as well: what it is if the body is not executed"
                elif kind == "scan":
                    help = f"{help}; `collect {word} as …` stacks it over the iterations"
                message = f"`{word}` is local to the body of a {kind}"
                return fail("E207", message, name.span, help=help, notes=notes)
            later = next((s for s in assignments(scope.statements) if word in s.targets), None)
            if later is not None and not _precedes(later, name):
                return _used_too_early(word, later, scope, name.span)
            declared = next((s for s in scope.statements if isinstance(s, StorageDecl) and s.name == word), None)
            if declared is not None:
                notes = _notes(declared.span, "it is declared here")
                return fail("E208", f"`{word}` is used before it is declared", name.span, notes=notes)
        close = suggest(word, [*self.visible(), *self.numbers])
        inside = f" in block `{self.block}`" if self.block is not None else ""
        help = close or ("a block sees its own inputs and weights, and the parameters" if self.block else "")
        return fail("E207", f"no tensor or parameter `{word}`{inside}", name.span, help=help)

    def _chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


def _precedes(statement: Assign, name: Name) -> bool:
    """Whether the statement ends before the name is used: such a name is unknown for another reason."""
    if statement.span is None or name.span is None:
        return False
    return statement.span.end <= name.span.start


def _used_too_early(word: str, later: Assign, scope: Scope, span: Span | None) -> InputError:
    notes = _notes(later.span, "it is assigned here")
    cycle = _cycle(word, scope.statements, span)
    help = f"`{cycle[0]} -> {cycle[1]}` reads: `{cycle[0]}` is computed from `{cycle[1]}`" if cycle else ""
    if scope.parent is not None:
        help = f"assign `{word}` before the repeat: the first iteration reads that, the others what the last one left"
    message = f"cycle: {' -> '.join(cycle)}" if cycle else f"`{word}` is used before it is assigned"
    return fail("E208", message, span, label=f"`{word}` has no value yet", help=help, notes=notes)


def _cycle(word: str, statements: tuple[ModelStatement, ...], span: Span | None) -> tuple[str, ...]:
    """The shortest chain of assignments by which `word` is computed from the statement that reads it at `span`."""
    sources: dict[str, tuple[str, ...]] = {}
    reader: Assign | None = None
    for statement in assignments(statements):
        names = tuple(dict.fromkeys(name.name for name in names_of(statement.value)))
        for target in statement.targets:
            sources.setdefault(target, names)
        if span is not None and any(name.span == span for name in names_of(statement.value)):
            reader = statement
    if reader is None:
        return ()
    paths: list[tuple[str, ...]] = [(target, word) for target in reader.targets]
    seen: set[str] = set()
    for path in paths:  # grows while it is walked: breadth first
        for source in sources.get(path[-1], ()):
            if source == path[0]:
                return (*path, source)
            if source not in seen:
                seen.add(source)
                paths.append((*path, source))
    return ()


def _duplicate(message: str, span: Span | None, first: Span | None) -> InputError:
    return fail("E206", message, span, notes=_notes(first, "first declared here"))


def _notes(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)

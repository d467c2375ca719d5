"""A reading gives each operator of a format one meaning for the whole file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...index.declarations.loading import library_of, library_sources
from ...index.library import Library
from ...syntax.diagnostic import fail, suggest
from ...syntax.parse_rules import RuleDecl
from ...syntax.read import read_source
from ..wellformed import load_rules
from .file_rules import FileOperator
from .typed_terms import NoReading, Typed, Typing

OF_TWO = frozenset({"linear", "matmul", "conv2d", "add", "mul"})
"""Operators with two operands. `concat` has any number of operands, other operators have one."""
SHARED_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "concat": {"concat": "one after the other along the axis"},
    "split": {
        "concat": "the parts that the concat made which the axis comes from",
        "halves": "equal parts along the axis",
    },
    "add": {"add": "the sum of two tensors of one shape"},
    "mul": {"mul": "the product of two tensors of one shape, element by element"},
    "relu": {"relu": "the greater of an element and 0"},
    "sigmoid": {"sigmoid": "the logistic function of an element"},
    "tanh": {"tanh": "the hyperbolic tangent of an element"},
}
"""Operators that have the same meaning in every format."""


def shared_meaning(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> tuple[Typed, ...]:
    """The results of an operator in SHARED_MEANINGS."""
    match made.kind:
        case "concat":
            return (typing.concat(made, operands),)
        case "split":
            return typing.split(made, operands[0])
        case _:
            return (typing.elementwise(made.kind, operands),)


@dataclass(frozen=True)
class Format:
    """The operators of a format.

    `meanings` are texts by operator and by name of the meaning; the first is the default. `rank` is the rank of an
    operator's operands and results if the operator determines it, else None. `usual_rank` is the rank of an external
    tensor if no operator determines it. `axes` gives names for the sizes of an external tensor of a rank.

    `meaning` makes an operator's results from its operands; it raises NoReading, and Contradiction if the operands do
    not fit. `wider` maps a choice for an operator to a more general one, used in rules for which the choice admits no
    sizes. `operators` is a file of declarations that the meanings call in addition to the shipped ones. `definitions`
    is a file of rules that define these operators in terms of shipped ones.
    """

    name: str
    meanings: Mapping[str, Mapping[str, str]]
    rank: Callable[[FileOperator], int | None]
    usual_rank: Callable[[int], int]
    axes: Callable[[int, int], Sequence[str]]
    meaning: Callable[[FileOperator, Sequence[Typed], Typing], tuple[Typed, ...]]
    operators: Path | None = None
    definitions: Path | None = None
    wider: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def apply(self, made: FileOperator, operands: Sequence[Typed], typing: Typing) -> tuple[Typed, ...]:
        """Like `meaning`. Raises NoReading also for an operator without a meaning and for a wrong number of
        operands.
        """
        if made.kind not in self.meanings:
            raise NoReading(f"there is no reading of `{made.kind}`")
        if made.kind != "concat" and len(operands) != 1 + (made.kind in OF_TWO):
            raise NoReading(f"`{made.kind}` of {len(operands)} operands")
        return self.meaning(made, operands, typing)


@dataclass(frozen=True)
class Reading:
    """A format, and the chosen meaning of each operator that has several."""

    format: Format
    choices: Mapping[str, str]

    @property
    def texts(self) -> dict[str, str]:
        """The meaning of each operator in words."""
        return {kind: texts[self.choices.get(kind, next(iter(texts)))] for kind, texts in self.format.meanings.items()}

    def library(self) -> Library:
        """The shipped declarations and those of the format."""
        path = self.format.operators
        return library_of((*library_sources(), *(() if path is None else (read_source(path),))))

    def definitions(self, library: Library) -> tuple[RuleDecl, ...]:
        """Rules that define the operators of the format in terms of shipped ones."""
        path = self.format.definitions
        return () if path is None else load_rules(read_source(path), library)


def chosen_reading(format: Format, wanted: Sequence[str]) -> Reading:
    """The reading with the choices `OPERATOR=NAME`; other operators have their first meaning. Raises E556."""
    several = {kind: texts for kind, texts in format.meanings.items() if len(texts) > 1}
    choices = {kind: next(iter(texts)) for kind, texts in several.items()}
    known = [f"{kind}={name}" for kind, texts in several.items() for name in texts]
    for text in wanted:
        kind, _, name = text.partition("=")
        if text not in known:
            help = suggest(text, known) or f"there are {', '.join(f'`{one}`' for one in known)}"
            raise fail("E556", f"there is no reading `{text}` of the format `{format.name}`", help=help)
        choices[kind] = name
    return Reading(format, choices)

"""A reading: what each operator of a format is taken to mean, one meaning for the whole file."""

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
"""Operators of two operands; `concat` has any number, others have one."""
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
"""Operators that mean the same in every format."""


def shared_meaning(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> tuple[Typed, ...]:
    """The results of an operator of SHARED_MEANINGS."""
    match made.kind:
        case "concat":
            return (typing.concat(made, operands),)
        case "split":
            return typing.split(made, operands[0])
        case _:
            return (typing.elementwise(made.kind, operands),)


@dataclass(frozen=True)
class Format:
    """What is known of a format's operators.

    `meanings` are texts by operator, where there are several by name, the first by default. `rank` is that of an
    operator's operands and results where it says so, else None; `usual_rank` that of an external tensor of which no
    operator says more; `axes` are names for the sizes of an external tensor of a rank.

    `meaning` makes results of an operator's operands; it raises NoReading, and Contradiction where the operands do not
    fit. `wider` is, for the choice of an operator, a more general one, to be taken in rules in which the choice admits
    no sizes. `operators` is a file of the declarations that the meanings call beside the shipped ones, and
    `definitions` one of rules that say what they are in terms of these.
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
        """As `meaning`; NoReading for an operator without one and for the wrong number of operands."""
        if made.kind not in self.meanings:
            raise NoReading(f"there is no reading of `{made.kind}`")
        if made.kind != "concat" and len(operands) != 1 + (made.kind in OF_TWO):
            raise NoReading(f"`{made.kind}` of {len(operands)} operands")
        return self.meaning(made, operands, typing)


@dataclass(frozen=True)
class Reading:
    """A format, and which of several meanings each operator has."""

    format: Format
    choices: Mapping[str, str]

    @property
    def texts(self) -> dict[str, str]:
        """The meaning of each operator in words."""
        return {kind: texts[self.choices.get(kind, next(iter(texts)))] for kind, texts in self.format.meanings.items()}

    def library(self) -> Library:
        """The shipped declarations and those that belong to the format."""
        path = self.format.operators
        return library_of((*library_sources(), *(() if path is None else (read_source(path),))))

    def definitions(self, library: Library) -> tuple[RuleDecl, ...]:
        """What the operators of the format are in terms of shipped ones: rules from the former to the latter."""
        path = self.format.definitions
        return () if path is None else load_rules(read_source(path), library)


def chosen_reading(format: Format, wanted: Sequence[str]) -> Reading:
    """The reading with the choices `OPERATOR=NAME`, else the first meaning of each operator. Raises E556."""
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

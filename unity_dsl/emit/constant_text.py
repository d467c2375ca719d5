"""Text of the class of constants: tensors that depend on no input or parameter, each once, in order of first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..index.lowering.constant_terms import Constants
from ..index.lowering.torch_term import Term, Variable
from ..index.lowering.value_lowering import Statement
from .program_names import Names
from .source_lines import above, broken
from .torch_text import term_text

HOLDER = "constants"
"""The attribute of the model that has the constants."""

Spelling = Callable[[Term], str]


@dataclass
class ConstantsText:
    """The statements of the class's constructor, which takes the model. `smaller` means that inputs may be smaller in a
    call than the program was compiled for; such a call reads a slice of a constant.
    """

    smaller: bool = False
    lines: list[str] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    known: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    def add(self, constants: Constants, operator: str, words: str, spelling: Spelling) -> list[str]:
        """Adds an operator's constants. Returns the attributes of their results. `spelling` writes terms of the state
        `model`.
        """
        own = _Spelled(constants, spelling)
        lines, values = list(own.lines()), [own.text(root) for root in own.roots]
        key = (*lines, *values)
        if key not in self.known:
            self.known[key] = [self.names.fresh(f"{operator}_{root.name}") for root in own.roots]
            self.lines += above(words)
            made = zip(self.known[key], values, strict=True)
            for line in (*lines, *(f"self.{name} = {value}" for name, value in made)):
                self.lines += broken(line)
        return self.known[key]


class _Spelled:
    """Constants as text, with variable names of their own."""

    def __init__(self, constants: Constants, spelling: Spelling) -> None:
        results = set(constants.results)
        self.inner = [found for found in constants.statements if not results & set(found.variables)]
        self.roots = [found for found in constants.statements if results & set(found.variables)]
        self.spelling, self.scope = spelling, Names()
        self.bound: dict[Variable, str] = {}

    def lines(self) -> Iterator[str]:
        for statement in self.inner:
            value = self.text(statement)
            (variable,) = statement.variables
            self.bound[variable] = self.scope.fresh(statement.name)
            yield f"{self.bound[variable]} = {value}"

    def text(self, statement: Statement) -> str:
        return term_text(statement.value, self.spelled)

    def spelled(self, term: Term) -> str:
        match term:
            case Term("name", (Variable() as variable,)):
                return self.bound[variable]
        return self.spelling(term)

"""Finds the parts of a lowering that depend on no operand except for its type and shape.

These are functions of positions, such as the angles of rope, and orders in which elements are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .operator_lowering import Lowering
from .torch_term import Argument, Range, Sort, Term, Variable, number, word
from .value_lowering import Statement


@dataclass(frozen=True)
class Constants:
    """Statements that need no operand. The last ones bind `results`, and the others bind what these need.

    `extents` has the sizes of each result's dimensions as terms, if the program reads them off a tensor.
    """

    statements: tuple[Statement, ...]
    results: tuple[Variable, ...]
    extents: tuple[tuple[Term | None, ...], ...]


def split_constants(lowering: Lowering, local_sizes: Mapping[str, int], dtype: str, device: str) -> Constants | None:
    """The functions of positions in a lowering that lack an axis of the terms around them; None if there are none.

    `dtype` and `device` are the program text of the operands' type and device. `without_constants` is the lowering that
    takes these functions as given.
    """
    return _Split(lowering).constants(local_sizes, dtype, device)


def without_constants(lowering: Lowering) -> Lowering:
    """The remaining lowering. The results of its constants are variables that nothing in it binds."""
    return _Split(lowering).rest


def constants_apart(lowering: Lowering) -> tuple[tuple[Statement, ...], Lowering]:
    """The statements that make constants, and the remaining lowering."""
    if not any(_calls_on_positions(statement.value, {}) for statement in lowering.statements):
        return (), lowering
    split = _Split(lowering)
    return split.held, split.rest


class _Split:
    """Splits a lowering into its constant statements and the rest, which reads needed constants as variables."""

    def __init__(self, lowering: Lowering) -> None:
        bound = [variable for statement in lowering.statements for variable in statement.variables]
        self.count = 1 + max((variable.number for variable in bound), default=0)
        self.constant: dict[Variable, Statement] = {}
        self.roots: list[Statement] = []
        kept: list[Statement] = []
        for statement in lowering.statements:
            free = len(statement.variables) == 1 and statement.variables[0] not in lowering.results
            if free and self.is_constant(statement.value):
                self.constant[statement.variables[0]] = statement
                kept.append(statement)
            else:
                kept.append(replace(statement, value=self.left(statement.value, statement.value.axes)))
        needed = {variable for found in kept if not self.of(found) for variable in _variables(found.value)}
        statements = [found for found in reversed(kept) if not self.of(found) or self.reaches(found, needed)]
        self.rest = replace(lowering, statements=tuple(reversed(statements)))

    @property
    def held(self) -> tuple[Statement, ...]:
        """The constants that are needed: first the inner ones, then the roots, which the lowering reads."""
        needed = {variable for root in self.roots for variable in _variables(root.value)}
        inner = [found for found in reversed(self.constant.values()) if self.reaches(found, needed)]
        return *reversed(inner), *self.roots

    def of(self, statement: Statement) -> bool:
        return statement.variables[0] in self.constant

    def reaches(self, statement: Statement, needed: set[Variable]) -> bool:
        """Whether a constant statement is `needed`. If so, the variables that it reads become needed too."""
        if statement.variables[0] not in needed:
            return False
        needed.update(_variables(statement.value))
        return True

    # ------------------------------------------------------------------------------------------ terms

    def is_constant(self, argument: Argument) -> bool:
        match argument:
            case Variable():
                return argument in self.constant
            case Term(".size" | "@device" | "@dtype"):
                return True
            case Term("state" | "uniform" | "at_least" | "places" | "replicate" | "reduce" | "reduce_over"):
                return False
            case Term("index"):
                return True
            case Term(".numel"):
                return False
            case Term():
                return all(map(self.is_constant, (*argument.arguments, *(value for _, value in argument.keywords))))
            case tuple() | list():
                return all(map(self.is_constant, argument))
        return True

    def left(self, term: Term, axes: Sequence[str]) -> Term:
        """The term with variables for the functions of positions in it that lack one of these axes."""
        if self.is_constant(term) and not _new_axes(term):
            if set(term.axes) < set(axes) and _calls_on_positions(term, self.constant):
                return self.root(term)
            return term
        return term.mapped(lambda given: self.left(given, axes) if isinstance(given, Term) else given)

    def root(self, term: Term) -> Term:
        found = next((root for root in self.roots if root.value == term), None)
        if found is None:
            found = Statement((Variable(self.count),), term, self.name(term))
            self.count += 1
            self.roots.append(found)
        return Term("name", found.variables, term.axes, term.sort)

    def name(self, term: Term) -> str:
        """A name for a constant: its function, or the name of the statement."""
        match term:
            case Term("name", (Variable() as variable,)):
                return self.constant[variable].name
            case Term(".to", (Term() as inner, *_)):
                return self.name(inner)
        return term.operation.rpartition(".")[2] if "." in term.operation else "positions"

    # ------------------------------------------------------------------------------------------ written by itself

    def constants(self, local_sizes: Mapping[str, int], dtype: str, device: str) -> Constants | None:
        if not self.roots:
            return None
        extents: dict[str, Term] = {}

        def alone(argument: Argument) -> Argument:
            match argument:
                case Term("@device"):
                    return word(device)
                case Term("@dtype"):
                    return word(dtype)
                case Term("torch.arange", (Term(".size") as size, *_), (axis,)):
                    extents[axis] = size
                    arguments = number(local_sizes[axis]), *argument.arguments[1:]
                    return replace(argument.mapped(alone), arguments=arguments)
                case Term():
                    return argument.mapped(alone)
            return argument

        statements = []
        for found in self.held:
            value = alone(found.value)
            assert isinstance(value, Term)
            statements.append(replace(found, value=value))
        return Constants(
            tuple(statements),
            tuple(root.variables[0] for root in self.roots),
            tuple(tuple(extents.get(axis) for axis in root.value.axes) for root in self.roots),
        )


def _calls_on_positions(argument: Argument, bound: Mapping[Variable, Statement]) -> bool:
    """Whether a term calls a function of positions, itself or in a statement `bound` to one of its variables."""
    match argument:
        case Variable():
            return argument in bound and _calls_on_positions(bound[argument].value, bound)
        case Term(".size" | "@device" | "@dtype"):
            return False
        case Term():
            of_numbers = argument.sort is Sort.POSITION and argument.operation.startswith("torch.")
            called = of_numbers or argument.operation == "torch.argsort"
            return called or any(_calls_on_positions(part, bound) for part in argument.arguments)
        case tuple() | list():
            return any(_calls_on_positions(part, bound) for part in argument)
    return False


def _new_axes(term: Term) -> bool:
    """Whether a term is a view that adds dimensions of length 1 for broadcasting."""
    return term.operation == "[]" and all(part is None or part == Range() for part in term.arguments[1:])


def _variables(argument: Argument) -> Iterator[Variable]:
    match argument:
        case Variable():
            yield argument
        case Term():
            for part in (*argument.arguments, *(value for _, value in argument.keywords)):
                yield from _variables(part)
        case tuple() | list():
            for part in argument:
                yield from _variables(part)

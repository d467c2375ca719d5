"""Python text of torch terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from ..index.lowering.torch_term import Argument, Range, Sort, Term, Variable

Spelling = Callable[[Term], str]
"""Gives the text of what only the program knows: its variables, its state, its collectives."""


class Binding(IntEnum):
    """How tightly the outermost operator of an expression binds."""

    COMPARISON = 0
    AND = 1
    SUM = 2
    PRODUCT = 3
    SIGN = 4
    ATOM = 5


_INFIX = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), Binding.COMPARISON),
    **dict.fromkeys("&|", Binding.AND),
    **dict.fromkeys("+-", Binding.SUM),
    **dict.fromkeys(("*", "/", "//", "%"), Binding.PRODUCT),
}


def term_text(term: Term, spelling: Spelling) -> str:
    """The term as Python. `spelling` gives the text of terms that are not torch operations."""
    operation, arguments = term.operation, term.arguments
    if operation == "number":
        return _number(term)
    if operation == "word":
        return str(arguments[0])
    if operation in _INFIX:
        left, right = arguments
        binding = _INFIX[operation]
        # Comparisons do not chain, all others group to the left.
        first = _inside(left, Binding.SUM if binding is Binding.COMPARISON else binding, spelling)
        return f"{first} {operation} {_inside(right, Binding(binding + 1), spelling)}"
    if operation == "neg":
        return f"-{_inside(arguments[0], Binding.SIGN, spelling)}"
    if operation == "[]":
        subscript = ", ".join(argument_text(part, spelling) for part in arguments[1:])
        return f"{_atom(arguments[0], spelling)}[{subscript}]"
    if operation.startswith("@"):
        return f"{_atom(arguments[0], spelling)}.{operation[1:]}"
    if operation.startswith("."):
        return f"{_atom(arguments[0], spelling)}{operation}({_arguments(term, 1, spelling)})"
    if "." in operation:
        return f"{operation}({_arguments(term, 0, spelling)})"
    return spelling(term)


def argument_text(argument: Argument, spelling: Spelling) -> str:
    match argument:
        case Term():
            return term_text(argument, spelling)
        case Range(start, stop, step):
            text = f"{'' if start is None else start}:{'' if stop is None else stop}"
            return text if step is None else f"{text}:{step}"
        case tuple():
            parts = ", ".join(argument_text(part, spelling) for part in argument)
            return f"({parts},)" if len(argument) == 1 else f"({parts})"
        case list():
            return f"[{', '.join(argument_text(part, spelling) for part in argument)}]"
        case Variable():
            raise TypeError("a variable is spelt as a term")
    return str(argument)


def _arguments(term: Term, first: int, spelling: Spelling) -> str:
    parts = [argument_text(part, spelling) for part in term.arguments[first:]]
    return ", ".join([*parts, *(f"{key}={argument_text(part, spelling)}" for key, part in term.keywords)])


def _number(term: Term) -> str:
    """A literal. Infinities are written as Python needs them."""
    infinite = isinstance(term.value, float) and term.value in (float("inf"), float("-inf"))
    return f'float("{term.value}")' if infinite else repr(term.value)


def _binding(term: Term) -> Binding:
    if term.operation == "number":
        assert term.value is not None
        return Binding.SIGN if term.value < 0 and not _number(term).startswith("float") else Binding.ATOM
    return Binding.SIGN if term.operation == "neg" else _INFIX.get(term.operation, Binding.ATOM)


def _inside(argument: Argument, binding: Binding, spelling: Spelling) -> str:
    """The text as an operand of an operator that binds this tightly."""
    text = argument_text(argument, spelling)
    return text if not isinstance(argument, Term) or _binding(argument) >= binding else f"({text})"


def _atom(argument: Argument, spelling: Spelling) -> str:
    """The text in a place where a method or a subscript may follow."""
    if isinstance(argument, Term) and argument.sort is Sort.NUMBER:
        return f"({argument_text(argument, spelling)})"
    return _inside(argument, Binding.ATOM, spelling)


def split_text(source: str, dim: int, lengths: Sequence[int]) -> str:
    """The call that splits a tensor into parts of these lengths along a dimension."""
    alike = len(set(lengths)) == 1
    return f"torch.split({source}, {lengths[0] if alike else list(lengths)}, {dim})"

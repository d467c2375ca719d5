"""Whether an operator's statements add up floats one by one, which a narrow float type does not do well."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..equations.instance import Instance, Key
from ..library import Library
from .division import Division
from .operator_lowering import lower_equations
from .torch_term import Argument, Sort, Term

_SUMS = frozenset({".sum", ".prod", ".cumsum"})
"""Products of matrices add up in float32 inside, and keep their operands as they are."""


def accumulates(instance: Instance, library: Library) -> bool:
    """Whether the statements reduce floats by a sum or a product, other than in a product of matrices."""
    return _accumulates(instance.identity, library)


@lru_cache(maxsize=4096)
def _accumulates(identity: Key, library: Library) -> bool:
    instance = identity.instance
    if instance.extern:
        return False
    lowering = lower_equations(instance, Division(instance.sizes), library)
    terms = (term for statement in lowering.statements for term in _terms(statement.value))
    return any(term.operation in _SUMS and term.sort is Sort.FLOAT for term in terms)


def _terms(argument: Argument) -> Iterator[Term]:
    if isinstance(argument, Term):
        yield argument
        for part in (*argument.arguments, *(value for _, value in argument.keywords)):
            yield from _terms(part)
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _terms(part)

"""Finds operators that add up floats one by one, forward or in the gradient: inaccurate in a narrow float type.

Matrix products accumulate in float32 internally, and so do most of torch's native calls, in any type and on any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache

from ...syntax.ast import Name
from ..equations.instance import Equation, Instance, Key
from ..equations.loop_nest import loop_nest
from ..equations.term import reads
from ..evaluation.native_calls import native_functions
from ..library import Library
from .division import Division
from .operator_lowering import lower_equations
from .torch_term import Argument, Sort, Term

_SUMS = frozenset({".sum", ".prod", ".cumsum"})
"""Sums in statements. Matrix products are not listed: their operands keep their type."""
_ATOMIC_SUMS = frozenset({".scatter_add", ".take_along_dim"})
"""Scatters, and lookups whose gradients are scatters: GPUs add each value in its own type."""
_NARROW_ON_CPUS = frozenset({"F.embedding", "F.layer_norm", "F.avg_pool2d"})
"""Native calls whose gradients, also of gain and bias, CPUs add up in their own type and GPUs in float32."""


class NarrowSums(Enum):
    """The devices on which an operator of a narrow float type accumulates in that type, forward or in its gradient."""

    NOWHERE = auto()
    ON_CPUS = auto()
    ANYWHERE = auto()


def narrow_sums(instance: Instance, native: bool, library: Library) -> NarrowSums:
    """Where an operator's native call, or its statements, would accumulate in the type of the operands."""
    return _narrow_sums(instance.identity, native, library)


@lru_cache(maxsize=4096)
def _narrow_sums(identity: Key, native: bool, library: Library) -> NarrowSums:
    instance = identity.instance
    if instance.extern:
        return NarrowSums.NOWHERE
    if native:
        call = instance.operator.torch
        on_cpus = call is not None and not _NARROW_ON_CPUS.isdisjoint(native_functions(call))
        adds = not on_cpus and _adds_at_places(instance)
    else:
        used = _float_operations(instance, library)
        on_cpus = _adds_at_places(instance)
        adds = not used.isdisjoint(_SUMS) or (on_cpus and not used.isdisjoint(_ATOMIC_SUMS))
    if adds:
        return NarrowSums.ANYWHERE
    return NarrowSums.ON_CPUS if on_cpus else NarrowSums.NOWHERE


def _float_operations(instance: Instance, library: Library) -> frozenset[str]:
    """The torch operations on floats in the statements."""
    lowering = lower_equations(instance, Division(instance.sizes), library)
    terms = (term for statement in lowering.statements for term in _terms(statement.value))
    return frozenset(term.operation for term in terms if term.sort is Sort.FLOAT)


def _adds_at_places(instance: Instance) -> bool:
    """Whether values are added at positions that integers give, forward (a scatter) or in the gradient (a lookup).

    The gradient of a lookup accumulates if one element can be read several times: some axis occurs only in looked-up
    indices.
    """
    return any(_adds(instance, equation) for equation in instance.equations)


def _adds(instance: Instance, equation: Equation) -> bool:
    nest = loop_nest(instance, equation)
    if nest.placed or not nest.looked_up:
        return bool(nest.placed) and not nest.slides  # a transposed convolution is products of matrices
    iterated = {axis for axis in nest.axes if instance.sizes[axis] > 1}
    floats = (read for read in reads(nest.value) if instance.operand(read.tensor).integer_range is None)
    return any(iterated - {index.name for index in read.index if isinstance(index, Name)} for read in floats)


def _terms(argument: Argument) -> Iterator[Term]:
    if isinstance(argument, Term):
        yield argument
        for part in (*argument.arguments, *(value for _, value in argument.keywords)):
            yield from _terms(part)
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _terms(part)

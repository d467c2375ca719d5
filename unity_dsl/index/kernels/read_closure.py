"""The tensors that values of an instance are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...syntax.ast import Expr
from ..equations.loop_nest import LoopNest
from ..equations.term import reads

Nests = Mapping[str, LoopNest]
"""The loops of an instance's equations, by target."""


def read_by(values: Iterable[Expr], nests: Nests, through: Callable[[str], bool]) -> set[str]:
    """The tensors that values read, directly or by way of intermediates for which `through` holds.

    The kernel evaluates these intermediates where it reads them.
    """
    found: set[str] = set()
    left = list(values)
    while left:
        for read in reads(left.pop()):
            if read.tensor not in found:
                found.add(read.tensor)
                if read.tensor in nests and through(read.tensor):
                    left.append(nests[read.tensor].value)
    return found


def unreduced(value: Expr, nests: Nests) -> set[str]:
    """The tensors that a value reads, directly or through equations without a reduction."""
    return read_by([value], nests, lambda name: not nests[name].over)

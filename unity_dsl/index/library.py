"""The declarations in force, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl

LIBRARIES = 64
"""Of how many libraries a process keeps what it derives. A compile has one, a process that tries declarations many."""


@dataclass(frozen=True, eq=False)
class Library:
    """Declarations by name. Operators and parallel ops share one space of names, element functions have their own.

    With `plain`, no sum is lowered to a call that was recognised in it: so programs are compared with their statements.
    """

    operators: Mapping[str, OperatorDecl]
    parallels: Mapping[str, ParallelDecl]
    functions: Mapping[str, FunctionDecl]
    plain: bool = False

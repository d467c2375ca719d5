"""The declarations in force, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl

LIBRARIES = 64
"""The number of libraries for which a process caches derived facts.

A compile has one, a process that tries declarations many.
"""


@dataclass(frozen=True, eq=False)
class Library:
    """Declarations by name. Operators and parallel ops share one namespace; element functions have their own.

    With `plain`, no sum is lowered to a recognised library call. Programs are then compared with their statements.
    """

    operators: Mapping[str, OperatorDecl]
    parallels: Mapping[str, ParallelDecl]
    functions: Mapping[str, FunctionDecl]
    plain: bool = False

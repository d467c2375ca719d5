"""The declarations in force, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl


@dataclass(frozen=True, eq=False)
class Library:
    """Declarations by name. Operators and parallel ops share one space of names, element functions have their own."""

    operators: Mapping[str, OperatorDecl]
    parallels: Mapping[str, ParallelDecl]
    functions: Mapping[str, FunctionDecl]

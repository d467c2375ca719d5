"""All declarations in force: the shipped ones and the user's, each checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ..resources import folder
from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl
from ..syntax.diagnostic import Label, fail
from ..syntax.parse_ops import parse_ops
from ..syntax.read import read_source
from ..syntax.span import Source
from .facts import check_facts
from .samples import check_samples
from .validate import check_function, check_operator, check_parallel

Declaration = TypeVar("Declaration", OperatorDecl, ParallelDecl, FunctionDecl)


@dataclass(frozen=True, eq=False)
class Library:
    """Declarations by name. Operators and parallel ops share one space of names, element functions have their own."""

    operators: Mapping[str, OperatorDecl]
    parallels: Mapping[str, ParallelDecl]
    functions: Mapping[str, FunctionDecl]


def load_library(extra: Sequence[Path] = ()) -> Library:
    """The declarations of `library_sources`, checked together. Raises E0xx as it does and E101 to E119."""
    return library_of(library_sources(extra))


def library_sources(extra: Sequence[Path] = ()) -> tuple[Source, ...]:
    """The texts of the shipped `ops/*.uop` and those of the given directories (or files), in the order of their names.

    Raises E0xx where a file cannot be read.
    """
    return tuple(read_source(path) for base in (folder("ops"), *extra) for path in _files(base))


def library_of(sources: Iterable[Source]) -> Library:
    """The declarations of these texts, checked together; of the same texts the same library. Raises E101 to E119."""
    return _library_of(tuple(sources))


@lru_cache(maxsize=16)
def _library_of(sources: tuple[Source, ...]) -> Library:
    declarations = [declaration for source in sources for declaration in parse_ops(source).declarations]
    operators = [declaration for declaration in declarations if isinstance(declaration, OperatorDecl)]
    parallels = [declaration for declaration in declarations if isinstance(declaration, ParallelDecl)]
    functions = [declaration for declaration in declarations if isinstance(declaration, FunctionDecl)]
    _check_distinct([*operators, *parallels])
    _check_distinct(functions)
    library = Library(_by_name(operators), _by_name(parallels), _by_name(functions))
    for function in functions:
        check_function(function, library.functions)
    for function in functions:
        if not _is_shipped(function):
            check_facts(function, library.functions)
    for operator in operators:
        check_operator(operator, library.functions)
    for operator in operators:
        if any(output.integer_range is not None for output in operator.outputs) and not _is_shipped(operator):
            check_samples(operator, library)
    for parallel in parallels:
        check_parallel(parallel, library.functions)
    return library


def _is_shipped(declaration: FunctionDecl | OperatorDecl) -> bool:
    """Whether a declaration comes with the package: it was tried before, at more points than there is time for."""
    return declaration.span is not None and Path(declaration.span.source.name).parent == folder("ops")


def _files(base: Path) -> Iterator[Path]:
    """The `.uop` files of a directory; anything else stands for itself, so that a wrong path is reported when read."""
    return iter(sorted(base.glob("*.uop"))) if base.is_dir() else iter((base,))


def _by_name(declarations: Iterable[Declaration]) -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in declarations}


def _check_distinct(declarations: Iterable[OperatorDecl | ParallelDecl | FunctionDecl]) -> None:
    first: dict[str, OperatorDecl | ParallelDecl | FunctionDecl] = {}
    for declaration in declarations:
        other = first.setdefault(declaration.name, declaration)
        if other is not declaration:
            notes = [Label(other.span, "first here")] if other.span is not None else []
            raise fail("E105", f"`{declaration.name}` is declared twice", declaration.span, notes=notes)

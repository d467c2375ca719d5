"""Reads the shipped and the user's declarations, and checks each."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from ...resources import folder
from ...syntax.ast import Apply, Expr, FunctionDecl, OperatorDecl, ParallelDecl
from ...syntax.diagnostic import InputError, Label, fail, gathered
from ...syntax.outline import outline
from ...syntax.parse_ops import parse_operator, parse_ops
from ...syntax.read import read_source
from ...syntax.span import Source, Span
from ..equations.term import walk
from ..library import LIBRARIES, Library
from .trial_record import facts_tried, is_tried, makes_claims, remember, remember_facts, texts_tried
from .validate import check_function, check_operator, check_parallel

WRITTEN = frozenset({"add", "sub", "mul", "div", "neg", "scale", "shift", "reciprocal", "rearrange", "concat", "slice"})
"""Operators that models and rules use without naming them: `x + y`, `2 / x`, `x[a, b] -> [b, a]`."""
LOG = logging.getLogger(__name__)
"""Logs a message before each slow step; the command line shows it on a terminal."""
Declaration = TypeVar("Declaration", OperatorDecl, ParallelDecl, FunctionDecl)


class Operators(Mapping[str, OperatorDecl]):
    """Operators by name. An operator given by its span is parsed and checked on first access.

    This access raises E005 to E029 and E101 to E112.
    """

    def __init__(self, operators: Mapping[str, OperatorDecl | Span], functions: Mapping[str, FunctionDecl]) -> None:
        self._found = dict(operators)
        self._functions = functions

    def __getitem__(self, name: str) -> OperatorDecl:
        found = self._found[name]
        if isinstance(found, Span):
            found = parse_operator(found)
            check_operator(found, self._functions)
            self._found[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def load_library(extra: Sequence[Path] = ()) -> Library:
    """The declarations of `library_sources`, checked together. Raises E0xx as that does, and E101 to E119."""
    return library_of(library_sources(extra))


def library_sources(extra: Sequence[Path] = ()) -> tuple[Source, ...]:
    """The texts of the shipped `ops/*.uop` and of the given directories or files, sorted by name.

    Raises E0xx if a file cannot be read.
    """
    return tuple(read_source(path) for base in (folder("ops"), *extra) for path in _files(base))


def library_of(sources: Iterable[Source]) -> Library:
    """The declarations of these texts, checked; cached by the texts. Raises E101 to E119.

    Shipped operators were tested before release: they are parsed and checked on first access only. Any other
    declaration is tested; native calls and derivatives are tested once per content.
    """
    return _library_of(tuple(sources))


@lru_cache(maxsize=LIBRARIES)
def _library_of(sources: tuple[Source, ...]) -> Library:
    declarations: list[OperatorDecl | ParallelDecl | FunctionDecl] = []
    outlined: dict[str, Span] = {}
    ours = [source for source in sources if _is_shipped(source)]
    shipped = {source.name for source in ours} if texts_tried(ours) else frozenset()
    for source in sources:
        if source.name in shipped:
            found = outline(source)
            if found is not None and not found.keys() & outlined.keys():
                outlined |= found
                continue
        declarations += _declared_in(source)
    given = [declaration for declaration in declarations if isinstance(declaration, OperatorDecl)]
    first = _shipped_names(sources)
    replaced = _replaced(given, outlined, first)
    operators = [one for one in given if one.name not in replaced or not _is_of(one, first)]
    outlined = {name: span for name, span in outlined.items() if name not in replaced}
    parallels = [declaration for declaration in declarations if isinstance(declaration, ParallelDecl)]
    functions = [declaration for declaration in declarations if isinstance(declaration, FunctionDecl)]
    names = {*_by_name(operators), *_by_name(parallels)}
    clashing = [parse_operator(span) for name, span in outlined.items() if name in names]
    _check_distinct([*clashing, *operators, *parallels])
    _check_distinct(functions)
    named = _by_name(functions)
    library = Library(Operators({**outlined, **_by_name(operators)}, named), _by_name(parallels), named)
    _check_all(operators, parallels, functions, named)
    untried: list[FunctionDecl | OperatorDecl] = [*functions, *operators]
    if untried := [declaration for declaration in untried if not _is_of(declaration, shipped)]:
        _try(untried, library)
    return library


def _shipped_names(sources: Iterable[Source]) -> frozenset[str]:
    """The names of the shipped texts, or of a plan's copies of them: the first text under each shipped file's name."""
    found: dict[str, str] = {}
    for source in sources:
        found.setdefault(Path(source.name).name, source.name)
    return frozenset(found[path.name] for path in folder("ops").glob("*.uop") if path.name in found)


def _replaced(given: Iterable[OperatorDecl], outlined: Collection[str], shipped: Collection[str]) -> frozenset[str]:
    """The shipped operators that a user declares again, except those that a shipped rule or the language mentions."""
    own, known = set[str](), set(outlined)
    for one in given:
        (known if _is_of(one, shipped) else own).add(one.name)
    return frozenset(name for name in own & known if name not in _mentioned())


@lru_cache(maxsize=1)
def _mentioned() -> frozenset[str]:
    """The names that shipped rules call, and the operators that signs and views of the languages stand for."""
    texts = (path.read_text(encoding="utf-8") for path in folder("rules").glob("*.rules"))
    return frozenset(word for text in texts for word in re.findall(r"\w+(?=\()", text)) | WRITTEN


def _check_all(
    operators: Sequence[OperatorDecl],
    parallels: Sequence[ParallelDecl],
    functions: Sequence[FunctionDecl],
    named: Mapping[str, FunctionDecl],
) -> None:
    """Checks each declaration by itself. Raises all faults together, except those of callers of a faulty function."""
    checks: list[tuple[OperatorDecl | ParallelDecl | FunctionDecl, Callable[[], None]]] = [
        *((one, partial(check_function, one, named)) for one in functions),
        *((one, partial(check_operator, one, named)) for one in operators),
        *((one, partial(check_parallel, one, named)) for one in parallels),
    ]
    faults: list[tuple[OperatorDecl | ParallelDecl | FunctionDecl, InputError]] = []
    for one, check in checks:
        try:
            check()
        except InputError as fault:
            faults.append((one, fault))
    if faults:
        wrong = {one.name for one, _ in faults if isinstance(one, FunctionDecl)}
        first = [fault for one, fault in faults if wrong.isdisjoint(_called(one) - {one.name})]
        raise gathered(first or [faults[0][1]])


def _called(declaration: OperatorDecl | ParallelDecl | FunctionDecl) -> frozenset[str]:
    """The functions that the terms of a declaration call."""
    terms: list[Expr] = []
    if isinstance(declaration, FunctionDecl) and declaration.definition is not None:
        terms.append(declaration.definition)
    elif isinstance(declaration, OperatorDecl):
        terms += (statement.value for statement in (*declaration.statements, *declaration.evaluation))
    return frozenset(part.function for term in terms for part in walk(term) if isinstance(part, Apply))


@lru_cache(maxsize=LIBRARIES)
def _declared_in(source: Source) -> tuple[OperatorDecl | ParallelDecl | FunctionDecl, ...]:
    """The declarations of a text, shared by the libraries that contain it."""
    return parse_ops(source).declarations


def _try(declarations: Sequence[FunctionDecl | OperatorDecl], library: Library) -> None:
    """Tests derivatives, facts, integer results and native calls. Raises E108, E113, E114, E116 and E118."""
    # Imported here: only the user's own declarations need to be evaluated.
    from .fact_trials import check_facts
    from .function_trials import check_function_lines, check_numpy_call
    from .native_trials import check_native_lines
    from .sample_trials import check_samples

    untried = [one for one in declarations if makes_claims(one) and not is_tried(one, library.functions)]
    for declaration in declarations:
        if new := declaration in untried:
            place = untried.index(declaration) + 1
            LOG.info("trying `%s`, once: %d of %d", declaration.name, place, len(untried))
        if isinstance(declaration, FunctionDecl):
            if declaration.numpy is not None:
                check_numpy_call(declaration.numpy)
            if declaration.facts and not facts_tried(declaration, library.functions):
                check_facts(declaration, library.functions)
                remember_facts(declaration, library.functions)
            if new:
                check_function_lines(declaration, library.functions)
        elif new:
            check_samples(declaration, library)
            check_native_lines(declaration, library)
        if new:
            remember(declaration, library.functions)


def _is_shipped(source: Source) -> bool:
    """Whether a text ships with the package."""
    return Path(source.name).parent == folder("ops")


def _is_of(declaration: FunctionDecl | OperatorDecl, sources: Collection[str]) -> bool:
    """Whether a declaration is in one of these texts."""
    return declaration.span is not None and declaration.span.source.name in sources


def _files(base: Path) -> Iterator[Path]:
    """The `.uop` files of a directory, which must have at least one. Raises E001.

    Any other path stands for itself, and fails when it is read.
    """
    if not os.path.isdir(base):
        return iter((base,))
    found = sorted(base.glob("*.uop"))
    if not found:
        raise fail("E001", f"`{base}` holds no .uop file", help="--ops takes a folder of .uop files, or one of them")
    return iter(found)


def _by_name(declarations: Iterable[Declaration]) -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in declarations}


def _check_distinct(declarations: Iterable[OperatorDecl | ParallelDecl | FunctionDecl]) -> None:
    first: dict[str, OperatorDecl | ParallelDecl | FunctionDecl] = {}
    for declaration in declarations:
        other = first.setdefault(declaration.name, declaration)
        if other is not declaration:
            notes = [Label(other.span, "first here")] if other.span is not None else []
            raise fail("E105", f"`{declaration.name}` is declared twice", declaration.span, notes=notes)

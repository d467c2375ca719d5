"""Markdown pages about every declaration: a table of the operators, and a page per `.uop` file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median

from ..index.cost.explanation import derived
from ..index.cost.lowering_class import lowering_class
from ..index.instantiation.representative import representative
from ..index.library import Library
from ..prove.functions.fact_proofs import fact_lines
from ..rules.sharding_table import statuses
from ..rules.sharding_theorems import ShardingTheorems
from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl
from ..syntax.diagnostic import InputError
from ..syntax.doc_comment import first_sentence
from ..syntax.span import Span

INDEX = "README.md"
_NOTE = "Generated from the declarations by `unityc docs`; changes belong there."
_ORDER = ("proved", "declared", "blocked", "not proved")


@dataclass(frozen=True)
class Entry:
    """An operator with its entries in the table. `page` is the name of its file."""

    operator: OperatorDecl
    page: str
    lines: int
    lowering: str
    statuses: Mapping[str, str]


def operator_pages(library: Library, theorems: ShardingTheorems) -> dict[str, str]:
    """The texts of the pages by file name, the table first."""
    entries = [_entry(operator, theorems) for operator in library.operators.values()]
    pages = list(dict.fromkeys(_page(found.span) for found in _declarations(library)))
    texts = {page: "\n".join(_page_lines(page, library, entries)) + "\n" for page in sorted(pages)}
    return {INDEX: "\n".join(_index_lines(entries, library)) + "\n", **texts}


def declaration_lines(span: Span | None) -> int:
    """The number of lines of a declaration, without its comment."""
    return 0 if span is None else span.text.rstrip().count("\n") + 1


def _entry(operator: OperatorDecl, theorems: ShardingTheorems) -> Entry:
    try:
        lowering = str(lowering_class(representative(operator).instance))
    except InputError:
        lowering = ""
    lines = declaration_lines(operator.span)
    return Entry(operator, _page(operator.span), lines, lowering, statuses(operator, theorems))


def _declarations(library: Library) -> tuple[OperatorDecl | ParallelDecl | FunctionDecl, ...]:
    return (*library.operators.values(), *library.parallels.values(), *library.functions.values())


def _page(span: Span | None) -> str:
    return "other.md" if span is None else f"{PurePath(span.source.name).stem}.md"


# ---------------------------------------------------------------------------------------------- the table


def _index_lines(entries: Sequence[Entry], library: Library) -> Iterator[str]:
    counts = Counter(status for entry in entries for status in entry.statuses.values())
    sizes = [entry.lines for entry in entries]
    yield "# Operators"
    yield ""
    yield _NOTE
    yield ""
    found = ", ".join(f"{counts[word]} are {word}" for word in _ORDER if counts[word])
    yield (
        f"{len(entries)} operators in {sum(sizes)} lines of declaration, {median(sizes):g} in the median; "
        f"{len(library.parallels)} parallel ops and {len(library.functions)} element functions. Of the operators' axes "
        f"and the operands that they are linear in, {found}."
    )
    yield ""
    yield "| operator | | lines | lowering | native | axes |"
    yield "| -- | -- | --: | -- | -- | -- |"
    for entry in sorted(entries, key=lambda entry: entry.operator.name):
        operator = entry.operator
        native = "yes" if operator.torch is not None else ""
        of_axes = Counter(entry.statuses.values())
        axes = ", ".join(f"{of_axes[word]} {word}" for word in _ORDER if of_axes[word])
        link, told = f"[{operator.name}]({entry.page}#{operator.name})", first_sentence(operator.doc)
        yield f"| {link} | {_escaped(told)} | {entry.lines} | {entry.lowering} | {native} | {axes} |"
    yield ""
    yield f"Parallel ops: {_links(library.parallels)}."
    yield ""
    yield f"Element functions: {_links(library.functions)}."


def _links(declared: Mapping[str, ParallelDecl] | Mapping[str, FunctionDecl]) -> str:
    return ", ".join(f"[{name}]({_page(declared[name].span)}#{_anchor(declared[name])})" for name in sorted(declared))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


# ---------------------------------------------------------------------------------------------- one file


def _page_lines(page: str, library: Library, entries: Sequence[Entry]) -> Iterator[str]:
    yield f"# {page.removesuffix('.md')}"
    yield ""
    yield f"{_NOTE} [All operators]({INDEX})"
    known = {entry.operator.name: entry for entry in entries}
    for found in _declarations(library):
        if _page(found.span) != page:
            continue
        yield from ("", f"## {_title(found)}", "")
        if found.doc:
            yield from (*found.doc.splitlines(), "")
        yield from _block(found.span.text.rstrip() if found.span is not None else "")
        if isinstance(found, OperatorDecl):
            yield from ("", *_block(derived(found, library, known[found.name].statuses)))
        elif isinstance(found, FunctionDecl):
            facts = fact_lines(found, library)
            yield from ("", *_block("\n".join(facts))) if facts else ()


def _title(found: OperatorDecl | ParallelDecl | FunctionDecl) -> str:
    """The title of a declaration. Element functions have titles of their own: `relu` is an operator too."""
    return f"fn {found.name}" if isinstance(found, FunctionDecl) else found.name


def _anchor(found: OperatorDecl | ParallelDecl | FunctionDecl) -> str:
    return _title(found).replace(" ", "-").lower()


def _block(text: str) -> Iterator[str]:
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"

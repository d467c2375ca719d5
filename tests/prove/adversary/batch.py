"""Reads and judges many cases with one library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.span import Source

from .generate import Case
from .verdict import Verdict, verdict

DECLARATIONS = Path(__file__).parent / "adversary.uop"


def verdicts(cases: Sequence[Case], *, witness: bool = True) -> Iterator[Verdict]:
    """The verdicts of the cases that can be read."""
    library, rules = readable(cases)
    for case, rule in rules:
        yield verdict(rule, case.kind, library, str(case), witness=witness)


def readable(cases: Sequence[Case]) -> tuple[Library, list[tuple[Case, RuleDecl]]]:
    """The cases that no diagnostic refuses, with their rules, and one library with all their declarations."""
    kept = list(cases)
    try:
        library = library_with(kept)
    except InputError:
        kept = [case for case in cases if _is_readable(case)]
        library = library_with(kept)
    found = []
    for case in kept:
        try:
            (rule,) = parse_rules(Source(f"{case.name}.rules", case.rule)).rules
        except InputError:
            continue
        found.append((case, rule))
    return library, found


def library_with(cases: Sequence[Case]) -> Library:
    text = "".join(case.declarations for case in cases)
    return library_of([*library_sources([DECLARATIONS]), Source("drawn.uop", text)])


def _is_readable(case: Case) -> bool:
    try:
        library_with([case])
    except InputError:
        return False
    return True

"""The library as files: `THEME.rules` and its certificates. Equal rules give equal texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...index.library import Library
from ...prove.answer import Obligation, Proved
from ...syntax.diagnostic import fail
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.span import Source
from ..certificate import certificates_path, certify, render_certificates
from ..rulebook import prove_one
from .proof_cache import make_folder, write_file
from .rule_text import rules_text
from .selection import Kept

MADE = "Written by `unityc rules generate`, proved, none derived from the others within the bound of docs/rules.md."


@dataclass(frozen=True)
class ThemeFile:
    """The rules of one theme as text, with their certificates."""

    theme: str
    rules: str
    certificates: str
    count: int


def theme_files(kept: Iterable[Kept], about: Mapping[str, str], library: Library) -> tuple[ThemeFile, ...]:
    """The files of named rules, with themes and rules in alphabetical order."""
    themes: dict[str, list[Kept]] = {}
    for one in sorted(kept, key=lambda one: (one.theme, one.rule.name)):
        themes.setdefault(one.theme, []).append(one)
    return tuple(_theme_file(theme, rules, about.get(theme, ""), library) for theme, rules in themes.items())


def _theme_file(theme: str, kept: Sequence[Kept], about: str, library: Library) -> ThemeFile:
    header = f"{about}.\n{MADE}" if about else MADE
    text = rules_text([one.rule for one in kept], header)
    # The rules as they will be read, since hashes are computed from the rules in the file.
    rules = parse_rules(Source(f"{theme}.rules", text)).rules
    certificates = [certify(rule, _proof(rule, one, library), library) for rule, one in zip(rules, kept, strict=True)]
    return ThemeFile(theme, text, render_certificates(certificates), len(rules))


def _proof(rule: RuleDecl, kept: Kept, library: Library) -> Proved:
    """The proof of a rule as it is read. It is proved again if the text has local names, because shared expressions are
    then visited first.
    """
    if rule.definitions:
        answer = prove_one(rule, library).answer
        assert isinstance(answer, Proved), rule.name
        return answer
    return Proved(tuple(Obligation(name, statement) for name, statement in kept.examined.obligations), 0, 0.0)


def write_library(files: Sequence[ThemeFile], folder: Path) -> None:
    """Writes `THEME.rules` and `THEME.certificates.json` of every theme. Raises E030."""
    for one in files:
        path = folder / f"{one.theme}.rules"
        write_file(certificates_path(path), one.certificates)
        write_file(path, one.rules)


def is_generated(path: Path) -> bool:
    """Whether a rule file was written by `write_library`."""
    with path.open(encoding="utf-8") as file:
        return any(MADE in line for line, _ in zip(file, range(4), strict=False))


def check_target(folder: Path, themes: Sequence[str]) -> None:
    """Raises E030 if a handwritten rule file would be replaced, or if the folder cannot be made."""
    make_folder(folder)
    for theme in themes:
        path = folder / f"{theme}.rules"
        if path.exists() and not is_generated(path):
            help = "give the theme another name in the table, or another folder with `-o`"
            raise fail("E030", f"`{path}` was not written by `unityc rules generate`, and is kept", help=help)

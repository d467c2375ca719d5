"""From a signature table to the files of a library: contexts, candidates, selection, names, texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

from ... import __version__
from ...index.library import Library
from ...resources import folder
from ...syntax.canonical_text import canonical_text
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.read import read_source
from ...syntax.span import Source
from ..certificate import called_names, certificates_path, certified, known_certificates
from ..derivation.commutativity import commutative_operators, exchange_rule
from ..derivation.derivability import Bound
from ..enumeration.candidates import candidates
from ..enumeration.context import Context, contexts
from ..enumeration.signature_table import SignatureTable
from ..process_map import process_map
from ..wellformed import read_rules
from .canonical_rule import rule_digest
from .library_files import ThemeFile, is_generated, theme_files
from .proof_cache import Examiner, make_folder, write_file
from .rule_names import rule_names
from .rule_text import rules_text
from .selection import LIBRARY_BOUND, Progress, Selection, renamed

FORMAT = 2


@dataclass(frozen=True)
class Enumerated:
    """The candidates of a context, its counts, and the processor seconds of its enumeration."""

    rules: tuple[RuleDecl, ...]
    counts: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class ThemeCounts:
    """The number of a theme's contexts, the counts summed over them, and the processor seconds of the enumeration."""

    contexts: int
    enumerated: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Generation:
    """The files of a library, the counts of all stages, the counts of each theme before the selection, the refuted
    rules, the rules that were not proved, and the processor seconds of each examination.
    """

    files: tuple[ThemeFile, ...]
    counts: Mapping[str, int]
    themes: Mapping[str, ThemeCounts]
    refuted: tuple[RuleDecl, ...]
    not_proved: tuple[RuleDecl, ...]
    seconds: tuple[float, ...]


def known_rules(library: Library, themes: Collection[str] | None) -> tuple[RuleDecl, ...]:
    """The shipped rules that are well formed and certified; with `themes`, without the rules in generated files of
    these themes.
    """
    found: list[RuleDecl] = []
    for path in sorted(folder("rules").glob("*.rules")):
        if themes is None or path.stem not in themes or not is_generated(path):
            certificates = known_certificates(certificates_path(path))
            rules, _ = read_rules(read_source(path), library, certificates)
            found += [rule for rule in rules if certified(rule, library, certificates)]
    return tuple(found)


@dataclass
class Generator:
    """Generates with `processes` processes. `folder` stores finished work: one file per context and one per proved
    batch.

    With `only`, each rule contains that operator. `known` rules are used for derivations but not written.
    """

    library: Library
    processes: int = 1
    folder: Path | None = None
    only: str | None = None
    bound: Bound = LIBRARY_BOUND
    known: Sequence[RuleDecl] = ()
    progress: Progress = field(default=lambda what, done, whole: None)

    def run(self, table: SignatureTable) -> Generation:
        """Raises E509 for a table that does not fit the library, E030 if the folder cannot be written."""
        if self.folder is not None:
            make_folder(self.folder)
        asked = contexts(table, self.library, frozenset() if self.only is None else frozenset({self.only}))
        made = list(zip(asked, self._enumerated(asked), strict=True))
        found: dict[str, list[RuleDecl]] = {}
        for context, one in made:
            found.setdefault(context.theme, []).extend(one.rules)
        if self.only is not None:
            found = {
                theme: [rule for rule in rules if self.only in called_names(rule)] for theme, rules in found.items()
            }
        themes = {name: _counted([one for context, one in made if context.theme == name]) for name in found}
        return self._selected(found, themes, {theme.name: theme.about for theme in table.themes})

    # ------------------------------------------------------------------------------------------ candidates

    def _enumerated(self, asked: Sequence[Context]) -> Iterator[Enumerated]:
        """The candidates of each context, in order. Contexts that are not stored in the folder are enumerated now."""
        paths = list(map(self._path, asked))
        known = {place: made for place, path in enumerate(paths) if path and (made := _read(path)) is not None}
        missing = [place for place in range(len(asked)) if place not in known]
        with closing(process_map(self._enumerate, [asked[place] for place in missing], self.processes)) as fresh:
            for place in range(len(asked)):
                self.progress("enumerated", place, len(asked))
                yield known.pop(place) if place in known else next(fresh)

    def _enumerate(self, context: Context) -> Enumerated:
        """The candidates of a context. The process that finds them stores them in the folder."""
        begun = process_time()
        found = candidates(context, self.library)
        made = Enumerated(tuple(found.candidates), asdict(found.counts), process_time() - begun)
        path = self._path(context)
        if path is not None:
            write_file(path, _text(context, made))
        return made

    def _path(self, context: Context) -> Path | None:
        if self.folder is None:
            return None
        digest = sha256(f"{context.digest} {self._library_digest} {__version__}".encode()).hexdigest()[:16]
        return self.folder / f"context-{context.theme}-{digest}.json"

    @property
    def _library_digest(self) -> str:
        if not hasattr(self, "_known_digest"):
            groups = (self.library.operators, self.library.parallels, self.library.functions)
            texts = [canonical_text(group[name]) for group in groups for name in sorted(group)]
            self._known_digest = sha256("\n".join(texts).encode()).hexdigest()
        return self._known_digest

    # ------------------------------------------------------------------------------------------ selection

    def _selected(
        self, found: Mapping[str, list[RuleDecl]], themes: Mapping[str, ThemeCounts], about: Mapping[str, str]
    ) -> Generation:
        names = {name for rules in found.values() for rule in rules for name in called_names(rule)}
        commutative = commutative_operators(sorted(names), self.library)
        first: dict[str, str] = {}
        for theme, rules in found.items():
            for name in sorted({name for rule in rules for name in called_names(rule)}):
                if name in commutative and self.only in (None, name):
                    first.setdefault(name, theme)
        selection = Selection(
            self.library,
            commutative,
            Examiner(self.library, self.processes, self.folder),
            self.progress,
            self.bound,
        )
        # Derivations use commutativity without a step, so the rules that state it belong to the library.
        said = {rule_digest(rule, self.library) for rule in self.known}
        exchanged = [(theme, exchange_rule(name)) for name, theme in first.items()]
        exchanged = [one for one in exchanged if rule_digest(one[1], self.library) not in said]
        kept = selection.run(found, self.known, exchanged)
        taken = {rule.name for rule in self.known}
        named = list(renamed(kept, rule_names([one.rule for one in kept], taken, self.library)))
        return Generation(
            theme_files(named, about, self.library),
            {**_totals(themes.values()), **selection.counts},
            themes,
            tuple(selection.refuted),
            tuple(selection.open),
            tuple(selection.seconds),
        )


# ---------------------------------------------------------------------------------------------- counts


def _counted(contexts: Sequence[Enumerated]) -> ThemeCounts:
    """The sums of a theme's contexts."""
    total = Counter[str]()
    for one in contexts:
        total.update(one.counts)
    return ThemeCounts(len(contexts), dict(total), sum(one.seconds for one in contexts))


def _totals(themes: Iterable[ThemeCounts]) -> dict[str, int]:
    """The sums over all themes, such as `enumerated candidates`."""
    total = Counter[str]()
    for theme in themes:
        total.update({"contexts": theme.contexts})
        total.update({f"enumerated {what}": count for what, count in theme.enumerated.items()})
    return dict(total)


# ---------------------------------------------------------------------------------------------- files


def _text(context: Context, made: Enumerated) -> str:
    rules = [replace(rule, name=f"candidate_{place}") for place, rule in enumerate(made.rules)]
    entry = {
        "format": FORMAT,
        "context": context.text,
        "counts": dict(made.counts),
        "seconds": round(made.seconds, 3),
        "rules": rules_text(rules),
    }
    return json.dumps(entry, indent=1) + "\n"


def _read(path: Path) -> Enumerated | None:
    """The candidates in a file; None if it is missing or damaged."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return None
        counts = {str(what): int(count) for what, count in data["counts"].items()}
        rules = parse_rules(Source(str(path), data["rules"])).rules if data["rules"].strip() else ()
        return Enumerated(rules, counts, float(data["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return None

"""Records which declarations were tried, by hash of their content: those that ship, and the user's own in a cache.

`rules/declarations.json` says which texts of `ops/` were tried, so that a compile needs no torch for them. What it does
not know is tried once and remembered in the user's cache folder. Both are records and no signatures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from ... import __version__
from ...resources import folder
from ...syntax.ast import Apply, FunctionDecl, OperatorDecl
from ...syntax.canonical_text import canonical_text, syntax_nodes
from ...syntax.span import Source

TRIALS = 1
"""The version of the trials: raised when they find more, so that what passed before is tried again."""
NAME = "declarations.json"
CACHE = "XDG_CACHE_HOME"

Functions = Mapping[str, FunctionDecl]


@dataclass(frozen=True)
class TrialRecord:
    """The texts that were tried together, by file name, and every declaration in them, each with its hash."""

    texts: Mapping[str, str]
    declarations: Mapping[str, str]
    trials: int = TRIALS

    def to_text(self) -> str:
        """JSON with one hash a line."""
        return (
            json.dumps(
                {"trials": self.trials, "texts": dict(self.texts), "declarations": dict(self.declarations)}, indent=1
            )
            + "\n"
        )


def record_of(
    sources: Iterable[Source], declarations: Iterable[FunctionDecl | OperatorDecl], functions: Functions
) -> TrialRecord:
    """The record of texts whose declarations have all passed."""
    texts = {Path(source.name).name: _text_hash(source) for source in sources}
    hashes = {_called(one): content_hash(one, functions) for one in declarations}
    return TrialRecord(dict(sorted(texts.items())), dict(sorted(hashes.items())))


def read_record(text: str) -> TrialRecord:
    """A record; an empty one where the text is none, or where other trials made it."""
    try:
        found = json.loads(text)
        if found["trials"] == TRIALS:
            return TrialRecord(dict(found["texts"]), dict(found["declarations"]))
    except (ValueError, KeyError, TypeError):
        pass
    return TrialRecord({}, {})


@cache
def shipped_record() -> TrialRecord:
    """What `rules/declarations.json` says."""
    path = folder("rules") / NAME
    return read_record(path.read_text(encoding="utf-8")) if path.is_file() else TrialRecord({}, {})


def texts_tried(sources: Iterable[Source]) -> bool:
    """Whether all of these texts are as they were when they were tried before they shipped."""
    texts = shipped_record().texts
    return all(texts.get(Path(source.name).name) == _text_hash(source) for source in sources)


def is_tried(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> bool:
    """Whether a declaration of this content has passed, before it shipped or on this machine."""
    found = content_hash(declaration, functions)
    return shipped_record().declarations.get(_called(declaration)) == found or (_cache_folder() / found).is_file()


def remember(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> None:
    """Note in the cache that a declaration has passed. Where that cannot be written it is tried again next time."""
    place = _cache_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        # An empty file is there at once, or not at all.
        os.close(os.open(place / content_hash(declaration, functions), os.O_CREAT | os.O_WRONLY, 0o644))
    except OSError:
        pass


def content_hash(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> str:
    """SHA-256 over a declaration and every element function that it reaches, without facts: these are tried always."""
    reached: dict[str, FunctionDecl] = {}
    pending = [declaration]
    while pending:
        for node in syntax_nodes(_without_facts(pending.pop())):
            if isinstance(node, Apply) and node.function in functions and node.function not in reached:
                reached[node.function] = functions[node.function]
                pending.append(functions[node.function])
    texts = [canonical_text(_without_facts(one)) for one in (declaration, *(reached[name] for name in sorted(reached)))]
    return sha256("\n".join(texts).encode()).hexdigest()


def _without_facts(declaration: FunctionDecl | OperatorDecl) -> FunctionDecl | OperatorDecl:
    return replace(declaration, facts=()) if isinstance(declaration, FunctionDecl) else declaration


def _called(declaration: FunctionDecl | OperatorDecl) -> str:
    return f"{'fn' if isinstance(declaration, FunctionDecl) else 'op'} {declaration.name}"


def _text_hash(source: Source) -> str:
    return sha256(source.text.encode()).hexdigest()


def _cache_folder() -> Path:
    """Where the user's own are noted: by version of this package, of the trials, of torch and of NumPy."""
    given = os.environ.get(CACHE, "")
    base = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".cache"
    versions = f"{__version__}-{TRIALS}-torch-{version('torch')}-numpy-{version('numpy')}"
    return base / "unity-dsl" / "declarations" / versions

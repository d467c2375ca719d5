"""Records which declarations were tested, by hash of their content: the shipped ones, and the user's own in a cache.

`rules/declarations.json` lists the tested texts of `ops/`, so that a compile needs no torch for them. Any other
declaration is tested once and recorded in the user's cache folder. Both are records, not signatures.
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

TRIALS = 2
"""The version of the tests. It is incremented when they find more, so that all declarations are tested again."""
NAME = "declarations.json"
CACHE = "XDG_CACHE_HOME"

Functions = Mapping[str, FunctionDecl]


@dataclass(frozen=True)
class TrialRecord:
    """The texts that were tested together, by file name, and their declarations, each with its hash."""

    texts: Mapping[str, str]
    declarations: Mapping[str, str]
    trials: int = TRIALS

    def to_text(self) -> str:
        """JSON with one hash per line."""
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
    """A record; an empty one if the text is no record, or of another version of the tests."""
    try:
        found = json.loads(text)
        if found["trials"] == TRIALS:
            return TrialRecord(dict(found["texts"]), dict(found["declarations"]))
    except (ValueError, KeyError, TypeError):
        pass
    return TrialRecord({}, {})


@cache
def shipped_record() -> TrialRecord:
    """The record in `rules/declarations.json`; empty if there is no such file."""
    path = folder("rules") / NAME
    return read_record(path.read_text(encoding="utf-8")) if path.is_file() else TrialRecord({}, {})


def texts_tried(sources: Iterable[Source]) -> bool:
    """Whether all of these texts are unchanged since they were tested for release."""
    texts = shipped_record().texts
    return all(texts.get(Path(source.name).name) == _text_hash(source) for source in sources)


def makes_claims(declaration: FunctionDecl | OperatorDecl) -> bool:
    """Whether it claims something that is tested: a function, a `torch:` line, or a range of integer results."""
    if isinstance(declaration, FunctionDecl) or declaration.torch is not None:
        return True
    return any(output.integer_range is not None for output in declaration.outputs)


def is_tried(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> bool:
    """Whether a declaration of this content has passed, before release or on this machine."""
    found = content_hash(declaration, functions)
    return shipped_record().declarations.get(_called(declaration)) == found or (_cache_folder() / found).is_file()


def remember(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> None:
    """Records in the cache that a declaration has passed; does nothing if the cache cannot be written."""
    _record(content_hash(declaration, functions))


def _record(name: str) -> None:
    place = _cache_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        # creating an empty file is atomic
        os.close(os.open(place / name, os.O_CREAT | os.O_WRONLY, 0o644))
    except OSError:
        pass


def facts_tried(function: FunctionDecl, functions: Functions) -> bool:
    """Whether facts of this content have passed on this machine."""
    return (_cache_folder() / _facts_hash(function, functions)).is_file()


def remember_facts(function: FunctionDecl, functions: Functions) -> None:
    """Records in the cache that the facts of a function have passed."""
    _record(_facts_hash(function, functions))


def _facts_hash(function: FunctionDecl, functions: Functions) -> str:
    """SHA-256 over a function with its facts and all functions by which they can be evaluated."""
    texts = [canonical_text(function), *(canonical_text(_without_facts(functions[name])) for name in sorted(functions))]
    return sha256("\n".join(("facts", *texts)).encode()).hexdigest()


def content_hash(declaration: FunctionDecl | OperatorDecl, functions: Functions) -> str:
    """SHA-256 over a declaration and the element functions that it reaches, without facts (`_facts_hash`)."""
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
    """The cache folder, by version of this package, of the tests, of torch and of NumPy."""
    given = os.environ.get(CACHE, "")
    base = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".cache"
    versions = f"{__version__}-{TRIALS}-torch-{version('torch')}-numpy-{version('numpy')}"
    return base / "unity-dsl" / "declarations" / versions

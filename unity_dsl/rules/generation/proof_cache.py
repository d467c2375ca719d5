"""Examines rules in several processes and stores the outcomes in a folder, so that no finished work is repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...index.library import Library
from ...prove.version import PROVER, solver_version
from ...syntax.diagnostic import InputError, fail
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.span import Source
from ..certificate import called_names, reached_hashes
from ..process_map import process_map
from .canonical_rule import rule_digest
from .examination import Examined, examine
from .rule_text import rule_text

FORMAT = 2


@dataclass
class Examiner:
    """Examines rules with `processes` processes. Outcomes that are stored in `folder` are reused."""

    library: Library
    processes: int = 1
    folder: Path | None = None
    conditions: bool = True
    known: dict[str, Examined] = field(default_factory=dict)
    fresh: int = 0

    def __post_init__(self) -> None:
        if self.folder is not None:
            make_folder(self.folder)
            for path in sorted(self.folder.glob("proofs-*.json")):
                self.known |= _read(path)

    def __call__(self, rules: Sequence[RuleDecl]) -> list[Examined]:
        keys = [self._key(rule) for rule in rules]
        asked = {key: rule for key, rule in zip(keys, rules, strict=True) if key not in self.known}
        # Outcomes pass through JSON, so that nothing depends on whether the folder had them.
        with closing(process_map(self._examine, list(asked.values()), self.processes)) as examined:
            found = (_from_json(_to_json(one)) for one in examined)
            made = dict(zip(asked, found, strict=True))
        self.fresh += len(made)
        self.known |= made
        if made and self.folder is not None:
            _write(self.folder, made)
        return [self.known[key] for key in keys]

    def _examine(self, rule: RuleDecl) -> Examined:
        return examine(rule, self.library, conditions=self.conditions)

    def _key(self, rule: RuleDecl) -> str:
        """A hash of everything that the outcome depends on."""
        reached = sorted(reached_hashes(called_names(rule), self.library).items())
        parts = [rule_digest(rule, self.library), reached, PROVER, solver_version(), self.conditions]
        return sha256(json.dumps(parts).encode()).hexdigest()[:32]


# ---------------------------------------------------------------------------------------------- files


def make_folder(folder: Path) -> None:
    """Raises E030 if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail("E030", f"cannot write `{folder}`: {error.strerror or error}") from None


def write_file(path: Path, text: str) -> None:
    """Writes a file in one step, so that an interruption leaves no incomplete file. Raises E030."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise fail("E030", f"cannot write `{path}`: {error.strerror or error}") from None


def _write(folder: Path, made: Mapping[str, Examined]) -> None:
    entries = {key: _to_json(examined) for key, examined in made.items()}
    name = sha256("".join(sorted(made)).encode()).hexdigest()[:16]
    write_file(folder / f"proofs-{name}.json", json.dumps({"format": FORMAT, "proofs": entries}, indent=1) + "\n")


def _read(path: Path) -> dict[str, Examined]:
    """The outcomes in a file; none if it is damaged, so that they are computed again."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return {}
        return {key: _from_json(entry) for key, entry in data["proofs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return {}


def _to_json(examined: Examined) -> dict[str, Any]:
    return {
        "rule": None if examined.rule is None else rule_text(examined.rule),
        "status": examined.status,
        "obligations": [list(pair) for pair in examined.obligations],
        "seconds": round(examined.seconds, 4),
    }


def _from_json(entry: Mapping[str, Any]) -> Examined:
    text = entry["rule"]
    rule = None
    if text is not None:
        (rule,) = parse_rules(Source("proofs", text)).rules
    obligations = tuple((str(name), str(statement)) for name, statement in entry["obligations"])
    return Examined(rule, str(entry["status"]), obligations, float(entry["seconds"]))

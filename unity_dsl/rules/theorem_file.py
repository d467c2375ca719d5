"""Reads and writes the file of sharding theorems: JSON, one theorem per line.

Refused claims, which this prover could not prove, are stored too, so that they are not tried again.

A theorem's key hashes everything that its proof depends on, so theorems about a changed declaration are never found. A
file of another version of the prover or of z3 is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..prove.answer import ASSUMED
from ..prove.version import PROVER, solver_version
from ..resources import folder

NAME = "configurations.json"
_ASSUMED = f"{ASSUMED}: "


@dataclass(frozen=True)
class StoredTheorem:
    """A proved theorem: the operator, the statement, and the obligations discharged."""

    operator: str
    statement: str
    obligations: tuple[str, ...]

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumed facts that the proof depends on."""
        return tuple(text.removeprefix(_ASSUMED) for text in self.obligations if text.startswith(_ASSUMED))


@dataclass(frozen=True)
class TheoremFile:
    """Theorems by key, keys of refused claims, and the versions of the prover and of z3."""

    theorems: Mapping[str, StoredTheorem]
    refused: frozenset[str] = frozenset()
    prover: int = PROVER
    z3: str = ""

    @property
    def stale(self) -> bool:
        return (self.prover, self.z3) != (PROVER, solver_version())

    def to_text(self) -> str:
        """JSON with one theorem per line, in the order of operators and statements."""
        entries = sorted(self.theorems.items(), key=lambda entry: (entry[1].operator, entry[1].statement, entry[0]))
        lines = [
            f"  {json.dumps(key)}: {json.dumps([theorem.operator, theorem.statement, *theorem.obligations])}"
            for key, theorem in entries
        ]
        head = f'"prover": {self.prover},\n "z3": {json.dumps(self.z3)},\n "theorems": '
        refused = ",\n".join(f"  {json.dumps(key)}" for key in sorted(self.refused))
        return "{" + head + "{\n" + ",\n".join(lines) + "\n },\n" + f' "refused": [\n{refused}\n ]\n' + "}\n"


def read_theorems(text: str) -> TheoremFile:
    """The theorems in a file; none if the text is not a theorem file or has other versions."""
    try:
        found = json.loads(text)
        theorems = {key: _stored(entry) for key, entry in found["theorems"].items()}
        refused = frozenset(map(_key, found["refused"]))
        file = TheoremFile(theorems, refused, found["prover"], found["z3"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return TheoremFile({})
    return TheoremFile({}) if file.stale else file


def _key(entry: Any) -> str:
    if not isinstance(entry, str):
        raise ValueError("a key is a text")
    return entry


def _stored(entry: Any) -> StoredTheorem:
    operator, statement, *obligations = entry
    if not obligations or not all(isinstance(part, str) for part in entry):
        raise ValueError("a theorem is a list of texts, the last of them its obligations")
    return StoredTheorem(operator, statement, tuple(obligations))


@cache
def shipped_theorems() -> TheoremFile:
    """The theorems about the shipped operators; none if the file is missing or stale."""
    try:
        return read_theorems((folder("rules") / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return TheoremFile({})

"""Certificates of rules: written, read, and found stale when a declaration or a recorded version has changed.

`X.certificates.json` lies next to `X.rules`. A certificate is valid while the hashes of everything that the proof
depends on are unchanged: the rule, every declaration that it reaches, the versions of the prover and of z3. Otherwise
the rule is proved again. A certificate is a record, not a signature: anyone who can write the file can forge one.
`unityc rules verify` proves every rule again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..index.library import LIBRARIES, Library
from ..prove.answer import ASSUMED, Proved
from ..prove.version import PROVER, solver_version
from ..syntax.ast import Apply
from ..syntax.canonical_text import canonical_text, syntax_nodes
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_rules import GraphCall, GraphView, RuleDecl
from ..syntax.read import read_bytes

FORMAT = 1
SUFFIX = ".certificates.json"
MAX_BYTES = 8 << 20
"""Size limit of a certificate file, enough for some thousand rules."""
RULE = "rule"
"""The key of the rule itself among the declarations of its certificate."""
FACTS = "facts"
"""The key of all facts about element functions, which the prover may use in any proof."""
AGAIN = "`unityc rules prove FILE --write` proves the rules again and writes their certificates"


@dataclass(frozen=True)
class Certificate:
    """The record that a rule was proved.

    `declarations` are the dependencies of the proof, each with its hash; `obligations` are pairs of name and statement.
    """

    name: str
    declarations: Mapping[str, str]
    obligations: tuple[tuple[str, str], ...]
    prover: int
    z3: str

    @property
    def hash(self) -> str:
        """SHA-256 over all other fields."""
        content = [self.name, sorted(self.declarations.items()), self.obligations, self.prover, self.z3]
        return sha256(json.dumps(content).encode()).hexdigest()

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumed facts that the proof depends on."""
        return tuple(statement for name, statement in self.obligations if name == ASSUMED)


def certify(rule: RuleDecl, proved: Proved, library: Library) -> Certificate:
    """The certificate of a proof."""
    obligations = tuple((obligation.name, obligation.statement) for obligation in proved.obligations)
    return Certificate(rule.name, rule_declarations(rule, library), obligations, PROVER, solver_version())


def certified(rule: RuleDecl, library: Library, certificates: Mapping[str, Certificate]) -> bool:
    """Whether a valid certificate makes a new proof unnecessary."""
    found = certificates.get(rule.name)
    return found is not None and stale_reason(rule, library, found) is None


def stale_reason(rule: RuleDecl, library: Library, certificate: Certificate) -> str | None:
    """Why a certificate is not valid for a rule; None if it is valid."""
    if certificate.name != rule.name:
        return f"it is that of `{certificate.name}`"
    if certificate.prover != PROVER:
        return f"it is of version {certificate.prover} of the prover, this is version {PROVER}"
    if certificate.z3 != solver_version():
        return f"it was made with z3 {certificate.z3}, this is z3 {solver_version()}"
    expected = rule_declarations(rule, library)
    if certificate.declarations.get(RULE) != expected[RULE]:
        return "the rule has changed since"
    differ = [name for name in expected if certificate.declarations.get(name) != expected[name]]
    differ += [name for name in certificate.declarations if name not in expected]
    return f"`{differ[0]}` has changed since" if differ else None


# ---------------------------------------------------------------------------------------------- hashes


def rule_declarations(rule: RuleDecl, library: Library) -> dict[str, str]:
    """The hashes of the rule and of every declaration that it reaches, by kind and name: `op linear`, `fn relu`."""
    return {RULE: _hash(canonical_text(rule)), **reached_hashes(called_names(rule), library)}


def called_names(rule: RuleDecl) -> frozenset[str]:
    """The operators and parallel ops that a rule calls. A view outside a call counts as a call of `rearrange`."""
    nodes = list(syntax_nodes(rule))
    names = {node.name for node in nodes if isinstance(node, GraphCall)}
    return frozenset(names | ({"rearrange"} if any(isinstance(node, GraphView) for node in nodes) else set()))


def reached_hashes(names: Iterable[str], library: Library) -> dict[str, str]:
    """The hashes of these declarations and of the element functions that they use, by kind and name.

    `facts` hashes all facts stated about element functions, wherever they are used. An unknown name is recorded as
    `absent`, since no proof can depend on it.
    """
    hashes = {FACTS: _facts(library)}
    pending = [f"{kind} {name}" for name in names for kind in _known_as(name, library)]
    while pending:
        name = pending.pop()
        if name in hashes:
            continue
        declared = _declared(library, name)
        hashes[name] = "" if declared is None else declared.hash
        pending += [] if declared is None else [f"fn {used}" for used in declared.uses]
    return hashes


@dataclass(frozen=True)
class _Declared:
    """The hash of a declaration, and the element functions that it uses."""

    hash: str
    uses: frozenset[str]


@lru_cache(maxsize=1024)
def _declared(library: Library, name: str) -> _Declared | None:
    """A declaration of a library by kind and name, such as `op linear`."""
    kind, _, own = name.partition(" ")
    found = _groups(library).get(kind, {}).get(own)
    return None if found is None else _Declared(_hash(canonical_text(found)), _functions_used(found, library))


@lru_cache(maxsize=LIBRARIES)
def _facts(library: Library) -> str:
    """The hash of all facts that are stated about element functions."""
    stating = [function for function in library.functions.values() if function.facts]
    return _hash(canonical_text(tuple(sorted(stating, key=lambda function: function.name))))


def _groups(library: Library) -> Mapping[str, Mapping[str, object]]:
    return {"op": library.operators, "parallel": library.parallels, "fn": library.functions}


def _known_as(name: str, library: Library) -> list[str]:
    return [kind for kind, group in _groups(library).items() if name in group] or ["absent"]


def _functions_used(declaration: object, library: Library) -> frozenset[str]:
    nodes = (node for node in syntax_nodes(declaration) if isinstance(node, Apply))
    return frozenset(node.function for node in nodes if node.function in library.functions)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------------------------------------- files


def certificates_path(rules: Path) -> Path:
    """The certificate file that belongs to a rule file."""
    return rules.with_name(rules.name.removesuffix(".rules") + SUFFIX)


def render_certificates(certificates: Iterable[Certificate]) -> str:
    """The text of a certificate file, sorted by the names of the rules."""
    rules = {
        certificate.name: {
            "declarations": dict(certificate.declarations),
            "hash": certificate.hash,
            "obligations": [f"{name}: {statement}" for name, statement in certificate.obligations],
            "prover": certificate.prover,
            "z3": certificate.z3,
        }
        for certificate in certificates
    }
    return json.dumps({"format": FORMAT, "rules": rules}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def known_certificates(path: Path) -> dict[str, Certificate]:
    """The certificates of a file. A missing or damaged file gives none, so its rules are proved again."""
    try:
        return read_certificates(path)
    except InputError:
        return {}


def read_certificates(path: Path) -> dict[str, Certificate]:
    """The certificates of a file, by rule. Raises E543 if the file cannot be read, E544 if it is damaged."""
    try:
        data = read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise fail("E543", f"no certificates in {path}: {reason[0].lower()}{reason[1:]}", help=AGAIN) from None
    try:
        return _read(data)
    except _Damaged as error:
        raise fail("E544", f"{path}: {error}", help=AGAIN) from None


class _Damaged(Exception):
    """The text is not a valid certificate file; the first argument says where."""


def _read(data: bytes) -> dict[str, Certificate]:
    if len(data) > MAX_BYTES:
        raise _Damaged(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(data.decode(), object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        raise _Damaged("it is not JSON") from None
    top = _table(document, "the file", ("format", "rules"))
    if top["format"] != FORMAT or isinstance(top["format"], bool):
        raise _Damaged(f"it has format {top['format']!r:.20}, this version reads format {FORMAT}")
    rules = _table(top["rules"], "`rules`")
    return {name: _certificate(name, entry) for name, entry in rules.items()}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Damaged(f"`{name}` stands in it twice")
        found[name] = value
    return found


def _certificate(name: str, entry: object) -> Certificate:
    where = f"the certificate of `{name}`"
    table = _table(entry, where, ("declarations", "hash", "obligations", "prover", "z3"))
    declarations = _table(table["declarations"], f"`declarations` in {where}")
    obligations = table["obligations"]
    if not isinstance(obligations, list):
        raise _Damaged(f"`obligations` in {where} is not a list")
    pairs = [_text(text, f"`obligations` in {where}").partition(": ") for text in obligations]
    found = Certificate(
        name,
        {key: _text(value, f"`{key}` in {where}") for key, value in declarations.items()},
        tuple((first, second) for first, _, second in pairs),
        _number(table["prover"], f"`prover` in {where}"),
        _text(table["z3"], f"`z3` in {where}"),
    )
    if table["hash"] != found.hash:
        raise _Damaged(f"{where} was changed: its hash is not that of what it holds")
    return found


def _table(value: object, where: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Damaged(f"{where} is not a table")
    if keys is not None and set(value) != set(keys):
        raise _Damaged(f"{where} does not have just {', '.join(f'`{key}`' for key in keys)}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _Damaged(f"{where} is not a text")
    return value


def _number(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Damaged(f"{where} is not a number")
    return value

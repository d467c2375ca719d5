"""Checks certificates against new proofs of the rules: `unityc rules verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..index.library import Library
from ..prove.answer import Proved
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_rules import parse_rules
from ..syntax.span import Source
from .certificate import AGAIN, Certificate, certificates_path, certify, read_certificates, stale_reason
from .rulebook import Verdict
from .wellformed import read_rules


def certificate_faults(
    path: Path, source: Source, library: Library
) -> tuple[Mapping[str, Certificate], tuple[InputError, ...]]:
    """The certificates that belong to a rule file, and their faults. Ill-formed rules are skipped.

    E543 if there is no certificate file, E544 if it is damaged. Otherwise E545 for each certificate that is stale or
    belongs to a missing rule.
    """
    try:
        found = read_certificates(certificates_path(path))
    except InputError as fault:
        return {}, (fault,)
    faults = []
    rules, _ = read_rules(source, library, found)
    for rule in rules:
        reason = stale_reason(rule, library, found[rule.name]) if rule.name in found else None
        if reason is not None:
            faults.append(fail("E545", f"the certificate of `{rule.name}` is stale: {reason}", rule.span, help=AGAIN))
    for name in sorted(set(found) - {rule.name for rule in parse_rules(source).rules}):
        message = f"{certificates_path(path)} has a certificate of `{name}`, a rule that is not there"
        faults.append(fail("E545", message, help=AGAIN))
    return found, tuple(faults)


def proof_faults(
    verdicts: Sequence[Verdict], library: Library, certificates: Mapping[str, Certificate]
) -> Iterator[InputError]:
    """Differences between new proofs and certificates: E543 for a proof without a certificate, E545 if the certificate
    does not match the proof.
    """
    for verdict in verdicts:
        if not isinstance(verdict.answer, Proved):
            continue
        name = verdict.rule.name
        if name not in certificates:
            yield fail("E543", f"there is no certificate of the rule `{name}`", verdict.rule.span, help=AGAIN)
        elif certify(verdict.rule, verdict.answer, library) != certificates[name]:
            message = f"the certificate of `{name}` is not that of its proof: the obligations differ"
            yield fail("E545", message, verdict.rule.span, help=AGAIN)

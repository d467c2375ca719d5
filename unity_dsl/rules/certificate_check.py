"""Checks certificates against rules proved anew: `unityc rules verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..index.library import Library
from ..prove.answer import Proved
from ..syntax.diagnostic import fail
from ..syntax.parse_rules import parse_rules
from ..syntax.span import Source
from .certificate import AGAIN, Certificate, certificates_path, certify, read_certificates, stale_reason
from .rulebook import Verdict
from .wellformed import read_rules


def check_certificates(path: Path, source: Source, library: Library) -> Mapping[str, Certificate]:
    """The certificates beside a file of rules, all of them valid. Ill-formed rules are skipped.

    Raises E543 where there are none, E544 where the file is damaged, E545 where one is stale.
    """
    found = read_certificates(certificates_path(path))
    rules, _ = read_rules(source, library)
    for rule in rules:
        reason = stale_reason(rule, library, found[rule.name]) if rule.name in found else None
        if reason is not None:
            raise fail("E545", f"the certificate of `{rule.name}` is stale: {reason}", rule.span, help=AGAIN)
    left_over = sorted(set(found) - {rule.name for rule in parse_rules(source).rules})
    if left_over:
        message = f"{certificates_path(path)} has a certificate of `{left_over[0]}`, a rule that is not there"
        raise fail("E545", message, help=AGAIN)
    return found


def check_proofs(verdicts: Sequence[Verdict], library: Library, certificates: Mapping[str, Certificate]) -> None:
    """Compares new proofs with certificates. Raises E543 for a proved rule without one, E545 for a different proof."""
    for verdict in verdicts:
        if not isinstance(verdict.answer, Proved):
            continue
        name = verdict.rule.name
        if name not in certificates:
            raise fail("E543", f"there is no certificate of the rule `{name}`", verdict.rule.span, help=AGAIN)
        if certify(verdict.rule, verdict.answer, library) != certificates[name]:
            message = f"the certificate of `{name}` is not that of its proof: the obligations differ"
            raise fail("E545", message, verdict.rule.span, help=AGAIN)

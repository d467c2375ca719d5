"""A rule that a search may apply."""

from __future__ import annotations

from dataclasses import dataclass

from ..syntax.parse_rules import RuleDecl


@dataclass(frozen=True)
class AcceptedRule:
    """A proved rule, and the assumed facts that its proof depends on."""

    rule: RuleDecl
    assumed: tuple[str, ...] = ()

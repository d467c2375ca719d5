"""The reverse of a rule: what has to be proved as well for both sides to have values at the same places."""

from __future__ import annotations

from dataclasses import replace

from ...syntax.parse_rules import RuleDecl


def reverse_of(rule: RuleDecl) -> RuleDecl:
    """`right => left` for `left => right`."""
    return replace(rule, left=rule.right, right=rule.left)

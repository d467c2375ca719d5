"""The reverse of a rule: if it is proved as well, both sides are defined at the same places."""

from __future__ import annotations

from dataclasses import replace

from ...syntax.parse_rules import RuleDecl


def reverse_of(rule: RuleDecl) -> RuleDecl:
    """`right => left` for `left => right`."""
    return replace(rule, left=rule.right, right=rule.left)

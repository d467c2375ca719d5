"""A substitution that may hold only in part, as text, and the rule that the text gives."""

from __future__ import annotations

from dataclasses import dataclass

from ...index.library import Library
from ...prove.translation.rule_results import by_results
from ...syntax.parse_rules import RuleDecl, parse_rules
from ...syntax.span import Source


@dataclass(frozen=True)
class Candidate:
    """`left => right` as texts of a rule: its inputs, conditions and local names, and one text per output for each
    side.
    """

    name: str
    inputs: str
    conditions: tuple[str, ...]
    definitions: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    doc: str = ""

    @property
    def text(self) -> str:
        """The rule in the notation of `.rules`."""
        lines = [f"## {self.doc}"] if self.doc else []
        lines.append(f"rule {self.name}({self.inputs})")
        if self.conditions:
            lines.append(f"  where {', '.join(self.conditions)}")
        lines += [f"  {definition}" for definition in self.definitions]
        lines.append(f"  {', '.join(self.left)} => {', '.join(self.right)}")
        return "\n".join(lines) + "\n"

    def rule(self, library: Library) -> RuleDecl:
        """The rule with one tensor per output. Raises InputError."""
        (rule,) = parse_rules(Source(f"{self.name}.rules", self.text)).rules
        return by_results(rule, library)

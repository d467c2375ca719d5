"""Unfolds operators that are defined by others: rewrites with defining rules, left to right, operands first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...index.library import Library
from ...prove.translation.rule_forms import calls
from ...syntax.parse_rules import RuleDecl
from .finiteness import Finiteness
from .patterns import Pattern, PatternIndex, matched
from .rule_terms import RuleTerms, read_rule
from .terms import Term, Terms


@dataclass
class Unfolding:
    """Proved rules `operator(…) => graph of other operators`, one for each form of an operator's calls.

    A call that no definition matches stays as it is. No definition calls a defined operator on its right side, so
    unfolding terminates.
    """

    library: Library
    finiteness: Finiteness
    patterns: PatternIndex = field(default_factory=PatternIndex)

    @classmethod
    def of(cls, rules: Iterable[RuleDecl], library: Library) -> Unfolding:
        """Raises ValueError for a rule that is not a definition, and Unsupported for one that cannot be
        read as terms.
        """
        found = cls(library, Finiteness(library))
        rules = tuple(rules)
        defined = {call.name for rule in rules for call in calls(replace(rule, right=()))}
        for number, rule in enumerate(rules):
            terms = read_rule(rule, library, Terms(frozenset()))
            pattern = Pattern(terms, number, terms.left, terms.right)
            if len(terms.left) != 1 or not pattern.keeps_inputs or len(terms.left[0].calls) != 1:
                raise ValueError(f"`{rule.name}` does not define one call")
            if any(call.name in defined for call in calls(replace(rule, left=()))):
                raise ValueError(f"`{rule.name}` defines an operator by defined ones")
            found.patterns.add(pattern, commutative=False)
        return found

    def unfolded(self, subject: RuleTerms, bank: Terms) -> RuleTerms:
        """The rule with every call unfolded that a definition matches at the sizes that the rule allows."""
        known: dict[Term, Term] = {}

        def of(term: Term) -> Term:
            if term.head is None:
                return term
            if term not in known:
                call = bank.call(term.head, tuple(map(of, term.children)), term.shape)
                known[term] = next(self._definitions(call, subject, bank), call)
            return known[term]

        return replace(subject, left=tuple(map(of, subject.left)), right=tuple(map(of, subject.right)))

    def _definitions(self, call: Term, subject: RuleTerms, bank: Terms) -> Iterator[Term]:
        for pattern in self.patterns.of(call):
            for (made,) in matched(pattern, (call,), subject, bank, self.finiteness):
                yield made

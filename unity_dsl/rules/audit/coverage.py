"""Which rules of a file follow from a library of proved rules, and why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.translation.rule_forms import calls
from ...syntax.parse_rules import RuleDecl
from ..derivation.commutativity import commutative_operators
from ..derivation.derivability import DEFAULT, Bound, Derivability
from ..derivation.rule_terms import read_rule
from ..derivation.terms import Terms
from ..derivation.unfolding import Unfolding


class Cover(StrEnum):
    """How a rule follows from a library."""

    TRIVIAL = "trivial"
    """Both sides are one term, up to the order of operands that may be exchanged."""
    INCLUDED = "included"
    """It is an instance of one rule of the library."""
    DERIVED = "derived"
    """It is a chain of several."""
    MISSED = "missed"


@dataclass(frozen=True)
class Covered:
    """How a rule follows; `by` are the rules of the library that are used, in order; `reason` why it is missed."""

    name: str
    cover: Cover
    by: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class RuleLibrary:
    """Proved rules to derive others from, and the operators that they speak of."""

    derivability: Derivability
    operators: frozenset[str]

    @classmethod
    def of(cls, rules: Iterable[RuleDecl], library: Library, definitions: Iterable[RuleDecl] = ()) -> RuleLibrary:
        """The library of rules that are proved."""
        rules = tuple(rules)
        operators = frozenset(call.name for rule in rules for call in calls(rule))
        found = Derivability(
            library,
            commutative_operators(sorted(operators | {"add", "mul"}), library),
            Unfolding.of(definitions, library),
        )
        for rule in rules:
            found.add(rule)
        return cls(found, operators)


def coverage(rules: Sequence[RuleDecl], known: RuleLibrary, bound: Bound = DEFAULT) -> Iterator[Covered]:
    """How each of some proved rules follows from a library, searched within a bound."""
    return (_covered(rule, known, bound) for rule in rules)


def _covered(rule: RuleDecl, known: RuleLibrary, bound: Bound) -> Covered:
    steps = known.derivability.derive(rule, bound)
    if steps is None:
        return Covered(rule.name, Cover.MISSED, (), _reason(rule, known, bound))
    by = tuple(step.rule for step in steps)
    return Covered(rule.name, (Cover.TRIVIAL, Cover.INCLUDED)[len(by)] if len(by) < 2 else Cover.DERIVED, by)


def _reason(rule: RuleDecl, known: RuleLibrary, bound: Bound) -> str:
    derivability = known.derivability
    try:
        read_rule(rule, derivability.library, Terms(derivability.commutative))
    except Unsupported as reason:
        return f"it is not read as terms: {reason}"
    others = sorted({call.name for call in calls(rule)} - known.operators - derivability.commutative)
    if others:
        return f"no rule of the library has {', '.join(f'`{name}`' for name in others)}"
    return f"no chain is found in {bound.expansions} expansions"

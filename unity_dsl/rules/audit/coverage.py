"""Determines which rules of a file follow from a library of proved rules, and why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.translation.rule_forms import Ranks, calls, rest_groups
from ...syntax.ast import Name
from ...syntax.parse_rules import RuleDecl, RuleDim, RuleInput
from ...syntax.rule_names import names_in
from ..certificate import called_names
from ..derivation.commutativity import commutative_operators
from ..derivation.derivability import Bound, Derivability
from ..derivation.terms import Terms
from ..derivation.unfolding import Unfolding

BOUND = Bound(expansions=2000, operators=6, together=True, goal_weight=1)
"""Wider than the bound of the generation: rules of defined operators are unfolded to many operators and reordered."""
BOUND_AT_RANKS = replace(BOUND, expansions=200)
"""For rules that are examined at several ranks."""
MOST_DIMS = 4
"""The highest rank of inputs at which a rule with groups is examined."""


class Cover(StrEnum):
    """How a rule follows from a library."""

    TRIVIAL = "trivial"
    """Both sides are the same term, up to definitions and the order of operands of commutative operators."""
    INCLUDED = "included"
    """It is an instance of one rule of the library."""
    DERIVED = "derived"
    """It is a chain of several rules of the library."""
    MISSED = "missed"


@dataclass(frozen=True)
class Covered:
    """How a rule follows. `by` are the rules of the library that are used, in order; `reason` says why it is missed."""

    name: str
    cover: Cover
    by: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class RuleLibrary:
    """Proved rules from which others are derived, and the operators that they contain after unfolding defined ones."""

    derivability: Derivability
    operators: frozenset[str]

    @classmethod
    def of(cls, rules: Iterable[RuleDecl], library: Library, definitions: Iterable[RuleDecl] = ()) -> RuleLibrary:
        """The library of proved rules. A rule with several outputs is also added separately for each output.

        Raises ValueError and Unsupported for a rule in `definitions` that is not a definition.
        """
        rules, definitions = tuple(one for rule in rules for one in _with_single_outputs(rule)), tuple(definitions)
        names = {call.name for rule in (*rules, *definitions) for call in calls(rule)} | {"add", "mul"}
        commutative = commutative_operators(sorted(names), library)
        found = Derivability(library, commutative, Unfolding.of(definitions, library))
        operators: set[str] = set()
        for rule in rules:
            found.add(rule)
            operators |= _operators(rule, found)
        return cls(found, frozenset(operators))

    def lacking(self, rule: RuleDecl) -> frozenset[str]:
        """The operators of a rule that no rule of the library contains."""
        return _operators(rule, self.derivability) - self.operators - self.derivability.commutative


def _with_single_outputs(rule: RuleDecl) -> Iterator[RuleDecl]:
    """The rule; if it has several outputs, also its equation for each one."""
    yield rule
    if len(rule.left) > 1:
        for left, right in zip(rule.left, rule.right, strict=True):
            yield replace(rule, left=(left,), right=(right,))


def coverage(rules: Sequence[RuleDecl], known: RuleLibrary, bound: Bound = BOUND) -> Iterator[Covered]:
    """How each of some proved rules follows from a library, searched within a bound."""
    return (_covered(rule, known, bound) for rule in rules)


def coverage_at_some_rank(
    rules: Sequence[RuleDecl], known: RuleLibrary, bound: Bound = BOUND_AT_RANKS
) -> Iterator[Covered]:
    """Like `coverage`, for rules with groups, each at the ranks of its groups at which it follows in the fewest steps.

    A library of fixed-rank rules is thus not reported to miss a rule that it has at one rank.
    """
    for rule in rules:
        found = [_covered(one, known, bound) for one in at_fixed_ranks(rule) or (rule,)]
        following = [one for one in found if one.cover is not Cover.MISSED]
        yield min(following, key=lambda one: len(one.by)) if following else found[0]


def at_fixed_ranks(rule: RuleDecl) -> tuple[RuleDecl, ...]:
    """The rule at the ranks of its groups, all below MOST_DIMS, at which no input has more than MOST_DIMS
    dimensions.
    """
    groups = rest_groups(rule)
    ranks = product(range(MOST_DIMS), repeat=len(groups))
    made = (_at_ranks(rule, dict(zip(groups, one, strict=True))) for one in ranks)
    return tuple(one for one in made if all(len(tensor.dims) <= MOST_DIMS for tensor in one.inputs))


def _at_ranks(rule: RuleDecl, ranks: Ranks) -> RuleDecl:
    taken = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)}

    def dims(tensor: RuleInput) -> Iterator[RuleDim]:
        for dim in tensor.dims:
            if dim.rest and isinstance(dim.size, Name):
                names = (f"{dim.size.name}_{number}" for number in range(ranks[dim.size.name]))
                yield from (RuleDim(Name(name + "_" * (name in taken))) for name in names)
            else:
                yield dim

    return replace(rule, inputs=tuple(replace(tensor, dims=tuple(dims(tensor))) for tensor in rule.inputs))


def _covered(rule: RuleDecl, known: RuleLibrary, bound: Bound) -> Covered:
    steps = known.derivability.derive(rule, bound)
    if steps is None:
        return Covered(rule.name, Cover.MISSED, (), _reason(rule, known, bound))
    by = tuple(step.rule for step in steps)
    return Covered(rule.name, (Cover.TRIVIAL, Cover.INCLUDED)[len(by)] if len(by) < 2 else Cover.DERIVED, by)


def _reason(rule: RuleDecl, known: RuleLibrary, bound: Bound) -> str:
    derivability = known.derivability
    try:
        derivability.read(rule, Terms(derivability.commutative))
    except Unsupported as reason:
        return f"it is not read as terms: {reason}"
    others = known.lacking(rule)
    if others:
        return f"no rule of the library has {', '.join(f'`{name}`' for name in sorted(others))}"
    return f"no chain is found in {bound.expansions} expansions"


def _operators(rule: RuleDecl, derivability: Derivability) -> frozenset[str]:
    """The operators of a rule after unfolding defined ones; the operators that it calls if it cannot be
    read as terms.
    """
    try:
        terms = derivability.read(rule, Terms(derivability.commutative))
    except Unsupported:
        return called_names(rule)
    every = frozenset(call for term in (*terms.left, *terms.right) for call in term.calls)
    return frozenset(call.head.kind[0] for call in every if call.head is not None)

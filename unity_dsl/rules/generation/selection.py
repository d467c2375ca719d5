"""Selects from candidates a small set of proved rules from which the others are derived.

Candidates with few operators are examined first; among equals, those with many sizes and inputs, since they are more
general. A candidate that is derived from the rules kept so far is left out. Any other candidate is proved and kept.
Finally the kept rules are examined again, largest first, and a rule that the others derive is dropped. No rule of the
result is therefore derived from the others within the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...index.library import Library
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ...syntax.rule_names import names_in
from ..certificate import called_names
from ..derivation.derivability import Bound, Derivability
from .canonical_rule import rule_digest
from .examination import Examined, operators
from .fitting_sizes import fitting
from .reading_order import disorder, in_reading_order
from .rule_text import rule_text

BATCH = 32
"""Candidates that are proved together."""

LIBRARY_BOUND = Bound(expansions=96, operators=2)
"""The bound within which no rule of a library is derived from the others."""

Examine = Callable[[Sequence[RuleDecl]], Iterable[Examined]]
"""Examines rules, in their order."""
Progress = Callable[[str, int, int], None]
"""Called with the name of the work, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Kept:
    """A rule of the library with its theme and the outcome of its proof."""

    theme: str
    examined: Examined

    @property
    def rule(self) -> RuleDecl:
        assert self.examined.rule is not None
        return self.examined.rule


@dataclass
class Selection:
    """The kept rules, and the number of candidates with each outcome."""

    library: Library
    commutative: frozenset[str]
    examine: Examine
    progress: Progress
    bound: Bound = LIBRARY_BOUND
    counts: dict[str, int] = field(default_factory=dict)
    refuted: list[RuleDecl] = field(default_factory=list)
    open: list[RuleDecl] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(
        self,
        candidates: Mapping[str, Sequence[RuleDecl]],
        known: Collection[RuleDecl] = (),
        always: Sequence[tuple[str, RuleDecl]] = (),
    ) -> list[Kept]:
        """The rules that are kept from the candidates by theme. `known` rules are already proved: they are used but not
        returned.

        Rules in `always`, each with its theme, are kept even if others derive them. All of them must be true.
        """
        derivability = Derivability(self.library, self.commutative)
        for rule in known:
            derivability.add(rule)
        first = [
            Kept(theme, examined)
            for (theme, _), examined in zip(always, self.examine([rule for _, rule in always]), strict=True)
        ]
        known_count = derivability.count
        kept = self._forward(self._ordered(candidates), derivability)
        return [*first, *self._backward(kept, derivability, known_count)]

    def _ordered(self, candidates: Mapping[str, Sequence[RuleDecl]]) -> list[tuple[str, RuleDecl]]:
        """Distinct candidates in the order in which they are examined."""
        distinct: dict[str, tuple[str, RuleDecl]] = {}
        for theme, rules in candidates.items():
            for rule in rules:
                self._count("candidates")
                ordered = in_reading_order(fitting(rule, self.library), self.commutative, self.library)
                distinct.setdefault(rule_digest(ordered, self.library), (theme, ordered))
        self.counts["distinct"] = len(distinct)
        return sorted(distinct.values(), key=lambda one: self._order(one[1]))

    def _order(self, rule: RuleDecl) -> tuple[tuple[int, ...], tuple[int, int], str]:
        """Sort key: generality, then readability, then the text."""
        return _generality(rule), disorder(rule, self.commutative), rule_text(replace(rule, name=""))

    def _forward(self, ordered: Sequence[tuple[str, RuleDecl]], derivability: Derivability) -> list[Kept | None]:
        """Every rule that is not derived from earlier ones, by its number; None for other rules that are used.

        Candidates wait to be proved together, and are used for derivations meanwhile. A candidate whose derivation uses
        a waiting one is examined again after the proofs.
        """
        kept: list[Kept | None] = [None] * derivability.count
        dead: set[int] = set()
        waiting: dict[int, tuple[str, RuleDecl]] = {}
        todo = deque(ordered)
        again: list[tuple[str, RuleDecl]] = []
        while todo or waiting:
            if not todo or len(waiting) == BATCH:
                self._prove(waiting, derivability, kept, dead)
                waiting.clear()
                todo.extendleft(reversed(again))
                again.clear()
                continue
            self.progress("derived or proved", len(ordered) - len(todo) - len(again), len(ordered))
            theme, rule = todo.popleft()
            steps = derivability.derive(rule, self.bound, dead)
            if steps is None:
                waiting[derivability.add(rule)] = theme, rule
                kept.append(None)
            elif any(step.number in waiting for step in steps):
                again.append((theme, rule))
            else:
                self._count("derived")
        return kept

    def _prove(
        self,
        waiting: Mapping[int, tuple[str, RuleDecl]],
        derivability: Derivability,
        kept: list[Kept | None],
        dead: set[int],
    ) -> None:
        """Keeps the waiting rules that are proved, in the form that was proved, unless earlier rules derive
        that form.
        """
        outcomes = self.examine([rule for _, rule in waiting.values()])
        dead.update(waiting)
        for (theme, rule), examined in zip(waiting.values(), outcomes, strict=True):
            self._count("examined")
            self.seconds.append(examined.seconds)
            if examined.rule is None:
                self._count(examined.status)
                (self.refuted if examined.status == "refuted" else self.open).append(rule)
            elif derivability.derive(examined.rule, self.bound, dead) is not None:
                self._count("derived")
            else:
                self._count(examined.status)
                derivability.add(examined.rule)
                kept.append(Kept(theme, examined))

    def _backward(self, kept: Sequence[Kept | None], derivability: Derivability, known: int) -> list[Kept]:
        """The rules without those that the others derive, examined from the largest to the smallest.

        The first `known` rules may be used. Candidates that were not kept may not be used.
        """
        numbers = [number for number, one in enumerate(kept) if one is not None]
        self.counts["kept"] = len(numbers)
        numbers.sort(key=lambda number: self._order(_rule(kept[number])), reverse=True)
        dropped: set[int] = {number for number in range(len(kept)) if kept[number] is None and number >= known}
        for done, number in enumerate(numbers):
            self.progress("minimised", done, len(numbers))
            if derivability.derive(_rule(kept[number]), self.bound, without={*dropped, number}) is not None:
                dropped.add(number)
        self.counts["dropped"] = sum(number in dropped for number in numbers)
        found = [one for number, one in enumerate(kept) if one is not None and number not in dropped]
        self.counts["minimal"] = len(found)
        return found

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _rule(kept: Kept | None) -> RuleDecl:
    assert kept is not None
    return kept.rule


def _generality(rule: RuleDecl) -> tuple[int, ...]:
    """Sort key of generality. In order: few operators on the larger side, few on both, few kinds, few outputs, low
    ranks, many sizes, many inputs, little nesting, and few operators on the right. Low ranks come first because rules
    are lifted to others.
    """
    sides = [operators(replace(rule, left=side, right=())) for side in (rule.left, rule.right)]
    sizes = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)}
    depth = sum(map(_depth, (*rule.left, *rule.right)))
    rank = max((len(tensor.dims) for tensor in rule.inputs), default=0)
    kinds = len(called_names(rule))
    return max(sides), sum(sides), kinds, len(rule.left), rank, -len(sizes), -len(rule.inputs), depth, sides[1]


def _depth(expr: GraphExpr) -> int:
    """The nesting depth of operators."""
    match expr:
        case GraphCall(arguments=arguments):
            return 1 + max(map(_depth, arguments), default=0)
        case GraphView(operand):
            return 1 + _depth(operand)
    return 0


def renamed(kept: Iterable[Kept], names: Iterable[str]) -> Iterator[Kept]:
    """The rules under other names."""
    for one, name in zip(kept, names, strict=True):
        yield Kept(one.theme, replace(one.examined, rule=replace(one.rule, name=name)))

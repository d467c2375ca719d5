"""Chooses from candidates a small set of proved rules from which the others are derived.

Candidates are looked at by the number of their operators, the fewest first, and of equal ones those of most sizes and
inputs first, since they are the more general ones. One that is derived from the rules kept before it is left out; any
other one is proved, and kept. At the end the rules are looked at once more, the largest first, and one that the others
derive is dropped. So no rule of the outcome is derived from the others within the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...index.library import Library
from ...syntax.parse_rules import RuleDecl
from ...syntax.rule_names import names_in
from ..derivation.derivability import DEFAULT, Bound, Derivability
from .canonical_rule import canonical_rule, rule_digest
from .examination import Examined, operators

BATCH = 24
"""Candidates that are proved at the same time. One that another of them derives is proved in vain."""

Examine = Callable[[Sequence[RuleDecl]], Iterable[Examined]]
"""Examines rules, in their order."""
Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it, and how much there is."""


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
    """The kept rules, and how many candidates went where."""

    library: Library
    commutative: frozenset[str]
    examine: Examine
    progress: Progress
    bound: Bound = DEFAULT
    counts: dict[str, int] = field(default_factory=dict)
    refuted: list[RuleDecl] = field(default_factory=list)
    open: list[RuleDecl] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(self, candidates: Mapping[str, Sequence[RuleDecl]], known: Collection[tuple[RuleDecl, bool]]) -> list[Kept]:
        """The rules that are kept of candidates by theme. `known` rules are there already, each with whether it holds
        in both directions; they are used and not returned."""
        derivability = Derivability(self.library, self.commutative)
        for rule, reversible in known:
            derivability.add(rule, reversible=reversible)
        kept = self._forward(self._ordered(candidates), derivability)
        return self._backward(kept, derivability)

    def _ordered(self, candidates: Mapping[str, Sequence[RuleDecl]]) -> list[tuple[str, RuleDecl]]:
        """Distinct candidates in order of proof."""
        distinct: dict[str, tuple[str, RuleDecl]] = {}
        for theme, rules in candidates.items():
            for rule in rules:
                self._count("candidates")
                distinct.setdefault(rule_digest(rule, self.library), (theme, canonical_rule(rule, self.library)))
        self.counts["distinct"] = len(distinct)
        return [one for _, one in sorted(distinct.items(), key=lambda entry: (_order(entry[1][1]), entry[0]))]

    def _forward(self, ordered: Sequence[tuple[str, RuleDecl]], derivability: Derivability) -> list[Kept | None]:
        """Every rule that is not derived when it is its turn, by its number; None for those known before."""
        kept: list[Kept | None] = [None] * derivability.count
        pending: list[tuple[str, RuleDecl]] = []
        for done, (theme, rule) in enumerate(ordered):
            self.progress("derived or proved", done, len(ordered))
            if self._is_derived(rule, derivability):
                continue
            pending.append((theme, rule))
            if len(pending) == BATCH:
                self._prove(pending, derivability, kept)
                pending = []
        self._prove(pending, derivability, kept)
        return kept

    def _is_derived(self, rule: RuleDecl, derivability: Derivability) -> bool:
        derived = derivability.derive(rule, self.bound) is not None
        if derived:
            self._count("derived")
        return derived

    def _prove(
        self, pending: Sequence[tuple[str, RuleDecl]], derivability: Derivability, kept: list[Kept | None]
    ) -> None:
        """Keeps those of the pending candidates that are proved and not derived from those before them."""
        outcomes = self.examine([rule for _, rule in pending])
        for (theme, rule), examined in zip(pending, outcomes, strict=True):
            self._count("examined")
            self.seconds.append(examined.seconds)
            if examined.rule is None:
                self._count(examined.status)
                (self.refuted if examined.status == "refuted" else self.open).append(rule)
            elif not (self._is_derived(rule, derivability) or self._is_derived(examined.rule, derivability)):
                self._count(examined.status)
                derivability.add(examined.rule, reversible=examined.reversible)
                kept.append(Kept(theme, examined))

    def _backward(self, kept: Sequence[Kept | None], derivability: Derivability) -> list[Kept]:
        """The rules without those that the others derive, looked at from the largest one on."""
        numbers = [number for number, one in enumerate(kept) if one is not None]
        self.counts["kept"] = len(numbers)
        numbers.sort(key=lambda number: _order(_rule(kept[number])), reverse=True)
        dropped: set[int] = set()
        for done, number in enumerate(numbers):
            self.progress("minimised", done, len(numbers))
            if derivability.derive(_rule(kept[number]), self.bound, without={*dropped, number}) is not None:
                dropped.add(number)
        self.counts["dropped"] = len(dropped)
        found = [one for number, one in enumerate(kept) if one is not None and number not in dropped]
        self.counts["rules"] = len(found)
        return found

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _rule(kept: Kept | None) -> RuleDecl:
    assert kept is not None
    return kept.rule


def _order(rule: RuleDecl) -> tuple[int, int, int, int]:
    """Few operators first, then few outputs, then many sizes and inputs."""
    sizes = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)}
    return operators(rule), len(rule.left), -len(sizes), -len(rule.inputs)


def renamed(kept: Iterable[Kept], names: Mapping[int, str]) -> Iterator[Kept]:
    """The rules under other names, by their positions."""
    for place, one in enumerate(kept):
        yield Kept(one.theme, replace(one.examined, rule=replace(one.rule, name=names[place])))

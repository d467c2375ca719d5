"""Applies each rule to a model at one place, and at all its places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...graph.graph import Model
from ...index.library import Library
from ...rules.graph_match import Match, TooMany, matches
from ...rules.rewrite import rewrite
from ...rules.substitution import Substitution, substitution_of
from ...syntax.parse_rules import RuleDecl
from .rewritten_model import Variant

PLACES = 128
"""Matches of one rule in one model that are tried."""


class Changes:
    """The models that rules make of a model in one round. `complete` says that no limit has left anything out so far.

    `unused` are notes on rules that cannot be used as substitutions, with the reason.
    """

    def __init__(self, rules: Sequence[RuleDecl], library: Library, tries: int) -> None:
        made = [substitution_of(rule, library) for rule in rules]
        self.usable = [found for found in made if isinstance(found, Substitution)]
        self.unused = tuple(
            f"rule `{rule.name}` is not used: {reason}"
            for rule, reason in zip(rules, made, strict=True)
            if isinstance(reason, str)
        )
        self.tries = tries
        self.complete = True

    def of(self, variant: Variant) -> Iterator[Variant]:
        """Models made by each rule at all its places, then by each rule at one place, cycling through the rules."""
        for substitution in self.usable:
            yield from self._everywhere(variant, substitution)
        turns = [self._at_one_place(variant, substitution) for substitution in self.usable]
        while turns:
            for turn in list(turns):
                new = next(turn, None)
                if new is None:
                    turns.remove(turn)
                else:
                    yield new

    def _at_one_place(self, variant: Variant, substitution: Substitution) -> Iterator[Variant]:
        for match in self._distinct(substitution, variant.model):
            new = self._applied(variant, match)
            if new is not None:
                yield new

    def _everywhere(self, variant: Variant, substitution: Substitution) -> Iterator[Variant]:
        """Applies the rule wherever it fits operators that it has not made itself, so that this ends."""
        current: Variant | None = variant
        last = variant
        while current is not None and len(current.rules) - len(variant.rules) < PLACES:
            last, current = current, self._once_more(current, substitution)
        if len(last.rules) > len(variant.rules) + 1:
            yield last

    def _once_more(self, variant: Variant, substitution: Substitution) -> Variant | None:
        for match in self._distinct(substitution, variant.model):
            if all(node.rule != substitution.rule.name for node in match.nodes):
                new = self._applied(variant, match)
                if new is not None:
                    return new
        return None

    def _distinct(self, substitution: Substitution, model: Model) -> Iterator[Match]:
        """Matches, only one of those on the same values in another order: `x + y` is matched both ways."""
        seen: set[tuple[object, ...]] = set()
        try:
            for match in matches(substitution, model):
                if not self.tries:
                    raise TooMany
                names = frozenset(value.name for value in match.values.values())
                key = match.path, frozenset(root.name for root in match.roots), names
                if len(seen) == PLACES and key not in seen:
                    raise TooMany
                if key not in seen:
                    seen.add(key)
                    yield match
        except TooMany:
            self.complete = False

    def _applied(self, variant: Variant, match: Match) -> Variant | None:
        self.tries -= 1
        changed = rewrite(variant.model, match)
        if isinstance(changed, str):
            return None
        root = next(node for node in match.nodes if node.results[0].name == match.roots[0].name)
        return Variant(changed, (*variant.rules, match.applied(root.span)))

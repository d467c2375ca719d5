"""The models that rules make of a model, each computing the same: what the search chooses among, besides layouts.

A rule is applied at one place, at all its places, and again to what came out. Only the most promising models are
changed further, by what they would cost on one device, and only so many are made: `complete` says whether that left any
out. Rules are matched within one graph, the model's or the body of a repeat, which stands for all its iterations; a
match over the border of two iterations is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..graph.graph import Graph, Model, Node, Segment
from ..graph.layout import Mesh
from ..graph.plan import AppliedRule
from ..graph.typing import type_operator
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.price import price_operator
from ..rules.identity import Identities, Identity
from ..rules.match import Match, TooMany, matches, operation
from ..rules.rewrite import rewrite
from ..rules.substitution import Substitution, substitution_of
from ..syntax.parse_rules import RuleDecl
from .options import float_type

LIMIT = 64
"""Models that rules make of one, the given one not counted."""
KEPT = 8
"""Of the models of one round of changes, those that the next round goes on from."""
PLACES = 128
"""Matches of one rule in one model that are tried."""
TRIES = 4
"""Matches that are carried out for every model that is made: most make a model that is there already."""


@dataclass(frozen=True)
class Variant:
    """A model and the rules that made it, in the order in which they were applied."""

    model: Model
    rules: tuple[AppliedRule, ...] = ()


@dataclass(frozen=True)
class Variants:
    """Those that look best on one device first, the given model left out. `unused` says which rules fit no model."""

    found: tuple[Variant, ...]
    complete: bool
    unused: tuple[str, ...]


def variants(
    model: Model,
    rules: Sequence[RuleDecl],
    library: Library,
    estimate: Callable[[Model], float],
    limit: int = LIMIT,
    kept: int = KEPT,
) -> Variants:
    """Models that equal this one by proved rules. `estimate` says what a model is worth: less is better."""
    made = [substitution_of(rule, library) for rule in rules]
    unused = tuple(
        f"rule `{rule.name}` is not used: {reason}"
        for rule, reason in zip(rules, made, strict=True)
        if isinstance(reason, str)
    )
    usable = [found for found in made if isinstance(found, Substitution)]
    changes = _Changes(usable, TRIES * limit)
    identities = Identities()
    known: dict[Identity, None] = {identities.of(model): None}
    ranked: list[tuple[float, Variant]] = []
    frontier = [Variant(model)]
    while frontier and len(known) <= limit:
        made_now: list[tuple[float, Variant]] = []
        for variant in (new for old in frontier for new in changes.of(old)):
            identity = identities.of(variant.model)
            if identity in known:
                continue
            if len(known) > limit:
                changes.complete = False
                break
            known[identity] = None
            made_now.append((estimate(variant.model), variant))
        ranked += made_now
        best = sorted(made_now, key=_worth)
        frontier = [variant for _, variant in best[:kept]]
        changes.complete &= len(best) <= kept
    # Models made last are not changed further where the limit is met with them.
    complete = changes.complete and not frontier
    return Variants(tuple(variant for _, variant in sorted(ranked, key=_worth)), complete, unused)


def _worth(entry: tuple[float, Variant]) -> tuple[float, int]:
    """Of equal ones, that with the fewest changes."""
    return entry[0], len(entry[1].rules)


# ---------------------------------------------------------------------------------------------- changes


class _Changes:
    """What rules make of a model in one round. `complete` says that no bound has left anything out so far."""

    def __init__(self, usable: Sequence[Substitution], tries: int) -> None:
        self.usable = usable
        self.tries = tries
        self.complete = True

    def of(self, variant: Variant) -> Iterator[Variant]:
        """Each rule at all its places, then each at one place, the rules by turns."""
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
        """The rule wherever it fits what it has not made itself, so that this ends."""
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
        """Matches, one of those that are on the same values in another order: `x + y` is matched both ways."""
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
        applied = AppliedRule(match.substitution.rule.name, match.place, root.span)
        return Variant(changed, (*variant.rules, applied))


# ---------------------------------------------------------------------------------------------- worth


class SingleDevice:
    """What the operators of a model cost on one device, all of them: what is compared before layouts are chosen."""

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine = machine
        self.library = library
        self._found: dict[tuple[object, ...], float] = {}

    def seconds(self, model: Model) -> float:
        return self._graph(model.graph)

    def _graph(self, graph: Graph) -> float:
        return sum(
            step.count * step.probability * self._graph(step.body) if isinstance(step, Segment) else self._node(step)
            for step in graph.steps
        )

    def _node(self, node: Node) -> float:
        gradients = node.gradients
        dtype = float_type(node)
        key = operation(node.instance), gradients, dtype
        if key not in self._found:
            alone = Mesh(())
            typed = type_operator(node.instance, (), alone, self.library)
            assert not isinstance(typed, str), typed
            self._found[key] = price_operator(node.instance, typed, dtype, alone, self.machine, gradients)
        return self._found[key]

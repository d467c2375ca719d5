"""Cost-based backtracking over the models that substitutions make: best-first search with a threshold (Jia et al.,
TASO, SOSP 2019, section 5; MetaFlow, SysML 2019, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from logging import getLogger

from ...graph.graph import Graph, Model, Segment
from ...index.library import Library
from ...syntax.parse_rules import RuleDecl
from ..model_variants.rewritten_model import Variant
from ..search_end import SearchEnded, check_end, why_ended

LOG = getLogger(__name__)
CANDIDATES = 3_000
"""Most models made in one search; a time limit would not give the same model twice."""
NEAR = 1e-9
"""Relative difference below which costs are equal."""


Place = tuple[tuple[str, ...], str]
"""An operator: the names of the repeats around it, and its own name."""


@dataclass(frozen=True)
class Limits:
    """Limits of a search. Models that cost less than `threshold` times the best are queued, `budget` models are
    changed, and at most `made` models are created. No model has more than `growth` times the operators of the first.
    """

    threshold: float
    budget: int
    growth: float = 2.0
    made: int = CANDIDATES


def backtrack(
    start: Variant,
    rules: Sequence[RuleDecl],
    library: Library,
    cost: Callable[[Model], float],
    limits: Limits,
    without: Collection[Place] = (),
) -> tuple[Variant, bool]:
    """The best model found, and whether the search ended without reaching a limit other than `threshold` and `growth`.
    The operators in `without` are not changed.
    """
    # Imported here because applying rules imports most of the prover, which other strategies do not need.
    from ...rules.graph_identity import Identities
    from ...rules.substitution import Substitution, substitution_of

    found = (substitution_of(rule, library) for rule in rules)
    usable = [one for one in found if isinstance(one, Substitution)]
    identities, serial = Identities(), count()
    best, least = start, cost(start.model)
    seen = {identities.of(start.model)}
    queue = [(least, next(serial), best)]
    most, made = limits.growth * _operators(start.model.graph), 0
    for popped in range(limits.budget):
        if not queue:
            return best, True
        LOG.info("%d of %d models changed, %d made", popped, limits.budget, made)
        price, _, variant = heappop(queue)
        if price > limits.threshold * least * (1 + NEAR):
            return best, True
        for changed in changes(variant, usable, without):
            if made >= limits.made or why_ended() is not None:
                return best, False
            made += 1
            identity = identities.of(changed.model)
            if identity in seen or _operators(changed.model.graph) > most:
                continue
            seen.add(identity)
            try:
                check_end()
                price = cost(changed.model)
            except SearchEnded:
                return best, False
            if price < limits.threshold * least * (1 - NEAR):
                heappush(queue, (price, next(serial), changed))
            if price < least * (1 - NEAR):
                best, least = changed, price
    return best, not queue


def changes(variant: Variant, rules: Sequence[object], without: Collection[Place] = ()) -> Iterator[Variant]:
    """The results of every rule at every match, except matches with an operator in `without`. Matches that differ only
    in the order of operands count once.
    """
    from ...rules.graph_match import TooMany, matches
    from ...rules.rewrite import rewrite
    from ...rules.substitution import Substitution

    for rule in rules:
        assert isinstance(rule, Substitution)
        seen: set[tuple[object, ...]] = set()
        try:
            for match in matches(rule, variant.model):
                names = frozenset(value.name for value in match.values.values())
                place = match.path, frozenset(root.name for root in match.roots), names
                if place in seen or any((match.path, node.name) in without for node in match.nodes):
                    continue
                seen.add(place)
                changed = rewrite(variant.model, match)
                if not isinstance(changed, str):
                    root = next(node for node in match.nodes if node.results[0].name == match.roots[0].name)
                    yield Variant(changed, (*variant.rules, match.applied(root.span)))
        except TooMany:
            continue


def _operators(graph: Graph) -> int:
    return sum(_operators(step.body) if isinstance(step, Segment) else 1 for step in graph.steps)

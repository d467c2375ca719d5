"""Applies the rules of a plan to the same model at other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ..graph.graph import Model
from ..graph.plan import AppliedRule
from ..index.library import Library
from ..syntax.parse_rules import parse_rules
from ..syntax.span import Source
from .graph_match import Match, TooMany, matches
from .rewrite import rewrite
from .substitution import Substitution, substitution_of
from .wellformed import check_rule


def replayed(model: Model, applied: Sequence[AppliedRule], sources: Iterable[Source], library: Library) -> Model | None:
    """The model after these rules at these places, in order; None if a rule does not fit at its place.

    The rules are read from the texts and assumed to be proved.
    """
    wanted = {used.rule for used in applied}
    declared = (rule for source in sources for rule in parse_rules(source).rules if rule.name in wanted)
    prepared = {rule.name: substitution_of(check_rule(rule, library), library) for rule in declared}
    usable = {name: found for name, found in prepared.items() if isinstance(found, Substitution)}
    return applied_in_order(model, applied, usable)


def applied_in_order(model: Model, applied: Sequence[AppliedRule], rules: Mapping[str, Substitution]) -> Model | None:
    """The model after these rules at these places, in order; None if a rule does not fit at its place."""
    for used in applied:
        changed = _again(used, rules[used.rule], model) if used.rule in rules else None
        if changed is None:
            return None
        model = changed
    return model


def _again(used: AppliedRule, rule: Substitution, model: Model) -> Model | None:
    """The model after the first match at the place that can be applied. Matches that replace the same values come
    first.
    """
    found: list[Match] = []
    with suppress(TooMany):
        found += matches(rule, model, used.place)
    found.sort(key=lambda match: match.applied(None).replaced != used.replaced)
    for match in found:
        if not isinstance(changed := rewrite(model, match), str):
            return changed
    return None

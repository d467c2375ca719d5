"""Applies the rules of a plan to the same model at other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph.graph import Model
from ..graph.plan import AppliedRule
from ..index.library import Library
from ..syntax.parse_rules import parse_rules
from ..syntax.span import Source
from .graph_match import TooMany, matches
from .rewrite import rewrite
from .substitution import Substitution, substitution_of
from .wellformed import check_rule


def replayed(model: Model, applied: Sequence[AppliedRule], sources: Iterable[Source], library: Library) -> Model | None:
    """The model after these rules at these places, in order; None where one does not fit there.

    The rules are taken from the texts, as proved.
    """
    wanted = {used.rule for used in applied}
    declared = (rule for source in sources for rule in parse_rules(source).rules if rule.name in wanted)
    known = {rule.name: substitution_of(check_rule(rule, library), library) for rule in declared}
    for used in applied:
        found = known.get(used.rule)
        changed = _at(used.place, found, model) if isinstance(found, Substitution) else None
        if changed is None:
            return None
        model = changed
    return model


def _at(place: str, rule: Substitution, model: Model) -> Model | None:
    try:
        for match in matches(rule, model):
            if match.place == place and not isinstance(changed := rewrite(model, match), str):
                return changed
    except TooMany:
        pass
    return None

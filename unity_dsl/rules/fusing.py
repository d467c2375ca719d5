"""Applies rules that fuse operators wherever they match and are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph.graph import Model
from ..graph.plan import AppliedRule
from ..index.library import Library
from ..syntax.parse_rules import RuleDecl
from .graph_match import Match, TooMany, matches
from .rewrite import rewrite
from .substitution import Substitution, substitution_of

Accepts = Callable[[Match, Model, Model], bool]
"""Whether to apply a match that turns the first model into the second."""
Fused = tuple[Model, tuple[AppliedRule, ...]]
"""A model and the rules applied to obtain it, in order."""


def fused(model: Model, rules: Sequence[RuleDecl], library: Library, accepts: Accepts) -> Fused:
    """The model after every accepted match. Rules are applied in their order, each only to operators that
    no rule made.
    """
    found: Fused = model, ()
    for rule in rules:
        substitution = substitution_of(rule, library)
        if isinstance(substitution, Substitution):
            found = _everywhere(substitution, found, accepts)
    return found


def _everywhere(rule: Substitution, found: Fused, accepts: Accepts) -> Fused:
    seen: set[tuple[object, ...]] = set()
    following: Fused | None = found
    while following is not None:
        found, following = following, _once_more(rule, following, seen, accepts)
    return found


def _once_more(rule: Substitution, found: Fused, seen: set[tuple[object, ...]], accepts: Accepts) -> Fused | None:
    """The model after the first accepted match that is not in `seen`; None if there is none."""
    model, applied = found
    try:
        for match in matches(rule, model):
            place = match.path, *sorted((name, value.name) for name, value in match.values.items())
            if place in seen or any(node.rule is not None for node in match.nodes):
                continue
            seen.add(place)
            changed = rewrite(model, match)
            if not isinstance(changed, str) and accepts(match, model, changed):
                root = next(node for node in match.nodes if node.results[0].name == match.roots[0].name)
                return changed, (*applied, match.applied(root.span))
    except TooMany:
        pass
    return None

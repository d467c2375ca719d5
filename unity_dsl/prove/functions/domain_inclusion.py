"""Decides whether a tensor has a value wherever another one has, from the partial functions that each applies."""

from __future__ import annotations

from collections.abc import Callable

from ..equality.form_equality import Comparison
from ..normal_form.form import numbered_family, refreshed_family
from .definedness import Domain, Partial, has_value
from .scalar_functions import Functions


def uncovered(
    domain: Domain, known: Domain, functions: Functions, otherwise: Callable[[Partial], bool] = lambda _: False
) -> Partial | None:
    """A partial application of `domain` that may have no value where all of `known` have one; None if there is none.

    An application is covered if the signs of its arguments show that they lie in the function's domain, if `known`
    contains it with or without its branches, or if `otherwise` accepts it. Raises Unsupported.
    """
    families = [partial.family for partial in known]
    same = frozenset(map(numbered_family, families))
    comparison = Comparison(functions.arithmetic)
    for partial in domain:
        # Equal up to the names of bound indices: the most common case, which needs no solver.
        if any(numbered_family(one.family) in same for one in partial.weaker):
            continue
        if has_value(partial.function, functions.signs, functions.laws.functions) or otherwise(partial):
            continue
        if not any(comparison.member(families, refreshed_family(one.family)) for one in partial.weaker):
            return partial
    return None

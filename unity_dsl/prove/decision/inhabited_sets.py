"""Decides whether families under guards have a member at all sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from itertools import product as combinations

from ..normal_form.form import Family, Unsupported, is_finite, substitute_family
from ..normal_form.guard import Guard, within
from ..normal_form.polynomial import ONE, Poly, Var, number, of
from .integer_arithmetic import Arithmetic

MAX_WITNESSES = 64
"""Limit of candidate members in one query whether a set is inhabited."""
MAX_LISTED = 8
"""Indices with a range of at most this length are tried at each position."""


def inhabited(families: Iterable[Family], arithmetic: Arithmetic) -> bool:
    """Whether a union of families is non-empty for all sizes and free indices. Every axis has at least one position."""
    families = tuple(families)
    if any(not family.guards for family in families):
        return True
    if not all(is_finite(family.value) for family in families):
        return False  # a member may be minus infinity itself
    try:
        found = list(islice((case for family in families for case in _presences(family)), MAX_WITNESSES))
        return arithmetic.covered(found)
    except Unsupported:
        return False


def _presences(family: Family) -> Iterator[tuple[Guard, ...]]:
    """Conditions each of which implies that the family is non-empty."""
    used = {var for condition in family.guards for var in condition.variables}
    bound = tuple(var for var in family.bound if var in used)
    for choice in combinations(*(_positions(var, family, set(bound)) for var in bound)):
        change: Mapping[Var, Poly] = dict(zip(bound, choice, strict=True))
        element = substitute_family(replace(family, bound=(), value=()), change)
        yield (*(condition for var in bound for condition in within(change[var], var.size)), *element.guards)


def _positions(var: Var, family: Family, bound: set[Var]) -> list[Poly]:
    """Candidate values of an index: all of a small range; else its ends, and the bounds that guards give it."""
    length = var.size.constant
    if length is not None and length <= MAX_LISTED:
        return [number(place) for place in range(int(length))]
    places = {number(0): None, var.size - ONE: None}
    for condition in family.guards:
        coefficient = condition.poly.coefficient(var)
        if coefficient is not None and abs(coefficient) == 1:
            border = (condition.poly - of(var).scaled(coefficient)).scaled(-coefficient)
            if border.variables.isdisjoint(bound):
                places[border] = None
    return list(places)

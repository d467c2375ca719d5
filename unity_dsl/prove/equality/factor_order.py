"""Canonical order of equal factors, by colour refinement (Weisfeiler and Leman 1968) with individualisation.

The factors of x[i] x[j] x[k] commute. Places (element reads) of one tensor are distinguished by the occurrences of
their bound indices elsewhere in the product. Places with equal colours after refinement are, with rare exceptions,
exchanged by an automorphism of the product: one is individualised and refinement continues. Two products that are equal
up to commutativity and renaming of bound indices then mostly get the same order; a wrong order is incomplete, not
unsound.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..normal_form.guard import Guard
from ..normal_form.polynomial import Entry, Poly, Quotient, Symbol, Var, symbol_key

Place = tuple[str, tuple[Poly, ...]]


def arranged(places: Sequence[Place], bound: Collection[Var], guards: Sequence[Guard]) -> tuple[Place, ...]:
    """The places sorted by tensor, those of one tensor in canonical order."""
    marks = [0] * len(places)
    colours = _refined(places, bound, guards, marks)
    for turn in range(1, len(places)):
        tied = next((place for place in sorted(set(colours)) if colours.count(place) > 1), None)
        if tied is None:
            break
        marks[colours.index(tied)] = turn
        colours = _refined(places, bound, guards, marks)
    return tuple(place for _, place in sorted(zip(colours, places, strict=True), key=lambda entry: entry[0]))


def _refined(places: Sequence[Place], bound: Collection[Var], guards: Sequence[Guard], marks: list[int]) -> list[int]:
    """The colour of each place at the fixpoint of refinement. Colours order by tensor name first."""
    indices = dict.fromkeys(bound, 0)
    known = 0
    while True:
        own = [
            (name, f"{mark}", *(_signature(part, indices) for part in index))
            for (name, index), mark in zip(places, marks, strict=True)
        ]
        conditions = [f"{condition.relation}{_signature(condition.poly, indices)}" for condition in guards]
        told = {var: _occurrences(var, indices, places, own, guards, conditions) for var in indices}
        order = {text: rank for rank, text in enumerate(sorted(set(told.values())))}
        indices = {var: order[text] for var, text in told.items()}
        colours = {signature: rank for rank, signature in enumerate(sorted(set(own)))}
        if len(order) + len(colours) <= known:
            return [colours[signature] for signature in own]
        known = len(order) + len(colours)


def _occurrences(
    var: Var,
    indices: dict[Var, int],
    places: Sequence[Place],
    own: Sequence[tuple[str, ...]],
    guards: Sequence[Guard],
    conditions: Sequence[str],
) -> str:
    """The occurrences of an index: each place and guard that it is in, with the index's signature there."""
    found = [
        f"{signature}:{position}:{_signature(part, indices, var)}"
        for (_, index), signature in zip(places, own, strict=True)
        for position, part in enumerate(index)
        if var in part.variables
    ]
    found += [
        f"{text}:{_signature(condition.poly, indices, var)}"
        for condition, text in zip(guards, conditions, strict=True)
        if var in condition.variables
    ]
    return f"{indices[var]:04d}|{var.size.key}|{';'.join(sorted(found))}"


def _signature(poly: Poly, indices: dict[Var, int], marked: Var | None = None) -> str:
    """The text of a polynomial with bound indices replaced by their colours."""

    def text(symbol: Symbol) -> str:
        match symbol:
            case Var() if symbol in indices:
                return f"#{indices[symbol]}{'!' if symbol == marked else ''}"
            case Entry(tensor, index, _):
                return f"{tensor}[{','.join(_signature(part, indices, marked) for part in index)}]"
            case Quotient(numerator, denominator):
                return f"({_signature(numerator, indices, marked)})//{denominator}"
            case _:
                return symbol_key(symbol)

    parts = sorted(
        f"{c}{''.join(f'.{part}' for part in sorted(f'{text(s)}^{n}' for s, n in m))}" for m, c in poly.terms
    )
    return "+".join(parts)

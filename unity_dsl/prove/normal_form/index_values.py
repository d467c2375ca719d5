"""Indices used as values: the tensor `#` has at i the element i, and `#[i + a]` expands to `#[i] + a`."""

from __future__ import annotations

from dataclasses import replace

from .form import (
    ZERO,
    Atom,
    Element,
    Extremum,
    Form,
    Function,
    Term,
    add,
    atom,
    canonical,
    constant,
    extremum_atom,
    is_finite,
    scale,
)
from .form_products import enclosed, multiply
from .polynomial import ONE, Poly, number, of, product


def index_value(poly: Poly) -> Form:
    """An index used as a value, as a form over elements of `#`."""
    form = ZERO
    for monomial, coefficient in poly.terms:
        part = constant(number(coefficient))
        for symbol, power in monomial:
            if isinstance(symbol, str):
                part = scale(part, of(symbol) if power == 1 else product([of(symbol)] * power))
            else:
                for _ in range(power):
                    part = multiply(part, atom(Element("#", (of(symbol),))))
        form = add(form, part)
    return form


def expanded_indices(form: Form) -> Form:
    """The form with each `#[i + a]` expanded to a sum, in arguments of functions and in maxima as well."""
    return add(*(_expanded(term) for term in form))


def _expanded(term: Term) -> Form:
    if not is_finite((term,)):
        return (term,)
    inside: Form = (Term(term.coefficient),)
    for factor, power in term.factors:
        value = _sum(factor) if power > 0 else None
        if value is None:
            inside = multiply(inside, (Term(ONE, factors=((_with_sums(factor), power),)),))
            continue
        for _ in range(power):
            inside = multiply(inside, value)
    return enclosed(term, inside)


def _sum(factor: Atom) -> Form | None:
    """The sum that `#[poly]` expands to; None where the index is a single symbol, and for other atoms."""
    if not isinstance(factor, Element) or factor.tensor != "#" or _is_symbol(factor.index[0]):
        return None
    return index_value(factor.index[0])


def _with_sums(factor: Atom) -> Atom:
    match factor:
        case Function(name, arguments):
            found = tuple(map(expanded_indices, arguments))
            return factor if found == arguments else Function(name, canonical(found), factor.known_finite)
        case Extremum(families):
            values = [expanded_indices(family.value) for family in families]
            if values != [family.value for family in families]:
                changed = (replace(family, value=value) for family, value in zip(families, values, strict=True))
                return extremum_atom(changed, factor.inhabited)
    return factor


def _is_symbol(poly: Poly) -> bool:
    """Whether an index is a single symbol other than a size."""
    ((monomial, coefficient), *others) = poly.terms or (((), 0),)
    return coefficient == 1 and not others and len(monomial) == 1 and not isinstance(monomial[0][0], str)

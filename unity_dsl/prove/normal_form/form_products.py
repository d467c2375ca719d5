"""Products of forms, and sums of forms over indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product as combinations

from .form import MAX_TERMS, Atom, Form, Term, Unsupported, add, is_finite, refreshed, substitute_open
from .guard import Relation, settled, within
from .polynomial import Var, of
from .step_limit import spend


def multiply(left: Form, right: Form) -> Form:
    """The product. Each copy of a term gets fresh bound indices.

    Raises Unsupported for too many terms, and where distributivity fails on infinite operands: (2 - 1) inf is not
    2 inf - inf.
    """
    if not (is_finite(left) and is_finite(right)) and not distributes(left, right):
        raise Unsupported("a sum multiplied by what may be infinite")
    if len(left) * len(right) > MAX_TERMS:
        raise Unsupported(f"a product of {len(left)} by {len(right)} terms")
    found = (_term_product(a, b) for a, b in combinations(left, right))
    return add(*((term,) for term in found if term is not None))


def distributes(left: Form, right: Form) -> bool:
    """Whether c (A + B) = c A + c B applies.

    A side must be a finite single term without bound indices, or both must be single terms without bound indices.
    """
    single = [len(form) < 2 and not any(term.bound for term in form) for form in (left, right)]
    return all(single) or (single[0] and is_finite(left)) or (single[1] and is_finite(right))


def _term_product(left: Term, right: Term) -> Term | None:
    spend()
    if left.bound and not (set(left.bound).isdisjoint(right.bound) and right.free.isdisjoint(left.bound)):
        left = refreshed(left)
    if right.bound and not left.free.isdisjoint(right.bound):
        right = refreshed(right)
    guards = settled((*left.guards, *right.guards))
    if guards is None:
        return None
    powers = dict(left.factors)
    for factor, power in right.factors:
        powers[factor] = powers.get(factor, 0) + power
    factors = sorted(((a, n) for a, n in powers.items() if n), key=lambda entry: entry[0].key)
    return Term(left.coefficient * right.coefficient, left.bound + right.bound, guards, tuple(factors))


def put_in_place(term: Term, taken: Mapping[Atom, int], value: Form) -> Form:
    """The term with these factors replaced by a form, which may mention the term's bound indices."""
    powers = dict(term.factors)
    for factor, power in taken.items():
        powers[factor] -= power
    rest = Term(term.coefficient, factors=tuple((factor, power) for factor, power in powers.items() if power))
    return enclosed(term, multiply((rest,), value))


def enclosed(term: Term, value: Form) -> Form:
    """The form summed over a term's bound indices under its guards; the form may mention these indices."""
    parts = ((part, settled((*term.guards, *part.guards))) for part in value)
    return add(tuple(replace(part, bound=term.bound + part.bound, guards=g) for part, g in parts if g is not None))


def summed(form: Form, bound: tuple[Var, ...]) -> Form:
    """The sum of a form over indices. `sum(v) [v == e] t(v) = [0 <= e < |v|] t(e)`, where e does not mention v."""
    terms = (solved(replace(term, bound=term.bound + bound)) for term in form)
    return add(*((term,) for term in terms if term is not None))


def solved(term: Term) -> Term | None:
    """The term with bound indices eliminated by its equations (Gaussian, coefficient ±1).

    None where guards contradict.
    """
    for condition in term.guards:
        if condition.relation is not Relation.EQUAL:
            continue
        for var in term.bound:
            coefficient = condition.poly.coefficient(var)
            if coefficient is not None and abs(coefficient) == 1:
                value = (condition.poly - of(var).scaled(coefficient)).scaled(-coefficient)
                bound = tuple(other for other in term.bound if other != var)
                guards = (*(g for g in term.guards if g is not condition), *within(value, var.size))
                put_in = substitute_open(replace(term, bound=bound, guards=guards), {var: value})
                return None if put_in is None else solved(put_in)
    return term

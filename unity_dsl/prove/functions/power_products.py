"""Reduces products of atoms: squares by facts, and a × (1 / a) = 1 where a is known to be nonzero.

For a sum a = c t + r with leading monomial t, each product with t and 1 / a is reduced (polynomial division):

    t / a = (1 - r / a) / c

The monomials of r are lower in a monomial order, so reduction terminates, and no multiple of t is left in the numerator
of a fraction over a: 1 - e / (1 + e) = 1 / (1 + e).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..decision.signs import Signs
from ..normal_form.form import Atom, Extremum, Form, Function, Term, add, atom, constant, refresh, scale
from ..normal_form.form_products import multiply, put_in_place
from ..normal_form.polynomial import ONE, number

MAX_STEPS = 500

Square = Callable[[Atom], "Form | None"]


def reduced_products(form: Form, signs: Signs, square: Square) -> Form:
    """The form with its products reduced; unchanged where the limit of steps is reached."""
    reduced = form
    for _ in range(MAX_STEPS):
        for position, term in enumerate(reduced):
            changed = _step(term, signs, square)
            if changed is not None:
                reduced = add(reduced[:position], changed, reduced[position + 1 :])
                break
        else:
            return reduced
    return form


def _step(term: Term, signs: Signs, square: Square) -> Form | None:
    """One reduction of one term, None where none applies."""
    for factor, power in term.factors:
        if power >= 2:
            known = square(factor)
            if known is not None:
                return put_in_place(term, {factor: 2}, known)
        if isinstance(factor, Function) and factor.name == "inv" and power >= 1:
            known = _divided(term, factor, signs)
            if known is not None:
                return known
    return None


def _divided(term: Term, inverse: Function, signs: Signs) -> Form | None:
    divisor = refresh(inverse.arguments[0])
    if any(part.bound or part.guards for part in divisor):
        return None
    leading = _leading(divisor)
    powers = dict(term.factors)
    if not leading.factors or any(powers.get(factor, 0) < power for factor, power in leading.factors):
        return None
    coefficient = leading.coefficient.inverse()
    if coefficient is None or not signs.nonzero(divisor):
        return None
    rest = tuple(part for part in divisor if part is not leading)
    remainder = multiply(rest, atom(inverse))
    value = scale(add(constant(ONE), scale(remainder, number(-1))), coefficient)
    return put_in_place(term, {**dict(leading.factors), inverse: 1}, value)


def _leading(form: Form) -> Term:
    """The leading monomial of atoms: by degree, then lexicographically by power in a fixed order of atoms."""
    atoms = sorted({factor for term in form for factor, _ in term.factors}, key=_order)

    def size(term: Term) -> tuple[int, ...]:
        powers = dict(term.factors)
        return (sum(powers.values()), *(powers.get(factor, 0) for factor in atoms))

    return max(form, key=size)


def _order(factor: Atom) -> tuple[bool, str, str]:
    """The sort key of an atom, the same on both sides of a rule up to names of indices.

    Maxima come first: max(x, 0) ** 2 = x max(x, 0) replaces one by lower atoms.
    """
    return not isinstance(factor, Extremum), re.sub(r"~\d+", "~", factor.key), factor.key

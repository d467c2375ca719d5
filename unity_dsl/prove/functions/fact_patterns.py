"""Matches forms against patterns of facts, `log(a * b)`, modulo associativity and commutativity of sums and products.

A form is decomposed as the pattern requires: a sum with a negative leading term as `-a`, a product or a sum with a
common factor as `a * b`, a product of inverses as `1 / a`, a product of powers of exponentials as one exponential. Each
part is smaller than the form, so matching terminates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.rational import exact_number
from ..normal_form.common_factors import common_coefficient, common_factors, divided, numerators
from ..normal_form.form import Form, Function, Term, add, atom, constant, function, refresh, scale
from ..normal_form.polynomial import ONE, number
from .fact_laws import Laws

Values = Mapping[str, Form]


def matches(patterns: Sequence[Expr], forms: Sequence[Form], laws: Laws, known: Values) -> Iterator[Values]:
    """Every substitution found under which the patterns equal the forms."""
    if not patterns:
        yield known
        return
    for found in _matches(patterns[0], forms[0], laws, known):
        yield from matches(patterns[1:], forms[1:], laws, found)


def _matches(pattern: Expr, form: Form, laws: Laws, known: Values) -> Iterator[Values]:
    match pattern:
        case Name(name):
            if known.get(name, form) == form:
                yield {**known, name: form}
        case Number(value):
            if form == constant(number(exact_number(value))):
                yield known
        case Apply("neg", (part,)):
            if is_negative(form):
                yield from _matches(part, scale(form, number(-1)), laws, known)
        case Apply("*", (first, second)) if first == second:
            root = _root(form)
            if root is not None:
                yield from _matches(first, root, laws, known)
        case Apply("*", (first, second)):
            for left, right in _products(form, laws):
                for found in _matches(first, left, laws, known):
                    yield from _matches(second, right, laws, found)
        case Apply("/", (_, part)):
            inverse = _inverse(form)
            if inverse is not None:
                yield from _matches(part, inverse, laws, known)
        case Apply(name, arguments) if name in laws.exponentials:
            exponent = exponent_of(f"fn {name}", form)
            if exponent is not None:
                yield from _matches(arguments[0], exponent, laws, known)
        case Apply(name, arguments):
            plain = _single(form)
            if plain is not None and len(plain.factors) == 1 and plain.coefficient == ONE:
                ((factor, power),) = plain.factors
                if isinstance(factor, Function) and factor.name == f"fn {name}" and power == 1:
                    yield from matches(arguments, [refresh(part) for part in factor.arguments], laws, known)


def is_negative(form: Form) -> bool:
    """Whether the leading term has a negative coefficient; the term order avoids names of indices where it can."""
    if not form:
        return False
    first = min(form, key=lambda term: (re.sub(r"~\d+", "~", _shape(term)), _shape(term)))
    return first.coefficient.terms[-1][1] < 0


def _shape(term: Term) -> str:
    return "·".join(f"{factor.key}^{power}" for factor, power in term.factors)


def exponent_of(name: str, form: Form) -> Form | None:
    """t where the form is f(t) for an exponential f, as a product of powers of f; None for the form 1."""
    term = _single(form)
    if term is None or term.coefficient != ONE or not term.factors:
        return None
    parts = []
    for factor, power in term.factors:
        if not (isinstance(factor, Function) and factor.name == name):
            return None
        parts.append(scale(refresh(factor.arguments[0]), number(power)))
    return add(*parts)


def _single(form: Form) -> Term | None:
    """The only term, without bound indices and guards; else None."""
    return form[0] if len(form) == 1 and not form[0].bound and not form[0].guards else None


def _root(form: Form) -> Form | None:
    term = _single(form)
    if term is None or term.coefficient != ONE or not term.factors or any(power % 2 for _, power in term.factors):
        return None
    return (Term(ONE, factors=tuple((factor, power // 2) for factor, power in term.factors)),)


def _inverse(form: Form) -> Form | None:
    """t where the form is 1 / t, as a product of inverses; else None."""
    term = _single(form)
    if term is None or term.coefficient != ONE or len(term.factors) != 1:
        return None
    ((factor, power),) = term.factors
    return (
        refresh(factor.arguments[0]) if isinstance(factor, Function) and factor.name == "inv" and power == 1 else None
    )


def _products(form: Form, laws: Laws) -> Iterator[tuple[Form, Form]]:
    """The ways to write a form as one factor times the rest, neither of them 1."""
    if not form:
        return
    coefficient = common_coefficient(form)
    parts = [(constant(coefficient), divided(form, coefficient, {}))] if coefficient != ONE else []
    for factor, power in common_factors(form, laws.powers).items():
        step = power if power < 0 else 1
        parts.append(((Term(ONE, factors=((factor, step),)),), divided(form, ONE, {factor: step})))
    if len(form) > 1:
        parts += [(numerator, atom(function("inv", [denominator]))) for denominator, numerator in numerators(form)]
    yield from (part for part in parts if part[1] != constant(ONE))

"""Scalar functions of normal forms.

Conditions that mention no inner bound index are taken out by case split, so that a function of a concatenation is a
concatenation of functions: f([g] a + [not g] b) = [g] f(a) + [not g] f(b). Facts used, each with its domain:

    exp(a + b) = exp(a) exp(b), exp(n t) = exp(t) ** n      everywhere
    1 / (a b) = (1 / a) (1 / b), 1 / exp(a) = exp(-a)       wherever both sides have a value
    max(max(A), B) = max(A with B), -inf the max of nothing everywhere; the same for min
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

from .form import (
    ZERO,
    Atom,
    Extremum,
    Family,
    Form,
    Function,
    Term,
    Unsupported,
    add,
    atom,
    constant,
    extremum_atom,
    function,
    guarded,
    multiply,
    refreshed_family,
    scale,
)
from .guard import Guard, settled
from .poly import ONE, Var, exact_number, number

MAX_CASES = 64
MAX_POWER = 16
INFINITY = Function("inf", ())
"""Plus infinity as an unknown number: what holds with it holds for its own sake, not by arithmetic with it."""

Case = tuple[tuple[Guard, ...], tuple[Form, ...]]


def apply(name: str, arguments: tuple[Form, ...]) -> Form:
    """The function of these forms. `name` is a primitive; `inv` is 1 / x. Raises Unsupported."""
    match name:
        case "exp":
            return split(arguments, lambda parts: _exp(parts[0]))
        case "inv":
            return split(arguments, lambda parts: _inverse(parts[0]))
        case "maximum" | "minimum":
            kind = "max" if name == "maximum" else "min"
            return extremum(kind, [Family((), (), argument) for argument in arguments])
        case _:
            return split(arguments, lambda parts: atom(function(name, parts)))


def split(arguments: tuple[Form, ...], value: Callable[[tuple[Form, ...]], Form]) -> Form:
    """`value` of the arguments, case by case of their outer guards."""
    found = []
    for number_of_cases, (guards, parts) in enumerate(_cases(arguments, (), _is_outer), 1):
        if number_of_cases > MAX_CASES:
            raise Unsupported(f"more than {MAX_CASES} cases in the argument of a function")
        found.append(guarded(guards, value(parts)))
    return add(*found)


def _is_outer(condition: Guard, term: Term) -> bool:
    return condition.variables.isdisjoint(term.bound)


def _cases(
    arguments: tuple[Form, ...], taken: tuple[Guard, ...], outer: Callable[[Guard, Term], bool]
) -> Iterator[Case]:
    """Every way in which the outer guards can hold or fail, with the arguments that are left then."""
    conditions = [g for form in arguments for term in form for g in term.guards if outer(g, term)]
    if not conditions:
        yield taken, arguments
        return
    first = conditions[0]
    for condition in (first, first.negated()):
        guards = settled((*taken, condition))
        if guards is not None:
            yield from _cases(tuple(_given(form, condition) for form in arguments), (*taken, condition), outer)


def _given(form: Form, condition: Guard) -> Form:
    """The form where a condition is known to hold."""
    negated = condition.negated()
    return tuple(
        replace(term, guards=tuple(g for g in term.guards if g != condition))
        for term in form
        if negated not in term.guards
    )


# ---------------------------------------------------------------------------------------------- exp and 1 / x


def _exp(form: Form) -> Form:
    result = constant(ONE)
    for term in form:
        base, power = _exponent(term)
        result = multiply(result, (Term(ONE, factors=((function("exp", [(base,)]), power),)),))
    return result


def _exponent(term: Term) -> tuple[Term, int]:
    """exp(term) as exp(base) ** power: the number in front becomes the power."""
    if len(term.coefficient.terms) != 1:
        return term, 1
    ((monomial, factor),) = term.coefficient.terms
    power = factor.numerator if abs(factor.numerator) <= MAX_POWER else (1 if factor > 0 else -1)
    base = replace(term.coefficient, terms=((monomial, factor / power),))
    return replace(term, coefficient=base), power


def _inverse(form: Form) -> Form:
    """1 / form: what all terms have in common, and depends on no bound index, is inverted by itself."""
    if not form:
        raise Unsupported("a division by zero")
    shared = dict(_independent(form[0]))
    for term in form[1:]:
        own = dict(_independent(term))
        shared = {a: n for a, n in shared.items() if own.get(a) == n}
    if len(form) == 1 and not form[0].guards:
        inverse = form[0].coefficient.inverse()
        coefficient = None if inverse is None else form[0].coefficient
    else:
        inverse = coefficient = None
    rest = tuple(_without(term, shared, coefficient is not None) for term in form)
    result = constant(ONE if inverse is None else inverse)
    for factor, power in shared.items():
        result = multiply(result, _inverse_power(factor, power))
    if rest == constant(ONE):
        return result
    return multiply(result, atom(function("inv", [rest])))


def _independent(term: Term) -> Iterator[tuple[Atom, int]]:
    return ((a, n) for a, n in term.factors if a.free.isdisjoint(term.bound))


def _without(term: Term, shared: dict[Atom, int], coefficient: bool) -> Term:
    factors = tuple((a, n) for a, n in term.factors if a not in shared)
    return replace(term, factors=factors, coefficient=ONE if coefficient else term.coefficient)


def _inverse_power(factor: Atom, power: int) -> Form:
    if isinstance(factor, Function) and factor.name == "exp":
        return (Term(ONE, factors=((factor, -power),)),)
    return (Term(ONE, factors=((function("inv", [atom(factor)]), power),)),)


# ---------------------------------------------------------------------------------------------- max and min


def extremum(kind: str, families: list[Family]) -> Form:
    """The greatest or least of a union of families. Guards that no bound index is in are taken out."""
    flat = [part for family in families for part in _flattened(kind, family)]
    arguments = tuple(family.value for family in flat)
    bound = {var for family in flat for var in family.bound}

    def outer(condition: Guard, term: Term) -> bool:
        return _is_outer(condition, term) and condition.variables.isdisjoint(bound)

    found = []
    for count, (guards, values) in enumerate(_cases(arguments, (), outer), 1):
        if count > MAX_CASES:
            raise Unsupported(f"more than {MAX_CASES} cases in a {kind}")
        parts = [replace(family, value=value) for family, value in zip(flat, values, strict=True)]
        members = [member for part in parts for member in _members(kind, part)]
        found.append(guarded(guards, _of_set(extremum_atom(kind, members))))
    return add(*found)


def _of_set(members: Extremum) -> Form:
    """The greatest or least of one number is that number."""
    if len(members.families) == 1 and not members.families[0].bound and not members.families[0].guards:
        return members.families[0].value
    return atom(members)


def reduced(kind: str, value: Form, bound: tuple[Var, ...]) -> Form:
    """`max(bound) value` or `min(bound) value`."""
    return extremum(kind, [Family(bound, (), value)])


def _flattened(kind: str, family: Family) -> Iterator[Family]:
    """max over max is one max, guards of the inner set kept."""
    if len(family.value) == 1:
        (term,) = family.value
        if term.coefficient == ONE and not term.bound and not term.guards and len(term.factors) == 1:
            ((factor, power),) = term.factors
            if isinstance(factor, Extremum) and factor.kind == kind and power == 1:
                for inner in map(refreshed_family, factor.families):
                    merged = Family(family.bound + inner.bound, family.guards + inner.guards, inner.value)
                    yield from _flattened(kind, merged)
                return
    yield family


def _members(kind: str, family: Family) -> Iterator[Family]:
    """One family per case of the value's guards, without those whose value is the identity, minus infinity for max."""
    bottom = scale(atom(INFINITY), number(-1 if kind == "max" else 1))
    for guards, (value,) in _cases((family.value,), (), _is_outer):
        if value != bottom:
            yield from _flattened(kind, Family(family.bound, (*family.guards, *guards), value))


# ---------------------------------------------------------------------------------------------- numbers


def literal(value: int | float) -> Form:
    """A number as it is written in decimal; infinity is a symbol."""
    if value in (inf, -inf):
        return scale(atom(INFINITY), number(1 if value > 0 else -1))
    return constant(number(exact_number(value))) if value else ZERO

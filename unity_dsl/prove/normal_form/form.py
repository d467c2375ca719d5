"""The normal form: a sum of monomials (coefficient, bound indices, guards, factors).

    form  =  sum over terms of  coefficient × sum over bound indices of [guards] × product of factors

A factor is an atom with a power: an element of an input tensor, a scalar function of forms, or the greatest element of
a set. A power counts repeated factors; only exponentials may have negative powers, exp(t) ** -1 = exp(-t).

Values are extended real numbers (decision/extended_reals.py). `infinities` are the signs of the infinities that an
atom, a term or a form may take; an empty set says that it is finite wherever it has a value.

Bound indices of a term are fresh. Inside an atom they are numbered -1, -2, … from the innermost outwards, so that atoms
that differ only in bound names are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from ...cached_hash import cached_hash
from .guard import Guard, settled
from .polynomial import ONE, Poly, Var, fresh, of
from .step_limit import Unsupported as Unsupported
from .step_limit import spend

MAX_TERMS = 4_000
MAX_WEIGHT = 4_000
MAX_HEIGHT = 24
"""Limits of the terms of a form, of the atoms in an atom, and of its nesting. Beyond them Unsupported is raised."""


NONE: frozenset[int] = frozenset()
ABOVE = frozenset({1})
BELOW = frozenset({-1})
BOTH = ABOVE | BELOW
FINITE = frozenset({"inv", "positive", "not_negative", "zero", "compare >", "compare >=", "compare =="})
"""Functions that are finite wherever they have a value, whatever their arguments are: 1 / inf = 0."""


@dataclass(frozen=True)
class Element:
    """An element x[i, …] of a tensor. The index has one entry per factor of each dimension, device axes first."""

    tensor: str
    index: tuple[Poly, ...]

    @cached_property
    def key(self) -> str:
        return f"{self.tensor}[{','.join(part.key for part in self.index)}]"

    @cached_property
    def free(self) -> frozenset[Var]:
        return frozenset(var for part in self.index for var in part.variables)

    depth = 0
    weight = 1
    height = 0
    infinities = NONE

    def substitute(self, mapping: Mapping[Var, Poly]) -> Element:
        return Element(self.tensor, tuple(part.substitute(mapping) for part in self.index))


@cached_hash
@dataclass(frozen=True)
class Function:
    """An uninterpreted scalar function of forms. `known_finite`: its value is a finite number wherever it has one."""

    name: str
    arguments: tuple[Form, ...]
    known_finite: bool = field(default=False, compare=False)

    @cached_property
    def key(self) -> str:
        return f"{self.name}({';'.join(form_key(argument) for argument in self.arguments)})"

    @cached_property
    def free(self) -> frozenset[Var]:
        return frozenset(var for argument in self.arguments for var in free_variables(argument))

    @cached_property
    def depth(self) -> int:
        """The number of levels of bound indices inside: they are numbered from -1 down to -depth."""
        return max((term.depth for argument in self.arguments for term in argument), default=0)

    @cached_property
    def weight(self) -> int:
        """The number of atoms in it, itself included."""
        return 1 + sum(term.weight for argument in self.arguments for term in argument)

    @cached_property
    def height(self) -> int:
        """The nesting depth of functions and maxima."""
        return 1 + max((term.height for argument in self.arguments for term in argument), default=0)

    @cached_property
    def infinities(self) -> frozenset[int]:
        if self.known_finite or self.name in FINITE:
            return NONE
        if self.name == "inf":
            return ABOVE
        values = self.arguments[1:] if self.name == "select" else self.arguments
        found = NONE.union(*map(infinities, values))
        return found if self.name in ("select", "sum") or not found else BOTH

    def substitute(self, mapping: Mapping[Var, Poly]) -> Function:
        if self.free.isdisjoint(mapping):
            return self
        arguments = canonical([substitute(argument, mapping) for argument in self.arguments])
        return Function(self.name, arguments, self.known_finite)


@dataclass(frozen=True)
class Family:
    """The set {value : bound indices in range, guards}."""

    bound: tuple[Var, ...]
    guards: tuple[Guard, ...]
    value: Form

    @cached_property
    def free(self) -> frozenset[Var]:
        inside = {var for condition in self.guards for var in condition.variables} | free_variables(self.value)
        return frozenset(inside - set(self.bound))

    @cached_property
    def key(self) -> str:
        return f"{[v.key + '<' + v.size.key for v in self.bound]}{[g.key for g in self.guards]}{form_key(self.value)}"


@cached_hash
@dataclass(frozen=True)
class Extremum:
    """The maximum of a union of families; minus infinity where the union is empty.

    Members form a set, not a multiset: a guard removes members, and equal members count once. A minimum is minus the
    maximum of the negated members. `inhabited`: the set is known to be non-empty for all values of the free indices.
    """

    families: tuple[Family, ...]
    inhabited: bool = field(default=False, compare=False)

    @cached_property
    def key(self) -> str:
        return f"max{{{';'.join(family.key for family in self.families)}}}"

    @cached_property
    def free(self) -> frozenset[Var]:
        return frozenset(var for family in self.families for var in family.free)

    @cached_property
    def depth(self) -> int:
        inside = [term.depth for family in self.families for term in family.value]
        return max([*inside, *(-var.number for family in self.families for var in family.bound)], default=0)

    @cached_property
    def weight(self) -> int:
        return 1 + sum(term.weight for family in self.families for term in family.value)

    @cached_property
    def height(self) -> int:
        return 1 + max((term.height for family in self.families for term in family.value), default=0)

    @cached_property
    def infinities(self) -> frozenset[int]:
        found = NONE.union(*(infinities(family.value) for family in self.families))
        return found if self.inhabited else found | BELOW

    def substitute(self, mapping: Mapping[Var, Poly]) -> Extremum:
        if self.free.isdisjoint(mapping):
            return self
        return extremum_atom([substitute_family(family, mapping) for family in self.families], self.inhabited)


Atom: TypeAlias = "Element | Function | Extremum"


@cached_hash
@dataclass(frozen=True)
class Term:
    coefficient: Poly
    bound: tuple[Var, ...] = ()
    guards: tuple[Guard, ...] = ()
    factors: tuple[tuple[Atom, int], ...] = ()

    @cached_property
    def free(self) -> frozenset[Var]:
        inside = {var for atom, _ in self.factors for var in atom.free}
        inside |= {var for condition in self.guards for var in condition.variables}
        return frozenset(inside - set(self.bound))

    @cached_property
    def depth(self) -> int:
        return max([*(atom.depth for atom, _ in self.factors), *(-var.number for var in self.bound)], default=0)

    @cached_property
    def weight(self) -> int:
        return 1 + sum(atom.weight for atom, _ in self.factors)

    @cached_property
    def height(self) -> int:
        return max((atom.height for atom, _ in self.factors), default=0)

    @cached_property
    def infinities(self) -> frozenset[int]:
        infinite = [(atom, power) for atom, power in self.factors if infinities_of_power(atom, power)]
        if not infinite:
            return NONE
        sign = plain_sign(self.coefficient)
        if len(self.factors) > 1 or infinite[0][1] != 1 or not sign:
            return BOTH
        return frozenset(sign * infinity for infinity in infinite[0][0].infinities)

    @cached_property
    def key(self) -> str:
        bound = ",".join(f"{var.key}<{var.size.key}" for var in self.bound)
        guards = ",".join(condition.key for condition in self.guards)
        return f"{self.coefficient.key}|{bound}|{guards}|{','.join(f'{a.key}^{n}' for a, n in self.factors)}"


Form: TypeAlias = "tuple[Term, ...]"

ZERO: Form = ()


def form_key(form: Form) -> str:
    return "+".join(term.key for term in form)


def free_variables(form: Form) -> frozenset[Var]:
    return frozenset(var for term in form for var in term.free)


def positions(form: Form) -> Iterator[Poly]:
    """All index polynomials of element reads, and all polynomials compared in guards, atoms included."""
    for term in form:
        yield from (condition.poly for condition in term.guards)
        for factor, _ in term.factors:
            match factor:
                case Element(_, index):
                    yield from index
                case Function(_, arguments):
                    for argument in arguments:
                        yield from positions(argument)
                case Extremum(families):
                    for family in families:
                        yield from (condition.poly for condition in family.guards)
                        yield from positions(family.value)


def infinities(form: Form) -> frozenset[int]:
    """The signs of the infinities that a form may take."""
    return NONE.union(*(term.infinities for term in form))


def is_finite(form: Form) -> bool:
    """Whether the form is finite wherever it has a value, so that the axioms of a field hold for it."""
    return not any(term.infinities for term in form)


def infinities_of_power(factor: Atom, power: int) -> frozenset[int]:
    """The signs of the infinities of an atom to a power.

    Only exponentials, which are >= 0, have negative powers; both signs are assumed if their argument may be infinite.
    """
    if power < 0 and isinstance(factor, Function) and not all(map(is_finite, factor.arguments)):
        return BOTH
    return factor.infinities


def plain_sign(coefficient: Poly) -> int:
    """The sign, 1 or -1, of a polynomial in sizes all of whose coefficients have that sign; 0 otherwise."""
    if any(not isinstance(symbol, str) for monomial, _ in coefficient.terms for symbol, _ in monomial):
        return 0
    signs = {1 if factor > 0 else -1 for _, factor in coefficient.terms}
    return signs.pop() if len(signs) == 1 else 0


def constant(value: Poly) -> Form:
    return (Term(value),) if value.terms else ZERO


def atom(factor: Atom) -> Form:
    return (Term(ONE, factors=((factor, 1),)),)


def guarded(conditions: Iterable[Guard], form: Form = (Term(ONE),)) -> Form:
    """[conditions] × form: each term gets the guards; terms with contradictory guards are dropped."""
    conditions = tuple(conditions)
    return tuple(
        replace(term, guards=kept) for term in form if (kept := settled((*term.guards, *conditions))) is not None
    )


# ---------------------------------------------------------------------------------------------- arithmetic


def add(*forms: Form) -> Form:
    """The sum. Terms that are equal except for their coefficients are collected."""
    total: dict[Term, Poly] = {}
    for form in forms:
        for term in form:
            shape = replace(term, coefficient=ONE)
            total[shape] = total[shape] + term.coefficient if shape in total else term.coefficient
    return tuple(replace(shape, coefficient=value) for shape, value in total.items() if value.terms)


def scale(form: Form, factor: Poly) -> Form:
    return tuple(replace(term, coefficient=term.coefficient * factor) for term in form) if factor.terms else ZERO


# ---------------------------------------------------------------------------------------------- substitution


def substitute(form: Form, mapping: Mapping[Var, Poly]) -> Form:
    """The form with free indices replaced. Bound indices that would capture are renamed first."""
    mapping = dict(mapping)
    if not mapping:
        return form
    found = (_substitute_term(term, mapping) for term in form)
    return add(*((term,) for term in found if term is not None))


def _substitute_term(term: Term, mapping: dict[Var, Poly]) -> Term | None:
    if term.free.isdisjoint(mapping):
        return term
    if term.bound:
        incoming = {var for value in mapping.values() for var in value.variables}
        if not incoming.isdisjoint(term.bound) or not set(term.bound).isdisjoint(mapping):
            term = refreshed(term)
    return substitute_open(term, mapping)


def substitute_open(term: Term, mapping: Mapping[Var, Poly]) -> Term | None:
    spend(1 + len(term.guards) // 4)
    guards = settled(condition.substitute(mapping) for condition in term.guards)
    if guards is None:
        return None
    powers: dict[Atom, int] = {}
    for factor, power in term.factors:
        changed = factor.substitute(mapping)
        powers[changed] = powers.get(changed, 0) + power
    factors = sorted(((a, n) for a, n in powers.items() if n), key=lambda entry: entry[0].key)
    return Term(term.coefficient, term.bound, guards, tuple(factors))


def substitute_family(family: Family, mapping: Mapping[Var, Poly]) -> Family:
    if family.free.isdisjoint(mapping):
        return family
    incoming = {var for value in mapping.values() for var in value.variables}
    if not incoming.isdisjoint(family.bound) or not set(family.bound).isdisjoint(mapping):
        family = refreshed_family(family)
    guards = tuple(condition.substitute(mapping) for condition in family.guards)
    return Family(family.bound, guards, substitute(family.value, mapping))


def refreshed(term: Term) -> Term:
    """The same term with bound indices that occur nowhere else."""
    return _renamed(term, tuple(fresh(var.size) for var in term.bound))


def refresh(form: Form) -> Form:
    return tuple(refreshed(term) if term.bound else term for term in form)


def refreshed_family(family: Family) -> Family:
    return _renamed_family(family, tuple(fresh(var.size) for var in family.bound))


def _renamed(term: Term, bound: tuple[Var, ...]) -> Term:
    """The term with its bound indices renamed to others of the same sizes."""
    spend(1 + len(term.guards) // 4)
    mapping = {old: of(new) for old, new in zip(term.bound, bound, strict=True)}
    guards = sorted((condition.substitute(mapping) for condition in term.guards), key=lambda condition: condition.key)
    factors = sorted(((a.substitute(mapping), n) for a, n in term.factors), key=lambda entry: entry[0].key)
    return Term(term.coefficient, bound, tuple(guards), tuple(factors))


def _renamed_family(family: Family, bound: tuple[Var, ...]) -> Family:
    mapping = {old: of(new) for old, new in zip(family.bound, bound, strict=True)}
    guards = tuple(condition.substitute(mapping) for condition in family.guards)
    return Family(bound, guards, substitute(family.value, mapping))


# ---------------------------------------------------------------------------------------------- atoms


def canonical(arguments: Iterable[Form]) -> tuple[Form, ...]:
    """Forms as parts of an atom: bound indices numbered -1, -2, … from the innermost outwards."""
    return tuple(tuple(_numbered(term) for term in _ordered(form)) for form in arguments)


def _ordered(form: Form) -> Iterator[Term]:
    """Terms without bound indices, ordered by text; then the others as given, since their names are arbitrary."""
    yield from sorted((term for term in form if not term.bound), key=lambda term: term.key)
    yield from (term for term in form if term.bound)


def _numbered(term: Term) -> Term:
    if not term.bound:
        return term
    below = max((factor.depth for factor, _ in term.factors), default=0)
    return _renamed(refreshed(term), tuple(Var(-below - n, var.size) for n, var in enumerate(term.bound, 1)))


def function(name: str, arguments: Iterable[Form], known_finite: bool = False) -> Function:
    """A function application as an atom, without simplification. Raises Unsupported where it is too large."""
    arguments = tuple(arguments)
    _check_size(term for argument in arguments for term in argument)
    return Function(name, canonical(arguments), known_finite)


def _check_size(terms: Iterable[Term]) -> None:
    terms = tuple(terms)
    if sum(term.weight for term in terms) > MAX_WEIGHT:
        raise Unsupported(f"an expression of more than {MAX_WEIGHT} atoms")
    if max((term.height for term in terms), default=0) >= MAX_HEIGHT:
        raise Unsupported(f"functions nested more than {MAX_HEIGHT} deep")


def extremum_atom(families: Iterable[Family], inhabited: bool = False) -> Extremum:
    """The set with bound indices numbered and each family once. Raises Unsupported where it is too large."""
    families = tuple(families)
    _check_size(term for family in families for term in family.value)
    kept = ((family, settled(family.guards)) for family in families)
    numbered = (numbered_family(replace(family, guards=guards)) for family, guards in kept if guards is not None)
    return Extremum(tuple(dict.fromkeys(numbered)), inhabited)


def numbered_family(family: Family) -> Family:
    """The family with bound indices numbered, so that families that differ only in their names are equal."""
    family = refreshed_family(replace(family, value=canonical([family.value])[0]))
    below = max((term.depth for term in family.value), default=0)
    named = _renamed_family(family, tuple(Var(-below - n, var.size) for n, var in enumerate(family.bound, 1)))
    return replace(named, guards=tuple(sorted(named.guards, key=lambda condition: condition.key)))

"""Images of forms modulo a prime: a quick test that two forms differ (polynomial identity testing, Schwartz 1980).

Every size and every tensor is given one number, wherever it is read, and a function of forms one number for each image
of its arguments. The image of a form is then its value: a sum over an index is the size times the summand. Forms whose
coefficient functions agree have the same image, so those with other images are not equal. A guard has no image, for it
holds at some positions only; nor have sizes between which an equation is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from ..normal_form.form import Atom, Element, Extremum, Form, Function, Term
from ..normal_form.guard import Guard, Relation
from ..normal_form.polynomial import Poly

PRIME = 2**61 - 1


@dataclass
class Images:
    """The images of atoms met so far. `disabled` where the assumptions may identify sizes."""

    disabled: bool
    known: dict[Atom, int | None] = field(default_factory=dict)

    @classmethod
    def under(cls, conditions: Iterable[Guard]) -> Images:
        """Images where these conditions on sizes are assumed."""
        return cls(any(condition.relation is Relation.EQUAL for condition in conditions))

    def differ(self, left: Form, right: Form) -> bool:
        """Whether two forms are known to be different."""
        if self.disabled:
            return False
        first = self.form(left)
        return first is not None and (second := self.form(right)) is not None and first != second

    def form(self, form: Form) -> int | None:
        """The image of a form, None where it has none."""
        total = 0
        for term in form:
            image = self._term(term)
            if image is None:
                return None
            total += image
        return total % PRIME

    def _term(self, term: Term) -> int | None:
        if term.guards:
            return None
        sizes = [term.coefficient, *(var.size for var in term.bound)]
        found = 1
        for size in sizes:
            image = _size(size)
            if image is None:
                return None
            found = found * image % PRIME
        for factor, power in term.factors:
            image = self._atom(factor)
            if image is None:
                return None
            found = found * pow(image, power, PRIME) % PRIME
        return found

    def _atom(self, factor: Atom) -> int | None:
        if isinstance(factor, Element):
            return _number(f"tensor {factor.tensor}")
        if factor not in self.known:
            self.known[factor] = self._function(factor) if isinstance(factor, Function) else self._extremum(factor)
        return self.known[factor]

    def _function(self, factor: Function) -> int | None:
        arguments = [self.form(argument) for argument in factor.arguments]
        return None if None in arguments else _number(f"function {factor.name} {arguments}")

    def _extremum(self, factor: Extremum) -> int | None:
        """A set is determined by its members, however often and in whatever order they come."""
        if any(family.guards for family in factor.families):
            return None
        members = [self.form(family.value) for family in factor.families]
        known = {member for member in members if member is not None}
        return None if None in members else _number(f"set {sorted(known)}")


def _size(size: Poly) -> int | None:
    """The image of a polynomial in sizes, None where it has other symbols."""
    total = 0
    for monomial, coefficient in size.terms:
        image = coefficient.numerator * pow(coefficient.denominator, -1, PRIME)
        for symbol, power in monomial:
            if not isinstance(symbol, str):
                return None
            image = image * pow(_number(f"size {symbol}"), power, PRIME) % PRIME
        total += image
    return total % PRIME


def _number(name: str) -> int:
    """A number that is not 0, the same for the same name on every run."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % (PRIME - 1) + 1

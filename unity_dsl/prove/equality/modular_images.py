"""Images of forms modulo a prime: a randomised test that two forms differ (polynomial identity testing, Schwartz 1980).

Each size and each tensor is mapped to one number, the same for all its elements; each function of forms to a number per
tuple of images of its arguments. A sum over an index is then its size times the summand. Forms with equal coefficient
functions have equal images, so forms with different images are not equal. Terms under guards, which hold at some
positions only, have no image. No images are compared if an equation between sizes is assumed.
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
    """Images of the atoms met so far. `disabled` where the conditions may equate sizes."""

    disabled: bool
    known: dict[Atom, int | None] = field(default_factory=dict)

    @classmethod
    def under(cls, conditions: Iterable[Guard]) -> Images:
        """Images under these conditions on sizes."""
        return cls(any(condition.relation is Relation.EQUAL for condition in conditions))

    def differ(self, left: Form, right: Form) -> bool:
        """Whether two forms have different images, hence are different."""
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
        """The image of a maximum: a number per set of the members' images."""
        if any(family.guards for family in factor.families):
            return None
        members = [self.form(family.value) for family in factor.families]
        known = {member for member in members if member is not None}
        return None if None in members else _number(f"set {sorted(known)}")


def _size(size: Poly) -> int | None:
    """The image of a polynomial in sizes; None where it has other symbols."""
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
    """A nonzero residue derived from a name, the same on every run."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % (PRIME - 1) + 1

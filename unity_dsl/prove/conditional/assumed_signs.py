"""Sign assumptions on forms, beside the derived signs: from domains of definition and from the conditions of branches.

Wherever 1 / a, log(a) or sqrt(a) has a value, a != 0, a > 0 or a >= 0. An application outside branches and comparisons
has a value wherever its element has one (functions/definedness.py), for all of its indices that meet its guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from ...syntax.ast import FunctionDecl
from ..decision.linear_reals import contradictory
from ..decision.signs import Sign, Signs
from ..equality.form_equality import Comparison
from ..functions.definedness import INSIDE, Domain, native
from ..functions.extrema import Sets
from ..functions.fact_laws import Laws
from ..functions.monotone_maxima import monotone_maximum
from ..functions.scalar_functions import Functions
from ..normal_form.common_factors import common_factors, common_measure, divided
from ..normal_form.form import (
    Atom,
    Element,
    Extremum,
    Family,
    Form,
    Function,
    Term,
    atom,
    is_finite,
    refresh,
    refreshed_family,
    scale,
)
from ..normal_form.form_products import multiply
from ..normal_form.guard import Guard
from ..normal_form.polynomial import ONE, number


class Known(Enum):
    """A sign assumption."""

    NONZERO = "!= 0"
    NOT_NEGATIVE = ">= 0"
    POSITIVE = "> 0"


NECESSARY = {"np.log": Known.POSITIVE, "np.sqrt": Known.NOT_NEGATIVE}
"""Sign of the argument of a native function wherever the function has a value."""


MAX_BOUNDS = 10
"""Products are formed of at most so many inequalities."""


@dataclass(frozen=True)
class Assumption:
    """All values of a family have this sign."""

    family: Family
    known: Known


def assumptions_of(domain: Domain, functions: Mapping[str, FunctionDecl]) -> Iterator[Assumption]:
    """The sign assumptions that hold wherever a tensor with this domain has a value."""
    for partial in domain:
        if _only(partial.family.value).name in INSIDE:
            continue  # in a branch or a comparison: may have no value there
        family = refreshed_family(partial.family)
        applied = _only(family.value)
        argument = refresh(applied.arguments[0])
        if applied.name == "inv":
            known: Known | None = Known.NONZERO
        else:
            decl = functions.get(applied.name.removeprefix("fn "))
            known = None if decl is None else NECESSARY.get(native(decl) or "")
        if known is not None and is_finite(argument):
            yield Assumption(Family(family.bound, family.guards, argument), known)


def _only(form: Form) -> Function:
    ((factor, _),) = form[0].factors
    assert isinstance(factor, Function)
    return factor


class AssumedSigns(Signs):
    """Derived signs, strengthened by assumptions.

    `constants` are assumptions on scalars (elements of tensors without dimensions). What follows from these and their
    products by linear arithmetic is known as well.
    """

    def __init__(self, signs: Signs, assumptions: Iterable[Assumption], constants: Iterable[Assumption] = ()) -> None:
        super().__init__(signs.arithmetic, signs.of_function, signs.elements)
        self.constants = tuple(constants)
        self.assumptions = [_measured(assumption) for assumption in (*assumptions, *self.constants)]
        self.given: tuple[Guard, ...] = ()
        self._known: dict[Form, Sign] = {}

    @contextmanager
    def where(self, guards: Iterable[Guard]) -> Iterator[None]:
        """Inside, signs are derived under these guards."""
        before = self.given
        self.given = (*before, *guards)
        yield
        self.given = before

    @contextmanager
    def assuming(self, *assumptions: Assumption) -> Iterator[None]:
        """Inside, these assumptions are added."""
        before = self.assumptions
        self.assumptions = [*map(_measured, assumptions), *before]
        yield
        self.assumptions = before

    def form(self, form: Form) -> Sign:
        found = super().form(form)
        if found is not Sign.POSITIVE and is_finite(form):
            found = self._assumed(form, found)
        if self.constants and found is Sign.UNKNOWN and is_finite(form):
            found = self._of_constants(form) if _is_constant(form) else self._of_factors(form)
        return found

    def atom(self, factor: Atom, given: tuple[Guard, ...] = ()) -> Sign:
        found = super().atom(factor, given)
        if found is Sign.POSITIVE or factor.infinities:
            return found
        found = self._assumed(atom(factor), found)
        if self.constants and found is Sign.UNKNOWN and _is_constant(atom(factor)):
            return self._of_constants(atom(factor))
        return found

    def nonzero(self, form: Form) -> bool:
        if super().nonzero(form):
            return True
        return is_finite(form) and (self._is_nonzero(form) or self._product_nonzero(form))

    def _product_nonzero(self, form: Form) -> bool:
        """Whether a form is a product of factors each known to be nonzero."""
        if len(form) != 1 or form[0].bound or form[0].guards or form[0].coefficient.inverse() is None:
            return False
        factors = form[0].factors
        if form == (Term(ONE, factors=factors[:1]),) and factors[0][1] == 1:
            return False  # an atom
        return all(self.nonzero(atom(factor)) for factor, _ in factors)

    def _of_constants(self, form: Form) -> Sign:
        """The sign of a form in scalars that follows from the constants by linear arithmetic."""
        if form not in self._known:
            positive, others = self.with_constants([], [])
            below = scale(form, number(-1))
            follows = contradictory([*positive, below], others)
            strictly = follows and contradictory(positive, [*others, below])
            self._known[form] = Sign.POSITIVE if strictly else Sign.NOT_NEGATIVE if follows else Sign.UNKNOWN
        return self._known[form]

    def with_constants(self, positive: list[Form], others: list[Form]) -> tuple[list[Form], list[Form]]:
        """(positive forms, non-negative forms): the given ones, those of the constants, and products of these."""
        kinds = (Known.POSITIVE, Known.NOT_NEGATIVE)
        strict, weak = ([one.family.value for one in self.constants if one.known is kind] for kind in kinds)
        known, every = (strict, [*strict, *weak]), ([*strict, *positive], [*strict, *weak, *positive, *others])
        if not self.constants or len(every[1]) > MAX_BOUNDS:
            return [*strict, *positive], [*weak, *others]
        made = ([multiply(a, b) for a in left for b in right] for left, right in zip(known, every, strict=True))
        above, least = made
        return [*every[0], *above], [*weak, *others, *least]

    def _of_factors(self, form: Form) -> Sign:
        """The sign of a factor that all terms share times the rest, if both are >= 0 or both are <= 0."""
        shared = {a: n for a, n in common_factors(form, ()).items() if _is_constant(atom(a)) or len(form) > 1}
        if not shared or any(term.bound or term.guards for term in form):
            return Sign.UNKNOWN
        factor, power = next(iter(shared.items()))
        rest = divided(form, ONE, {factor: power})
        sides = (Term(ONE, factors=((factor, power),)),), rest
        if form == sides[0]:
            return Sign.UNKNOWN
        above, below = (min(self.form(scale(side, number(sign))) for side in sides) for sign in (1, -1))
        return max(above, below)

    def _assumed(self, form: Form, found: Sign) -> Sign:
        """The sign by an assumption, where it is stronger than `found`."""
        for assumption in self.assumptions:
            if assumption.known is not Known.NONZERO and self._meets(form, assumption):
                known = Sign.POSITIVE if assumption.known is Known.POSITIVE else Sign.NOT_NEGATIVE
                found = max(found, known)
        return Sign.POSITIVE if found is Sign.NOT_NEGATIVE and self._is_nonzero(form) else found

    def _is_nonzero(self, form: Form) -> bool:
        strict = [one for one in self.assumptions if one.known is not Known.NOT_NEGATIVE]
        sides = (form, scale(form, number(-1)))
        return any(self._meets(side, assumption) for assumption in strict for side in sides)

    def _meets(self, form: Form, assumption: Assumption) -> bool:
        """Whether a form is a positive multiple of a value of an assumption's family."""
        if not form or _heads(form) != _heads(assumption.family.value):
            return False
        measured = _over(form)
        if not assumption.family.bound and not assumption.family.guards and measured == assumption.family.value:
            return True
        return Comparison(self.arithmetic).member([assumption.family], Family((), (), measured), self.given)


def _is_constant(form: Form) -> bool:
    """Whether a form consists only of elements of tensors without dimensions."""
    return not any(term.bound or term.guards for term in form) and all(
        isinstance(factor, Element) and not factor.index for term in form for factor, _ in term.factors
    )


def _measured(assumption: Assumption) -> Assumption:
    family = assumption.family
    return Assumption(Family(family.bound, family.guards, _over(family.value)), assumption.known)


def _over(form: Form) -> Form:
    """The form divided by the greatest positive rational times product of sizes in all its coefficients."""
    inverse = common_measure(form).inverse()
    return form if inverse is None else scale(form, inverse)


def _heads(form: Form) -> list[str]:
    """The head symbols of the factors, without indices: a filter, since equal forms mostly have equal heads."""
    return sorted(_head(factor) for term in form for factor, _ in term.factors)


def _head(factor: Atom) -> str:
    match factor:
        case Element(tensor):
            return tensor
        case Function(name):
            return name
        case Extremum():
            return "max"


class AssumingFunctions(Functions):
    """The element functions under sign assumptions. Facts used are recorded in the wrapped functions."""

    signs: AssumedSigns

    def __init__(
        self, functions: Functions, assumptions: Iterable[Assumption], constants: Iterable[Assumption] = ()
    ) -> None:
        laws: Laws = functions.laws
        super().__init__(laws, functions.arithmetic)
        known = functions.signs.constants if isinstance(functions, AssumingFunctions) else ()
        self.signs = AssumedSigns(self.signs, assumptions, (*known, *constants))
        self.sets = Sets(self.signs, laws.powers, lambda members: monotone_maximum(self, members))
        self.used = functions.used

"""Domains of definition: the applications of partial functions on which each element of a tensor depends.

A normal form loses undefinedness where terms cancel, log(x) - log(x) = 0. Each tensor therefore carries its partial
applications beside its form. An element has a value if all of them have one; for those outside branches, only if.
Infinity is a value; inf - inf and 0 * inf have none (decision/extended_reals.py). A comparison always has a value, 0
(`!=`: 1) where a side has none; so a comparison atom contains the partial applications of its sides, and two
comparisons are equal only if their sides are and are undefined at the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...syntax.ast import FunctionDecl, Name
from ..decision.extended_reals import is_exact, opposed, total_at, undefined_product, undefined_sum
from ..decision.signs import Sign, Signs
from ..normal_form.case_split import cases
from ..normal_form.common_factors import common_coefficient, common_factors, divided, numerators
from ..normal_form.form import (
    Family,
    Form,
    Function,
    Unsupported,
    atom,
    function,
    infinities,
    is_finite,
    numbered_family,
    refreshed_family,
    substitute_family,
)
from ..normal_form.guard import Guard, settled
from ..normal_form.polynomial import ONE, Poly, Var

TOTAL = frozenset(
    f"np.{name}" for name in ("abs", "cos", "exp", "expm1", "floor", "maximum", "minimum", "sign", "sin", "tanh")
) | {"math.erf"}
"""Native functions that are total on the reals."""
DOMAINS = {"np.log": Sign.POSITIVE, "np.sqrt": Sign.NOT_NEGATIVE, "np.power": Sign.POSITIVE}
"""Domains of partial native functions: the sign of the first argument under which they have a value."""
INSIDE = ("then", "otherwise")
SUMS = {"sum": "a sum of infinities of opposite sign", "product": "a product of zero and infinity"}
"""Descriptions of arithmetic that has no value for some infinite operands."""
MAX_PARTIALS = 400
"""Limit of partial applications of one element."""


@dataclass(frozen=True)
class Partial:
    """A partial application on which an element depends: the atom of the family's value, for all its indices.

    An application in a branch is wrapped in a function of the condition, `then(c, 1 / a)`. It may have no value where
    the element has one, namely where the branch is not taken.
    """

    family: Family

    @property
    def function(self) -> Function:
        """The application without its branches."""
        return _bare(self.family.value)

    @property
    def weaker(self) -> Iterator[Partial]:
        """The partial application itself, then without its outermost branch, and so on.

        Each implies those before it.
        """
        yield self
        factor = _only(self.family.value)
        while factor.name in INSIDE:
            value = factor.arguments[-1]
            yield Partial(replace(self.family, value=value))
            factor = _only(value)

    def substitute(self, mapping: Mapping[Var, Poly]) -> Partial:
        return replace(self, family=substitute_family(self.family, mapping))


Domain = tuple[Partial, ...]


class Applications:
    """Records the partial applications of an equation while its form is built, if `followed`."""

    def __init__(self) -> None:
        self.followed = False
        self.met: list[Partial] = []

    def divide(self, divisor: Form, signs: Signs, exponentials: frozenset[str]) -> None:
        """Records 1 / divisor."""
        if self.followed:
            for guards, (part,) in cases((divisor,)):
                for form in () if is_exact(part) else _roots(part, signs, exponentials):
                    self._meet(guards, function("inv", [form]))

    def call(self, decl: FunctionDecl, arguments: list[Form]) -> None:
        """Records a primitive at these arguments, unless it is total there."""
        if self.followed and not (native(decl) in TOTAL and total_at(decl, arguments)):
            for guards, parts in cases(tuple(arguments)):
                if native(decl) not in TOTAL or not total_at(decl, parts):
                    self._meet(guards, function(f"fn {decl.name}", parts))

    def add(self, left: Form, right: Form) -> None:
        """Records a sum that may be inf - inf."""
        if self.followed and opposed(left, right):
            for guards, parts in cases((left, right)):
                if opposed(*parts):
                    self._meet(guards, undefined_sum(*parts))

    def sum(self, form: Form) -> None:
        """Records a sum over indices whose terms may be infinite with both signs."""
        if self.followed and len(infinities(form)) > 1:
            self._meet((), function("sum", [tuple(term for term in form if term.infinities)]))

    def multiply(self, left: Form, right: Form, signs: Signs) -> None:
        """Records a product that may be 0 * inf."""
        if self.followed and not (is_finite(left) and is_finite(right)):
            for guards, parts in cases((left, right)):
                pairs = (parts, parts[::-1])
                if any(not is_finite(a) and not (is_exact(b) or signs.nonzero(b)) for a, b in pairs):
                    self._meet(guards, undefined_product(*parts))

    def read(self, domain: Domain, mapping: Mapping[Var, Poly], guards: Iterable[Guard]) -> None:
        """Records the domain of an element that is read where the guards hold."""
        for partial in domain:
            family = refreshed_family(partial.substitute(mapping).family)
            self.met.append(Partial(replace(family, guards=(*family.guards, *guards))))

    def _meet(self, guards: tuple[Guard, ...], factor: Function) -> None:
        self.met.append(Partial(Family((), guards, atom(factor))))

    @contextmanager
    def guarded(self, condition: Guard) -> Iterator[None]:
        """Adds a guard to what is recorded inside."""
        begun = len(self.met)
        yield
        families = [partial.family for partial in self.met[begun:]]
        self.met[begun:] = [Partial(replace(family, guards=(*family.guards, condition))) for family in families]

    @contextmanager
    def inside(self, name: str, *arguments: Form) -> Iterator[None]:
        """Wraps what is recorded inside in a branch of a condition."""
        begun = len(self.met)
        yield
        families = [partial.family for partial in self.met[begun:]]
        values = [atom(function(name, [*arguments, family.value])) for family in families]
        self.met[begun:] = [
            Partial(replace(family, value=value)) for family, value in zip(families, values, strict=True)
        ]

    @contextmanager
    def apart(self) -> Iterator[list[Partial]]:
        """Yields what is recorded inside, without recording it outside."""
        before, self.met = self.met, []
        try:
            yield self.met
        finally:
            self.met = before

    @contextmanager
    def total(self, what: str) -> Iterator[None]:
        """Raises Unsupported if anything is recorded inside."""
        begun = len(self.met)
        yield
        if len(self.met) != begun:
            raise Unsupported(f"a quotient or a partial function in {what}")

    @contextmanager
    def unfollowed(self) -> Iterator[None]:
        """Records nothing inside: the right side of a fact has a value wherever its left side has one."""
        before, self.followed = self.followed, False
        try:
            yield
        finally:
            self.followed = before

    def collected(self, over: tuple[Var, ...]) -> Domain:
        """The recorded applications, bound over reduced indices and deduplicated; ends the record.

        Raises Unsupported for too many.
        """
        found: dict[Partial, None] = {}
        for partial in self.met:
            family = partial.family
            if settled(family.guards) is None:
                continue
            bound = tuple(var for var in over if var in family.free)
            family = numbered_family(replace(family, bound=family.bound + bound))
            found[Partial(family)] = None
        self.met = []
        if len(found) > MAX_PARTIALS:
            raise Unsupported(f"more than {MAX_PARTIALS} quotients and partial functions")
        return tuple(found)


def _only(form: Form) -> Function:
    ((factor, _),) = form[0].factors
    assert isinstance(factor, Function)
    return factor


def _bare(form: Form) -> Function:
    factor = _only(form)
    return _bare(factor.arguments[-1]) if factor.name in INSIDE else factor


def _roots(form: Form, signs: Signs, exponentials: frozenset[str]) -> Iterator[Form]:
    """The factors of a form: wherever it has a value, it is nonzero if and only if all of these are."""
    if not is_finite(form):
        yield form
        return
    for denominator, numerator in numerators(form) if len(form) > 1 else ():
        if signs.nonzero(denominator):
            yield from _roots(numerator, signs, exponentials)
            return
    shared = common_factors(form, exponentials)
    for factor in shared:
        never = isinstance(factor, Function) and (factor.name in exponentials or factor.name == "inv")
        if never and isinstance(factor, Function) and all(map(is_finite, factor.arguments)):
            continue  # nonzero at every finite argument
        yield atom(factor)
    guarded = any(term.guards for term in form)
    coefficient = ONE if guarded else common_coefficient(form)
    rest = divided(form, ONE if coefficient.inverse() is None else coefficient, shared)
    if len(rest) != 1 or rest[0].factors or rest[0].bound or rest[0].coefficient != ONE or guarded:
        yield rest


def native(decl: FunctionDecl) -> str | None:
    """The native function that a primitive calls, None where its `numpy:` line is composed of several."""
    plain = decl.numpy is not None and decl.numpy.arguments == tuple(Name(name) for name in decl.parameters)
    return decl.numpy.function if decl.numpy is not None and plain else None


def has_value(factor: Function, signs: Signs, functions: Mapping[str, FunctionDecl]) -> bool:
    """Whether an application is known to have a value wherever its arguments have one."""
    if factor.name == "inv":
        return signs.nonzero(factor.arguments[0])
    if factor.name in SUMS or not all(map(is_finite, factor.arguments)):
        return False
    needed = DOMAINS.get(native(functions[factor.name.removeprefix("fn ")]) or "")
    return needed is not None and signs.form(factor.arguments[0]) >= needed


def is_total_function(factor: Function, functions: Mapping[str, FunctionDecl]) -> bool:
    """Whether an application of a primitive is total: it has a value wherever its arguments have one."""
    decl = functions.get(factor.name.removeprefix("fn "))
    return decl is not None and native(decl) in TOTAL


def partial_name(factor: Function) -> str:
    """The name of a partial application for diagnostics."""
    if factor.name in SUMS:
        return SUMS[factor.name]
    return "a quotient" if factor.name == "inv" else f"`{factor.name.removeprefix('fn ')}`"

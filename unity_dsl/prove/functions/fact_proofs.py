"""Proves declared facts of element functions; says which are assumed, and which assumed facts a proof uses.

There are two methods. Over the reals: with definitions inlined, both sides are piecewise polynomial, with the exact
semantics of maximum, minimum, abs and sqrt; z3 shows that no reals that meet the conditions falsify the fact. By the
prover's normal form: from facts declared before it. Both also prove that both sides have a value where the conditions
hold. Any other fact is assumed: it is tested at points when it is read, and never called proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...index.equations.term import free_axes
from ...index.equations.term_text import fact_text
from ...index.library import LIBRARIES, Library
from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from ..decision.integer_arithmetic import Arithmetic
from ..decision.real_arithmetic import true_over_reals
from ..decision.signs import Sign
from ..equality.form_equality import Comparison
from ..normal_form.form import Element, Unsupported, atom
from .definedness import TOTAL
from .fact_laws import Use, laws_from, use_of
from .fact_patterns import Values
from .scalar_functions import Functions

DOMAINS = {"np.log": ">", "np.sqrt": ">="}
"""Domains of partial native functions, as comparisons of the argument with 0."""


@dataclass(frozen=True)
class FactStatus:
    """The status of a fact. `method` proves it, None if it is assumed.

    `resting_on` are the assumed facts the proof uses.

    `use` is its role in the prover, None for none.
    """

    function: str
    fact: FactDecl
    method: str | None
    resting_on: tuple[FactDecl, ...]
    use: Use | None

    @property
    def text(self) -> str:
        return fact_text(self.fact)

    @property
    def foundations(self) -> tuple[FactDecl, ...]:
        """The assumed facts that a use of this fact depends on."""
        return (self.fact,) if self.method is None else self.resting_on


class FactStatuses:
    """The status of every fact of a library, computed lazily. A proof uses earlier facts only."""

    def __init__(self, library: Library) -> None:
        self.functions = library.functions
        self.pairs = [(function, fact) for function in library.functions.values() for fact in function.facts]
        self.places = {id(fact): place for place, (_, fact) in enumerate(self.pairs)}
        self.known: dict[int, FactStatus] = {}

    def of(self, function: FunctionDecl) -> tuple[FactStatus, ...]:
        """The statuses of a function's facts, in order of declaration."""
        return tuple(self.status(self.places[id(fact)]) for fact in function.facts)

    def status(self, place: int) -> FactStatus:
        """The status of the fact at this position among the library's declarations."""
        if place not in self.known:
            function, fact = self.pairs[place]
            method, resting_on = self._proof(place, fact)
            use = use_of(function, fact, self.functions)
            self.known[place] = FactStatus(function.name, fact, method, resting_on, use)
        return self.known[place]

    def _proof(self, place: int, fact: FactDecl) -> tuple[str | None, tuple[FactDecl, ...]]:
        if true_over_reals(fact, self.functions):
            return "by reals", ()
        used = _by_normal_form(fact, self.pairs[:place], self.functions)
        if used is None:
            return None, ()
        found = [self.status(self.places[id(other)]) for other in used]
        assumed = [fact for status in found for fact in status.foundations]
        return "by normal form", tuple({id(fact): fact for fact in assumed}.values())


@lru_cache(maxsize=LIBRARIES)
def _statuses(library: Library) -> FactStatuses:
    return FactStatuses(library)


def assumed_facts(used: Iterable[FactDecl], library: Library) -> tuple[str, ...]:
    """The assumed facts that a proof with these facts depends on, deduplicated."""
    return tuple(dict.fromkeys(fact_text(fact) for one in used for fact in foundations(one, library)))


def foundations(fact: FactDecl, library: Library) -> tuple[FactDecl, ...]:
    """The assumed facts that a use of a fact of the library depends on."""
    statuses = _statuses(library)
    return statuses.status(statuses.places[id(fact)]).foundations


def fact_lines(function: FunctionDecl, library: Library) -> tuple[str, ...]:
    """The facts of a function with their status, one line each, followed by the assumed facts that its proof uses."""
    found = FactStatuses(library).of(function)
    width = max((len(status.text) for status in found), default=0)
    lines = []
    for status in found:
        told = "assumed" if status.method is None else f"proved {status.method}"
        lines.append(f"{status.text:<{width}}  {told}")
        lines += [f"  from {fact_text(fact)}" for fact in status.resting_on]
    return tuple(lines)


# ---------------------------------------------------------------------------------------------- by normal form


def _by_normal_form(
    fact: FactDecl, before: list[tuple[FunctionDecl, FactDecl]], declared: Mapping[str, FunctionDecl]
) -> tuple[FactDecl, ...] | None:
    """The facts that prove this one by normal form, None where it is not proved. Conditions are signs of names."""
    elements: dict[str, Sign] = {}
    for condition in fact.conditions:
        assumed = _assumed_sign(condition)
        if assumed is not None:
            name, sign = assumed
            elements[name] = max(sign, elements.get(name, Sign.UNKNOWN))
    functions = Functions(laws_from(before, declared), Arithmetic(), elements)
    names: Values = {name: atom(Element(name, ())) for name in free_axes(fact.claim)}
    try:
        shown = all(_has_value(side, names, functions) for side in fact.claim.arguments)
        if not (shown and _holds(fact.claim, names, functions)):
            return None
    except Unsupported:
        return None
    return tuple(functions.used.values())


def _assumed_sign(condition: Apply) -> tuple[str, Sign] | None:
    match condition:
        case Apply(">" | ">=" as sign, (Name(name), Number(value))) if value >= 0:
            return name, Sign.POSITIVE if sign == ">" or value > 0 else Sign.NOT_NEGATIVE
    return None


def _holds(claim: Apply, names: Values, functions: Functions) -> bool:
    if claim.function != "==":
        return functions.meets(claim, names)
    left, right = (functions.value(side, names) for side in claim.arguments)
    return Comparison(Arithmetic()).equal(left, right)


def _has_value(expr: Expr, names: Values, functions: Functions) -> bool:
    """Whether an expression is known to have a value: divisors are nonzero, arguments are in the domain."""
    match expr:
        case Number() | Name():
            return True
        case Select():
            return False
        case Apply(name, arguments):
            if not all(_has_value(argument, names, functions) for argument in arguments):
                return False
            values = [functions.value(argument, names) for argument in arguments]
            if name == "/":
                return functions.signs.nonzero(values[1])
            decl = functions.laws.functions.get(name)
            if decl is None:
                return name not in ("//", "%")
            if decl.definition is not None:
                return _has_value(decl.definition, dict(zip(decl.parameters, values, strict=True)), functions)
            return _in_domain(decl, names=dict(zip(decl.parameters, values, strict=True)), functions=functions)
    return False


def _in_domain(decl: FunctionDecl, names: Values, functions: Functions) -> bool:
    call = decl.numpy
    if call is None or call.arguments != tuple(Name(name) for name in decl.parameters):
        return False
    if call.function in TOTAL:
        return True
    sign = DOMAINS.get(call.function)
    return sign is not None and functions.meets(Apply(sign, (Name(decl.parameters[0]), Number(0))), names)

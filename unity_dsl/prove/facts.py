"""Facts of element functions: which are proved, from what, and which are assumed.

Two methods. By reals: both sides are piecewise polynomial once definitions are put in, with the exact meaning of the
primitives maximum, minimum, abs and sqrt; z3 shows that no real numbers that meet the conditions contradict the fact.
By the normal form of the prover, from facts that are declared before it. Both also show that both sides have a value
wherever the conditions hold. Any other fact is assumed: tried at points when it is read, and never called proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..index.library import Library
from ..index.notation import condition_text
from ..index.term import free_axes
from ..syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from .arithmetic import Arithmetic
from .compare import Comparison
from .form import Element, Unsupported, atom
from .functions import Functions
from .laws import laws_from, use_of
from .pattern import Values
from .reals import holds_in_reals
from .sign import Sign

TOTAL = frozenset(
    {f"np.{name}" for name in ("abs", "cos", "exp", "expm1", "floor", "maximum", "minimum", "sign", "sin", "tanh")}
    | {"math.erf"}
)
"""Functions that have a value everywhere."""
DOMAINS = {"np.log": ">", "np.sqrt": ">="}
"""Functions that have a value where their argument compares so with 0."""


@dataclass(frozen=True)
class FactStatus:
    """A fact of a function. `method` is how it is proved, None if it is assumed; `resting_on` what is assumed for it.

    `use` is what the prover does with it, None for nothing.
    """

    function: str
    fact: FactDecl
    method: str | None
    resting_on: tuple[FactDecl, ...]
    use: str | None

    @property
    def text(self) -> str:
        where = ", ".join(map(condition_text, self.fact.conditions))
        return condition_text(self.fact.claim) + (f" where {where}" if where else "")


def fact_statuses(library: Library) -> Iterator[FactStatus]:
    """Every fact of a library, in the order of declaration, with its status. A proof rests on earlier facts only."""
    before: list[tuple[FunctionDecl, FactDecl]] = []
    known: dict[int, FactStatus] = {}
    for function in library.functions.values():
        for fact in function.facts:
            use = use_of(function, fact, library.functions)
            method, used = None, ()
            if holds_in_reals(fact, library.functions):
                method = "by reals"
            else:
                found = _by_normal_form(fact, before, library.functions)
                if found is not None:
                    method, used = "by normal form", found
            assumed: dict[int, FactDecl] = {}
            for other in used:
                status = known[id(other)]
                assumed |= {id(f): f for f in ((other,) if status.method is None else status.resting_on)}
            status = FactStatus(
                function.name, fact, method, tuple(assumed.values()), None if use is None else use.value
            )
            known[id(fact)] = status
            before.append((function, fact))
            yield status


def fact_lines(name: str, library: Library) -> list[str]:
    """The facts of a function with their status, a line each and one for what a proof rests on."""
    found = [status for status in fact_statuses(library) if status.function == name]
    width = max((len(status.text) for status in found), default=0)
    lines = []
    for status in found:
        told = "assumed" if status.method is None else f"proved {status.method}"
        lines.append(f"{status.text:<{width}}  {told}")
        lines += [f"  from {condition_text(fact.claim)}" for fact in status.resting_on]
    return lines


# ---------------------------------------------------------------------------------------------- by normal form


def _by_normal_form(
    fact: FactDecl, before: list[tuple[FunctionDecl, FactDecl]], declared: Mapping[str, FunctionDecl]
) -> tuple[FactDecl, ...] | None:
    """The facts from which this one follows, None where it is not shown. Conditions are signs of names."""
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
    return tuple(functions.used)


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
    """Whether an expression is known to have a value: what is divided by is not 0, arguments lie in their domain."""
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

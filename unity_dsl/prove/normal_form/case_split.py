"""Case split on guards inside function arguments: f([g] a + [¬g] b) = [g] f(a) + [¬g] f(b).

This is how a function of a concatenation becomes a concatenation of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .form import Form, Term, Unsupported, add, guarded
from .guard import Guard, settled
from .step_limit import spend

MAX_CASES = 64

Case = tuple[tuple[Guard, ...], tuple[Form, ...]]
Outer = Callable[[Guard, Term], bool]
CaseValue = Callable[[tuple[Form, ...], tuple[Guard, ...]], Form]


def is_outer(condition: Guard, term: Term) -> bool:
    """Whether a guard mentions no index that its term binds, so that it can be moved out of the term."""
    return condition.variables.isdisjoint(term.bound)


def split(arguments: tuple[Form, ...], value: Callable[[tuple[Form, ...]], Form], outer: Outer = is_outer) -> Form:
    """The sum over all cases of the arguments' outer guards of [case] × `value`.

    Raises Unsupported for too many cases.
    """
    return split_given(arguments, lambda parts, _: value(parts), outer)


def split_given(arguments: tuple[Form, ...], value: CaseValue, outer: Outer = is_outer) -> Form:
    """As `split`; `value` also gets the guards of the case."""
    found = []
    for count, (guards, parts) in enumerate(cases(arguments, outer), 1):
        if count > MAX_CASES:
            raise Unsupported(f"more than {MAX_CASES} cases in the argument of a function")
        found.append(guarded(guards, value(parts, guards)))
    return add(*found)


def cases(arguments: tuple[Form, ...], outer: Outer = is_outer, taken: tuple[Guard, ...] = ()) -> Iterator[Case]:
    """Each consistent choice of truth values for the outer guards, with the arguments simplified under it."""
    conditions = [g for form in arguments for term in form for g in term.guards if outer(g, term)]
    if not conditions:
        yield taken, arguments
        return
    spend(len(conditions))
    first = conditions[0]
    for condition in (first, first.negated()):
        if settled((*taken, condition)) is not None:
            yield from cases(tuple(_given(form, condition) for form in arguments), outer, (*taken, condition))


def _given(form: Form, condition: Guard) -> Form:
    """The form simplified under a condition: implied guards are dropped, contradicted terms removed."""
    negated = condition.negated()
    return tuple(
        replace(term, guards=tuple(g for g in term.guards if g != condition))
        for term in form
        if negated not in term.guards
    )

"""Case split: guards inside function arguments are taken out, f([g] a + [¬g] b) = [g] f(a) + [¬g] f(b).

A function of a concatenation is a concatenation of functions: f([g] a + [not g] b) = [g] f(a) + [not g] f(b).
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
    """Whether a guard of a term mentions none of its bound indices."""
    return condition.variables.isdisjoint(term.bound)


def split(arguments: tuple[Form, ...], value: Callable[[tuple[Form, ...]], Form], outer: Outer = is_outer) -> Form:
    """`value` of the arguments, case by case of their outer guards. Raises Unsupported where they are too many."""
    return split_given(arguments, lambda parts, _: value(parts), outer)


def split_given(arguments: tuple[Form, ...], value: CaseValue, outer: Outer = is_outer) -> Form:
    """As `split`, where `value` is also told under which guards the case stands."""
    found = []
    for count, (guards, parts) in enumerate(cases(arguments, outer), 1):
        if count > MAX_CASES:
            raise Unsupported(f"more than {MAX_CASES} cases in the argument of a function")
        found.append(guarded(guards, value(parts, guards)))
    return add(*found)


def cases(arguments: tuple[Form, ...], outer: Outer = is_outer, taken: tuple[Guard, ...] = ()) -> Iterator[Case]:
    """Every way in which the outer guards can hold or fail, with the arguments that are left then."""
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
    """The form where a condition is known to hold."""
    negated = condition.negated()
    return tuple(
        replace(term, guards=tuple(g for g in term.guards if g != condition))
        for term in form
        if negated not in term.guards
    )

"""Minimises the assumed facts that a proof depends on, by deletion, as a minimal unsatisfiable core is extracted.

A fact is applied wherever it matches, on both sides alike, so a proof may use facts that the equality does not need:
`exp(x) => exp(x)`. The proof is repeated with facts withheld: first all assumed ones, then one after the other. The
remaining facts are those of the last proof that succeeded, so no fact that it uses is missing. They may be more than is
needed: a repetition has a step budget, and only one of several minimal sets is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...index.library import Library
from ...syntax.ast import FactDecl
from ..answer import ASSUMED, Answer, NotProved, Obligation, Proved
from ..normal_form.step_limit import Unsupported, limited
from .fact_proofs import assumed_facts, foundations

MORE_STEPS = 1_000
"""Number of steps that a repetition may take in addition to those of the proof."""


def with_assumed_facts(
    found: Answer, library: Library, again: Callable[[Library], Answer] | None = None, steps: int = 0
) -> Answer:
    """A proof with its assumed facts as obligations, minimised by `again`, which repeats it with another library.

    `steps` is the number of steps that the proof took. Other answers are returned as they are.
    """
    if not isinstance(found, Proved):
        return found
    if again is not None:
        found = _minimised(found, library, again, steps + MORE_STEPS)
    assumed = (Obligation(ASSUMED, text) for text in assumed_facts(found.facts, library))
    return replace(found, obligations=(*found.obligations, *assumed))


def _minimised(found: Proved, library: Library, again: Callable[[Library], Answer], steps: int) -> Proved:
    seconds = found.seconds
    needed = _assumed(found, library)
    for withheld in (needed, *((fact,) for fact in needed if len(needed) > 1)):
        remaining = _assumed(found, library)
        if not any(fact in remaining for fact in withheld):
            continue
        allowed = {id(fact) for fact in remaining if fact not in withheld}
        usable = [fact for fact in found.facts if {id(base) for base in foundations(fact, library)} <= allowed]
        answer = _repeated(again, _restricted(library, usable), steps)
        seconds += answer.seconds
        if isinstance(answer, Proved):
            found = answer
    return replace(found, seconds=seconds)


def _assumed(found: Proved, library: Library) -> tuple[FactDecl, ...]:
    bases = (base for fact in found.facts for base in foundations(fact, library))
    return tuple({id(base): base for base in bases}.values())


def _repeated(again: Callable[[Library], Answer], library: Library, steps: int) -> Answer:
    try:
        with limited(steps):
            return again(library)
    except Unsupported as reason:
        return NotProved("same_value", str(reason), 0.0)


def _restricted(library: Library, facts: Iterable[FactDecl]) -> Library:
    """The library with only these facts."""
    usable = {id(fact) for fact in facts}
    functions = {
        name: replace(decl, facts=tuple(fact for fact in decl.facts if id(fact) in usable)) if decl.facts else decl
        for name, decl in library.functions.items()
    }
    return replace(library, functions=functions)

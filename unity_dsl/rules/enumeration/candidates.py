"""The candidates of a context: rules that hold on random operands, distinct up to renaming. The prover decides about
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from ...collector import collector_paused
from ...index.library import Library
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.parse_rules import GraphCall, RuleDecl, parse_rules
from ...syntax.span import Source
from .application import Values
from .context import Context, totals_text
from .equations import Equation, Typing, holds, is_instance, pair_typing
from .fingerprints import sizes_for
from .rule_text import rule_of
from .signature import read_signature
from .terms import Pool, Term, is_wider

NUMBERS = {"c": 1.375, "d": -0.71875}
"""Values of the real numbers in a context's graphs."""


@dataclass(frozen=True)
class Counts:
    """Numbers of graphs, evaluated graphs, graphs without finite values, classes of equal graphs, pairs and candidates.
    A pair is a graph and the first graph of its class, at types that link all dimensions of equal size in the context.
    """

    terms: int
    evaluated: int
    undefined: int
    classes: int
    pairs: int
    candidates: int


@dataclass(frozen=True)
class Enumeration:
    """The candidates of a context, and the number of graphs at each stage."""

    candidates: tuple[RuleDecl, ...]
    counts: Counts


@collector_paused()
def candidates(context: Context, library: Library) -> Enumeration:
    """All substitutions over the context's operands that are most general at their types. Deterministic.

    Raises E509 if a signature of the context does not fit the library.
    """
    pool = pool_of(context, library)
    pool.run()
    found: dict[str, RuleDecl] = {}
    pairs = 0
    wanted = totals_text(context.inputs)
    typing = Typing(context.inputs, context.degrees)
    for left, right in _pairs(pool):
        if not _has_any((*left, *right), context.only):
            continue
        pairs += 1
        typed = pair_typing(left, right, typing)
        if typed is not None and totals_text(typed.inputs) == wanted:
            found |= {rule.name: rule for rule in _judged(typed.equation(), pool)}
    counts = Counts(**asdict(pool.counts), pairs=pairs, candidates=len(found))
    return Enumeration(tuple(found.values()), counts)


def _has_any(roots: Sequence[Term], only: frozenset[str]) -> bool:
    """Whether a graph has one of these operators; true if `only` is empty."""
    pending = list(roots)
    while pending and only:
        term = pending.pop()
        if term.application is not None and not only.isdisjoint(term.application.signature.operators):
            return True
        pending += term.operands
    return not only


def _judged(equation: Equation, pool: Pool) -> tuple[RuleDecl, ...]:
    """The rules of an equation; none if it follows from others or does not hold at its types."""
    degrees = pool.context.degrees
    conditions: tuple[Apply, ...] = ()
    try:
        if is_instance(equation, pool.library, degrees):
            return ()
        if not holds(equation, pool.library, degrees):
            if not holds(equation, pool.library, degrees, signs=(1, 1)):
                return ()
            conditions = (Apply(">=", (Name("c"), Number(0))),)
    except ValueError:  # no sizes were found at which all tensors have elements
        return ()
    return tuple(_rules(equation, conditions))


def pool_of(context: Context, library: Library) -> Pool:
    """The pool of a context before any graph is made."""
    sizes = sizes_for(context.inputs, context.degrees)
    signatures = [read_signature(text, library) for text in context.signatures]
    values = Values(library, sizes, NUMBERS)
    return Pool(context, library, signatures, [number_expr(text) for text in context.numbers], values)


@lru_cache(maxsize=256)
def number_expr(text: str) -> Expr:
    """A real number of a table, such as `c * d`, as an expression."""
    (rule,) = parse_rules(Source("number", f"rule number(x: [m])\n  scale(x; factor={text}) => x\n")).rules
    (call,) = rule.left
    assert isinstance(call, GraphCall)
    return dict(call.attributes)["factor"]


def _pairs(pool: Pool) -> Iterator[tuple[tuple[Term, ...], tuple[Term, ...]]]:
    """Pairs of equal graphs, first with one output each, then with two. Each pair reads all inputs of the context.

    A pair is left out if its types do not link all dimensions of equal size in the context: it belongs to a more
    general one.
    """
    for term, first in pool.equal:
        if term.inputs | first.inputs == pool.full and pool.links.join(term.links, first.links) == pool.links.whole:
            yield (term,), (first,)
    yield from _pairs_of_two(pool)


def _pairs_of_two(pool: Pool) -> Iterator[tuple[tuple[Term, ...], tuple[Term, ...]]]:
    """Pairs of outputs that share an operator, where each output reads an input that its equal does not. The equation
    is therefore not two rules of one output each.

    The left side has the two graphs that read fewer inputs, the right side the two that share, such as the split
    product of concatenated matrices.
    """
    links, most = pool.links, pool.context.operators
    wider = [(term, first, links.join(term.links, first.links)) for term, first in pool.equal if is_wider(term, first)]
    for place, (term, first, linked) in enumerate(wider):
        for other, second, beside in wider[:place]:
            if term.operators & other.operators == 0 or (term.operators | other.operators).bit_count() > most:
                continue
            if first is second or (first.operators | second.operators).bit_count() > most:
                continue
            if first.inputs | second.inputs == term.inputs | other.inputs == pool.full:
                if links.union(linked, beside) == links.whole:
                    yield (second, first), (other, term)


def _rules(equation: Equation, conditions: tuple[Apply, ...]) -> Iterator[RuleDecl]:
    """The rules of an equation: left to right, and also right to left if the right side has all inputs and numbers."""
    for one, other in ((equation.left, equation.right), (equation.right, equation.left)):
        rule = rule_of(equation.types, one, other, conditions)
        if rule is not None:
            yield rule


__all__ = ["Counts", "Enumeration", "candidates"]

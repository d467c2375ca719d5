"""The candidates of a context: rules that hold on random operands, distinct up to renaming, for the prover to judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...index.library import Library
from ...syntax.ast import Expr
from ...syntax.canonical_text import canonical_text
from ...syntax.parse_rules import GraphCall, RuleDecl, parse_rules
from ...syntax.span import Source
from .application import Values
from .context import Context, context_totals
from .equations import Equation, equation_of, holds, is_instance, stable_hash
from .fingerprints import sizes_for
from .rule_text import rule_of
from .signature import read_signature
from .terms import Pool, Term

NUMBERS = {"c": 1.375, "d": -0.71875}
"""The real numbers of a context's graphs."""


@dataclass(frozen=True)
class Counts:
    """Graphs that were evaluated, those among them without finite values, classes of equal ones, pairs of a graph and
    the first of its class, and candidates.
    """

    terms: int
    undefined: int
    classes: int
    pairs: int
    candidates: int


@dataclass(frozen=True)
class Enumeration:
    """The candidates of a context, sorted by size and text, and how many there were at each stage."""

    candidates: tuple[RuleDecl, ...]
    counts: Counts


def candidates(context: Context, library: Library) -> Enumeration:
    """All substitutions over the context's operands that are most general at their types. Deterministic.

    Raises E509 where a signature of the context does not fit the library.
    """
    pool = pool_of(context, library)
    pool.run()
    found: dict[str, RuleDecl] = {}
    pairs = 0
    wanted = context_totals(context.inputs)
    for left, right in _pairs(pool):
        pairs += 1
        made = _equation(left, right, pool)
        if made is None or context_totals(made.types) != wanted:
            continue
        for rule in _rules(made):
            found.setdefault(_canonical(rule), rule)
    counts = Counts(pool.counts.terms, pool.counts.undefined, pool.counts.classes, pairs, len(found))
    return Enumeration(tuple(found.values()), counts)


def pool_of(context: Context, library: Library) -> Pool:
    """The graphs of a context, before any is made."""
    sizes = sizes_for(context.inputs, context.degrees)
    signatures = [read_signature(text, library) for text in context.signatures]
    values = Values(library, {**sizes, **dict.fromkeys(context.degrees, 2)}, NUMBERS)
    return Pool(context, library, signatures, [number_expr(text) for text in context.numbers], values)


@lru_cache(maxsize=256)
def number_expr(text: str) -> Expr:
    """A real number of a table, `c * d`, as an expression."""
    (rule,) = parse_rules(Source("number", f"rule number(x: [m])\n  scale(x; factor={text}) => x\n")).rules
    (call,) = rule.left
    assert isinstance(call, GraphCall)
    return dict(call.attributes)["factor"]


def _pairs(pool: Pool) -> Iterator[tuple[tuple[Term, ...], tuple[Term, ...]]]:
    """Graphs that are equal, one output each, then two; between them they read all inputs of the context."""
    for term, first in pool.equal:
        if term.inputs | first.inputs == pool.full:
            yield (term,), (first,)


def _equation(left: Sequence[Term], right: Sequence[Term], pool: Pool) -> Equation | None:
    """The pair at its most general types, where it holds and follows from no smaller one."""
    degrees = pool.context.degrees
    made = equation_of(left, right, pool.context.inputs, degrees)
    if made is None or not holds(made, pool.library, degrees) or is_instance(made, pool.library, degrees):
        return None
    return made


def _rules(equation: Equation) -> Iterator[RuleDecl]:
    """The rules of an equation: from left to right, and back where the right side has all inputs and numbers."""
    forward = rule_of(equation.types, equation.left, equation.right)
    if forward is not None:
        yield forward
    backward = rule_of(equation.types, equation.right, equation.left)
    if backward is not None:
        yield backward


def _canonical(rule: RuleDecl) -> str:
    return canonical_text((rule.inputs, rule.left, rule.right))


__all__ = ["Counts", "Enumeration", "candidates", "stable_hash"]

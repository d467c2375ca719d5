"""Operators of two operands that are proved commutative."""

from __future__ import annotations

from collections.abc import Iterable

from ...index.library import Library
from ...prove.answer import Proved
from ...prove.rule_proof import prove_rule
from ...syntax.ast import Name, OperatorDecl
from ...syntax.parse_rules import GraphCall, RuleDecl, RuleDim, RuleInput


def commutative_operators(names: Iterable[str], library: Library) -> frozenset[str]:
    """The named operators whose operands are proved to be exchangeable.

    This holds for operands of equal shapes, and if one lacks leading dimensions of the other.
    """
    return frozenset(
        name
        for name in names
        if name in library.operators
        and _may_commute(library.operators[name])
        and isinstance(prove_rule(exchange_rule(name), library, numbers=False), Proved)
    )


def _may_commute(operator: OperatorDecl) -> bool:
    """Whether it has exactly two operands, both declared as one rest group, and no attributes."""
    if len(operator.inputs) != 2 or len(operator.outputs) != 1 or operator.attributes or operator.extern:
        return False
    first, second = operator.inputs
    return first.dims == second.dims and len(first.dims) == 1 and first.dims[0].rest and not first.integer_range


def exchange_rule(name: str) -> RuleDecl:
    """`add(x, y) => add(y, x)` for operands of shapes `[a.., b..]` and `[b..]`; `a..` may be empty."""
    leading, group = (RuleDim(Name(letter), rest=True) for letter in ("a", "b"))
    x, y = Name("x"), Name("y")
    inputs = (RuleInput("x", (leading, group)), RuleInput("y", (group,)))
    return RuleDecl(f"exchanged_{name}", inputs, (), (), (GraphCall(name, (x, y)),), (GraphCall(name, (y, x)),))

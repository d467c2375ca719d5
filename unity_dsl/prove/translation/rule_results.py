"""Expands calls with several results in a rule: `lstm_cell(z, c)` as a side becomes two tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...index.library import Library
from ...syntax.ast import OperatorDecl, ParallelDecl
from ...syntax.diagnostic import fail
from ...syntax.parse_rules import GraphCall, GraphExpr, RuleDecl
from ...syntax.span import Span


def by_results(rule: RuleDecl, library: Library) -> RuleDecl:
    """The rule with sides of one tensor per entry. Raises E010 where their numbers differ."""
    left, right = (tuple(_tensors(side, library)) for side in (rule.left, rule.right))
    if len(left) != len(right):
        message = f"{len(left)} tensors on the left, {len(right)} on the right"
        help = "the tensors of the right side take the places of those of the left side, one by one"
        raise fail("E010", message, _place(rule), help=help)
    return rule if (left, right) == (rule.left, rule.right) else replace(rule, left=left, right=right)


def check_results(call: GraphCall, decl: OperatorDecl | ParallelDecl) -> None:
    """Raises E212 where the number of results of an operator differs from the number expected."""
    if len(decl.outputs) == call.results:
        return
    names = ", ".join(f"`{output.name}`" for output in decl.outputs)
    returned = f"{len(decl.outputs)} tensor{'s' * (len(decl.outputs) > 1)} ({names})"
    wanted = "one is needed here" if call.results == 1 else f"{call.results} names are given"
    listed = ", ".join(output.name for output in decl.outputs)
    help = f"name them first: `{listed} = {call.name}(…)`" if len(decl.outputs) > 1 else "one name takes it"
    raise fail("E212", f"`{call.name}` returns {returned}, {wanted}", call.span, help=help)


def _tensors(side: Sequence[GraphExpr], library: Library) -> Iterator[GraphExpr]:
    for expr in side:
        if isinstance(expr, GraphCall) and expr.results == 1 and expr.degrees is None:
            decl = library.operators.get(expr.name)
            results = 1 if decl is None else len(decl.outputs)
            yield from (replace(expr, result=position, results=results) for position in range(results))
        else:
            yield expr


def _place(rule: RuleDecl) -> Span | None:
    first, last = rule.left[0].span, rule.right[-1].span
    return rule.span if first is None or last is None else Span(first.source, first.start, last.end)

"""The price of both sides of a rule at given sizes: operations and bytes, an operator or a view being one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...index.cost.work import work
from ...index.library import Library
from ...prove.decision.integer_arithmetic import Arithmetic
from ...prove.translation.rule_forms import Graph, call_pattern, claim_of, declaration
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl


@dataclass(frozen=True)
class Cost:
    """Operations, bytes read and written, and the number of kernels."""

    flops: int
    bytes: int
    kernels: int


def costs(rule: RuleDecl, library: Library, sizes: Mapping[str, int], element_bytes: int = 4) -> tuple[Cost, Cost]:
    """The costs of the left and of the right side; what occurs twice on a side is computed once.

    Raises Failed and Unsupported as `Graph.sides` does.
    """
    claim = claim_of(rule)
    graph = Graph(rule, claim, library, {}, sizes, Arithmetic(claim.conditions))
    graph.sides()
    left, right = (_cost(graph, side, element_bytes) for side in (rule.left, rule.right))
    return left, right


def _cost(graph: Graph, side: tuple[GraphExpr, ...], element_bytes: int) -> Cost:
    definitions = dict(graph.rule.definitions)
    pending, seen = list(side), set[int]()
    flops = moved = kernels = 0
    while pending:
        expr = pending.pop()
        if isinstance(expr, Name):
            pending += [definitions[expr.name]] if expr.name in definitions else []
            continue
        if id(expr) in seen or not isinstance(expr, GraphCall | GraphView):
            continue
        seen.add(id(expr))
        pattern = expr if isinstance(expr, GraphView) else call_pattern(expr, declaration(expr, graph.library))
        pending += [pattern.operand] if pattern is not None else expr.arguments if isinstance(expr, GraphCall) else []
        found = work(graph.made[id(pattern or expr)].instance, element_bytes=element_bytes)
        flops, kernels = flops + int(found.flops), kernels + 1
        moved += int(found.bytes_read) + int(found.bytes_written)
    return Cost(flops, moved, kernels)

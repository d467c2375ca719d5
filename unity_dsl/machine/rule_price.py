"""The price of both sides of a rule at given sizes: the forward pass on one device, each operator as it is emitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..graph.graph import DTYPE_BYTES
from ..graph.layout import Mesh
from ..graph.layout_typing import type_operator
from ..index.cost.work import work
from ..index.equations.instance import Instance
from ..index.library import Library
from ..prove.decision.integer_arithmetic import Arithmetic
from ..prove.translation.real_attributes import real_names
from ..prove.translation.rule_forms import Graph, call_pattern, calls, claim_of, declaration, rest_groups, used_names
from ..syntax.ast import Name
from ..syntax.diagnostic import fail
from ..syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from .machine import Machine
from .operator_price import price_operator, priced_kernels

ONE_DEVICE = Mesh(())


@dataclass(frozen=True)
class SidePrice:
    """Operations, bytes that operators read and write, kernels, and seconds. Views add nothing."""

    flops: int
    bytes: int
    kernels: int
    seconds: float


def price_sides(
    rule: RuleDecl, library: Library, sizes: Mapping[str, int], machine: Machine, dtype: str = "f32"
) -> tuple[SidePrice, SidePrice]:
    """The prices of the left and of the right side; expressions that occur twice on a side are computed once.

    Raises E510 for a rule of any rank, of several devices or with real numbers, for sizes that are missing or unknown,
    and for sizes at which a condition does not hold; Failed and Unsupported as `Graph.sides` does.
    """
    claim = claim_of(rule)
    if rest_groups(rule) or real_names(rule, library) or any(call.degrees is not None for call in calls(rule)):
        raise fail("E510", f"`{rule.name}` is a rule for any rank, for any real number, or for several devices")
    names = used_names(rule, claim, {})
    for name in sizes:
        if name not in names:
            raise fail("E510", f"`{rule.name}` has no size `{name}`", help=f"it has {', '.join(names)}")
    missing = [name for name in names if name not in sizes]
    if missing:
        help = f"`{' '.join(f'--at {name}=64' for name in missing)}`"
        raise fail("E510", f"no size is given for {', '.join(missing)}", help=help)
    if not claim.holds(sizes):
        given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise fail("E510", f"a condition of `{rule.name}` does not hold at {given}")
    graph = Graph(rule, claim, library, {}, sizes, Arithmetic(claim.conditions))
    graph.sides()
    left, right = (_priced(list(_operators(graph, side)), library, machine, dtype) for side in (rule.left, rule.right))
    return left, right


def _priced(operators: Sequence[Instance], library: Library, machine: Machine, dtype: str) -> SidePrice:
    flops = moved = kernels = 0
    seconds = 0.0
    for instance in operators:
        typed = type_operator(instance, (), ONE_DEVICE, library)
        assert not isinstance(typed, str)
        no_gradient = [False] * len(instance.inputs)
        launched, _ = priced_kernels(instance, typed, dtype, ONE_DEVICE, library, no_gradient)
        seconds += price_operator(instance, typed, dtype, ONE_DEVICE, machine, no_gradient, library)
        if launched:
            done = work(instance, element_bytes=DTYPE_BYTES[dtype])
            flops, kernels = flops + int(done.flops), kernels + launched
            moved += int(done.bytes_read) + int(done.bytes_written)
    return SidePrice(flops, moved, kernels, seconds)


def _operators(graph: Graph, side: tuple[GraphExpr, ...]) -> Iterator[Instance]:
    """The operators of a side, each once."""
    definitions = dict(graph.rule.definitions)
    pending, seen = list(side), set[int]()
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
        yield graph.made[id(pattern or expr)].instance

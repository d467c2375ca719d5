"""Overlap of value conversions with decomposed matmuls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...graph.chunked_products import linear_product, operand_of
from ...graph.graph import Graph, Node
from ...graph.plan import PlannedNode
from ...graph.precision import priced_type
from ...index.cost.work import work
from ..choices.layout_space import ConversionOverlap
from ..choices.operator_options import Options
from .problem_context import Prices


def values_beside_products(
    graph: Graph, left: Collection[str], prices: Prices, options: Callable[[Node], Options]
) -> Mapping[str, ConversionOverlap]:
    """By name, values that a product reads before all other readers, or makes, with the seconds that the product takes
    if shared by all devices. `left` are names of values that are read after the graph. `chunked_products` decides which
    products of a plan are decomposed.
    """
    machine, conversions = prices.machine, prices.conversions
    exposed, mesh = machine.exposure.products, conversions.mesh
    if exposed == 1:
        return {}
    readers: dict[str, list[Node | None]] = {name: [None] for name in left}
    for step in graph.steps:
        for value in step.reads:
            readers.setdefault(value.name, []).append(step if isinstance(step, Node) else None)
    for update in graph.updates:
        readers.setdefault(update.value.name, []).append(None)
    found: dict[str, ConversionOverlap] = {}
    for node in (step for step in graph.steps if isinstance(step, Node) and any(v.is_weight for v in step.arguments)):
        known = options(node).configurations
        product = linear_product(PlannedNode(node, known.at(0)), mesh, conversions.library) if len(known) else None
        if product is None:
            continue
        dtype = priced_type(node, product.step.native, conversions.library)
        rate = machine.peak[dtype] * machine.compute_efficiency * mesh.size
        seconds, operand, (result,) = float(work(node.instance).flops) / rate, operand_of(product), node.results
        if operand is not None:
            value = node.arguments[operand]
            own = readers.get(value.name, [])
            if value.needs_gradient and not value.is_weight and None not in own and own[0] is node:
                found[value.name] = found.get(value.name, ConversionOverlap(exposed))._replace(read=seconds)
        added = len(product.term.arguments) > 2
        if not added and result.needs_gradient and None not in readers.get(result.name, [None]):
            found[result.name] = found.get(result.name, ConversionOverlap(exposed))._replace(made=seconds)
    return found

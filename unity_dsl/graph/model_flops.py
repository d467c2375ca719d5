"""Model FLOPs: the arithmetic that a training step cannot do without, by which its utilisation of devices is measured.

They are the matrix products and convolutions that the model declares, forward and backward, with two operations for
each multiply-add. Neither recomputation nor sharding nor replication changes them (Chowdhery et al. 2022, "PaLM",
appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..index.cost.lowering_class import PRODUCT_CLASSES
from ..index.cost.product_flops import product_passes
from .graph import Graph, Model, Node, Segment


def model_flops(model: Model) -> Mapping[str, float]:
    """Operations of a training step on all devices together, by the float type of the factors. For a model without a
    loss they are those of one call.
    """
    found: dict[str, float] = {}
    for node, times in _operators(model.graph, 1.0):
        if flops := _flops(node):
            found[node.factor_type] = found.get(node.factor_type, 0.0) + times * flops
    return found


def seconds_at_peak(model: Model, peak: Mapping[str, float], devices: int) -> float:
    """Seconds that the model FLOPs take on `devices` devices, each with `peak` operations a second, by float type. The
    step's utilisation is this over its time.
    """
    return sum(flops / peak[dtype] for dtype, flops in model_flops(model).items()) / devices


def _operators(graph: Graph, times: float) -> Iterator[tuple[Node, float]]:
    """All operators, those of bodies too, and how often each runs if the graph runs `times` times."""
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _operators(step.body, times * step.count * step.probability)
        else:
            yield step, times


def _flops(node: Node) -> float:
    """The operations of an operator's products, and as many again for each of their factors that has a gradient."""
    instance, sizes, total = node.instance, node.model_sizes, 0.0
    for found in product_passes(instance, node.gradients):
        # The axes of the factors of a depthwise convolution do not make two matrices.
        if found.kernel.product is not None or (found.kernel.kind in PRODUCT_CLASSES and found.factors > 1):
            total += 2.0 * prod(sizes[axis] for axis in found.axes) * (1 + found.gradients)
    return total

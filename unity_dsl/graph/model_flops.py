"""Model FLOPs: the arithmetic that a training step cannot do without, by which its utilisation of devices is measured.

Counted are the products of matrices and the convolutions that the model declares, forward and backward, two operations
for each multiplication that is added up; neither recomputation nor what is divided or copied changes them (Chowdhery et
al. 2022, "PaLM", appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..index.cost.lowering_class import PRODUCT_CLASSES
from ..index.cost.product_flops import product_passes
from .graph import Graph, Model, Node, Segment


def model_flops(model: Model) -> Mapping[str, float]:
    """Operations of a training step by the float type of the factors, those of all devices together; of a model
    without a loss those of a call.
    """
    found: dict[str, float] = {}
    for node, times in _operators(model.graph, 1.0):
        if flops := _flops(node):
            found[node.factor_type] = found.get(node.factor_type, 0.0) + times * flops
    return found


def seconds_at_peak(model: Model, peak: Mapping[str, float], devices: int) -> float:
    """What the model FLOPs take on so many devices of which each does `peak` operations a second, by float type: the
    step's utilisation is this over its time.
    """
    return sum(flops / peak[dtype] for dtype, flops in model_flops(model).items()) / devices


def _operators(graph: Graph, times: float) -> Iterator[tuple[Node, float]]:
    """All operators, those of bodies too, and how often each runs where the graph runs so many times."""
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _operators(step.body, times * step.count * step.probability)
        else:
            yield step, times


def _flops(node: Node) -> float:
    """Of an operator: each of its products, and as much again for each of the two factors that has a gradient."""
    instance, sizes, total = node.instance, node.model_sizes, 0.0
    for found in product_passes(instance, node.gradients):
        # In a depthwise convolution the factors' axes do not tell two matrices.
        if found.kernel.product is not None or (found.kernel.kind in PRODUCT_CLASSES and found.factors > 1):
            total += 2.0 * prod(sizes[axis] for axis in found.axes) * (1 + found.gradients)
    return total

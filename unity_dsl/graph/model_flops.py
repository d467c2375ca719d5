"""Model FLOPs: the arithmetic that a training step cannot do without, by which its utilisation of devices is measured.

Counted are the products of matrices and the convolutions that the model declares, forward and backward, two operations
for each multiplication that is added up; neither recomputation nor what is divided or copied changes them (Chowdhery et
al. 2022, "PaLM", appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..index.cost.kernels import equation_kernels
from ..index.cost.lowering_class import LoweringClass, lowering_class
from ..index.equations.term import reads
from ..index.lowering.loop_nest import loop_nest
from .graph import Graph, Model, Node, Segment

_PRODUCTS = (LoweringClass.CONTRACTION, LoweringClass.WINDOW)
"""Classes of products that are counted where the factors' axes do not tell two matrices: a depthwise convolution."""


def model_flops(model: Model) -> Mapping[str, float]:
    """Operations of a training step by the float type of the arithmetic, those of all devices together; of a model
    without a loss those of a call.
    """
    found: dict[str, float] = {}
    for node, times in _operators(model.graph, 1.0):
        if flops := _flops(node):
            found[node.dtype] = found.get(node.dtype, 0.0) + times * flops
    return found


def seconds_at_peak(model: Model, peak: Mapping[str, float], devices: int) -> float:
    """What the model FLOPs take on so many devices of which each does `peak` operations a second, by float type: the
    step's utilisation is this over its time.
    """
    return sum(flops / peak[dtype] for dtype, flops in model_flops(model).items()) / devices


def products_of_matrices(model: Model) -> Iterator[tuple[str, float, float]]:
    """Operators that are products of matrices, not convolutions: the float type, the operations of one in a training
    step, and how often it runs in the forward pass.
    """
    for node, times in _operators(model.graph, 1.0):
        if lowering_class(node.instance) is LoweringClass.CONTRACTION and (flops := _flops(node)):
            yield node.dtype, flops, times


def _operators(graph: Graph, times: float) -> Iterator[tuple[Node, float]]:
    """All operators, those of bodies too, and how often each runs where the graph runs so many times."""
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _operators(step.body, times * step.count * step.probability)
        else:
            yield step, times


def _flops(node: Node) -> float:
    """Of an operator: each of its products, and as much again for each of the two factors that has a gradient."""
    instance, total = node.instance, 0.0
    moving = {operand.name for operand, moves in zip(instance.inputs, node.gradients, strict=True) if moves}
    for equation, kernel in zip(instance.equations, equation_kernels(instance), strict=False):
        nest = loop_nest(instance, equation)
        factors = [{read.tensor for read in reads(factor)} for factor in nest.factors]
        moves = [not moving.isdisjoint(tensors) for tensors in factors if tensors]
        if kernel.product is not None:
            moves = [not moving.isdisjoint(side) for side in (kernel.product.left, kernel.product.right)]
        if kernel.product is not None or (kernel.kind in _PRODUCTS and len(moves) > 1):
            total += 2.0 * prod(instance.sizes[axis] for axis in nest.axes) * (1 + min(sum(moves), 2))
        if any(moves):
            moving.add(equation.target.name)
    return total

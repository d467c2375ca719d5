"""Tokens of a batch: the integers of a model's inputs that each look up a row of a weight."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..index.cost.lowering_class import LoweringClass, class_of_equation
from ..index.equations.loop_nest import loop_nest
from ..index.equations.term import free_axes, reads
from .graph import Graph, Model, Node, Segment


def batch_tokens(model: Model) -> int | None:
    """The number of entries of the largest input whose entries are each looked up in a weight: by an embedding, not by
    an embedding bag. None if no such input has more than one entry per row.
    """
    inputs = {given.value.name for given in model.graph.inputs if given.value.dtype == "int"}
    weights = {weight.value.name for _, weight in model.weights()}
    found = [
        prod(argument.model_shape)
        for node in _nodes(model.graph)
        for argument in node.arguments
        if argument.name in inputs and prod(argument.shape[1:]) > 1 and _looks_up(node, argument.name, weights)
    ]
    return max(found, default=None)


def _nodes(graph: Graph) -> Iterator[Node]:
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _nodes(step.body)
        else:
            yield step


def _looks_up(node: Node, name: str, weights: set[str]) -> bool:
    """Whether an equation of the operator reads a weight at each entry of this argument, once for each."""
    bound = dict(zip((operand.name for operand in node.instance.inputs), node.arguments, strict=True))
    for equation in node.instance.equations:
        if class_of_equation(node.instance, equation) is not LoweringClass.GATHER:
            continue
        nest = loop_nest(node.instance, equation)
        asked = [read for found in nest.looked_up for read in reads(found.term) if read.tensor in bound]
        table = {bound[read.tensor].name for factor in nest.factors for read in reads(factor) if read.tensor in bound}
        if table & weights and any(bound[read.tensor].name == name for read in asked):
            axes = {axis for read in asked for index in read.index for axis in free_axes(index)}
            return axes <= set(equation.target.axes)
    return False

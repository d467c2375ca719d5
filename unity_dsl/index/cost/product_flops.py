"""Operations of an operator's matrix products, without the elementwise work around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..equations.instance import Instance
from ..equations.loop_nest import loop_nest
from ..equations.term import reads
from .kernels import EquationKernel, equation_kernels
from .work import Axes, Count


@dataclass(frozen=True)
class ProductPass:
    """The kernel of a sum of products over its `axes`. Of the `factors` of each term, `gradients` have a gradient."""

    kernel: EquationKernel
    axes: Axes
    factors: int
    gradients: int


def product_passes(instance: Instance, needs: Sequence[bool]) -> Iterator[ProductPass]:
    """A pass for each equation, in order, if the inputs that `needs` marks have a gradient.

    The factors of a matrix product are its two matrices.
    """
    moving = {operand.name for operand, moves in zip(instance.inputs, needs, strict=True) if moves}
    for equation, kernel in zip(instance.equations, equation_kernels(instance), strict=False):
        nest = loop_nest(instance, equation)
        factors = [found for found in ({read.tensor for read in reads(factor)} for factor in nest.factors) if found]
        moves = any(not moving.isdisjoint(tensors) for tensors in factors)
        if kernel.product is not None:
            factors = [{*kernel.product.left}, {*kernel.product.right}]
        gradients = sum(not moving.isdisjoint(tensors) for tensors in factors)
        yield ProductPass(kernel, nest.axes, len(factors), min(gradients, 2))
        if moves or gradients:
            moving.add(equation.target.name)


def product_flops(instance: Instance, needs: Sequence[bool], sizes: Mapping[str, Count]) -> tuple[Count, Count]:
    """Operations of an operator's matrix products at these sizes, forward and backward.

    Arrays of sizes are evaluated elementwise.
    """
    forward: Count = 0
    backward: Count = 0
    whole = {**instance.sizes, **sizes}
    for found in product_passes(instance, needs):
        if found.kernel.product is not None:
            flops = 2.0 * prod(whole[axis] for axis in found.axes)
            forward, backward = forward + flops, backward + found.gradients * flops
    return forward, backward

"""Estimated seconds of kernels, to compare fused matrix products with the vendor's products and separate kernels.

Each kernel has a roofline: arithmetic of matrix products and of elements, and memory traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..graph.graph import DTYPE_BYTES
from ..index.cost.work import INTEGER_BYTES
from ..index.equations.instance import Operand
from ..index.equations.term import COMPARISONS, walk
from ..index.kernels.contractions import BLOCK, LEAST
from ..index.kernels.product_kernels import ProductKernel
from ..index.kernels.row_kernels import RowKernel
from ..index.kernels.step_schedule import Contraction, Scatter, Step, nests_of
from ..syntax.ast import Apply, Expr, Select, Uniform
from .machine import Machine

OF_VENDOR: Mapping[str, float] = {"bf16": 0.6, "f16": 0.6, "tf32": 0.6, "f32": 0.6, "f64": 0.6}
"""The fraction of the vendor's speed that a matrix product of our kernels reaches: 0.55 to 0.6 in a step of gpt2 on an
H200 in bf16 (bench/results/gpu.json); assumed for the other types.
"""
OF_WINDOWS = 0.7
"""Assumed: the fraction of that speed that remains if an operand is read in windows."""
PROGRAMS = 128
"""Assumed: the number of programs that a device runs at once. With fewer tiles the vendor's products split sums."""
SORT, SORTED = 12, 16
"""Assumed: launches for sorting keys, and how often sorting reads or writes them."""
FUNCTION, DRAW = 8, 40
"""Assumed: the cost, in additions, of an element function or a quotient, and of a random number."""


@dataclass(frozen=True)
class KernelStepPrices:
    """Seconds of kernels on one device, with factors of type `dtype`; `sizes` are local lengths of axes."""

    machine: Machine
    dtype: str

    def seconds(self, steps: Sequence[Step], sizes: Mapping[str, int], vendor: bool = False) -> float:
        """Seconds of steps one after the other. With `vendor` their products are the vendor's, which adds a bias
        itself.
        """
        return sum(self.of_step(step, {**step.instance.sizes, **sizes}, vendor) for step in steps)

    def of_step(self, step: Step, sizes: Mapping[str, int], vendor: bool) -> float:
        kernel = step.kernel
        traffic = self.machine.traffic_seconds(sum(self.bytes(o, sizes) for o in (*step.loaded, *step.made)))
        if isinstance(kernel, ProductKernel):
            return max(traffic, self.products(step, kernel, sizes)) + self.machine.exposed_launch
        if isinstance(kernel, Scatter):
            entries = prod(sizes[axis] for axis in kernel.entries)
            order = self.machine.traffic_seconds(SORTED * INTEGER_BYTES * entries) + SORT * self.machine.exposed_launch
            return order + max(traffic, self.elementwise(step, sizes)) + 2 * self.machine.exposed_launch
        if isinstance(kernel, RowKernel):
            return max(traffic, self.elementwise(step, sizes)) + self.machine.exposed_launch
        product = self.multiplication((*kernel.batch, *kernel.rows, *kernel.columns, *kernel.inner), sizes)
        if not (vendor or kernel.vendor):
            down, across = (tiles(axes, sizes) for axes in (kernel.rows, kernel.columns))
            programs = down * across * prod(sizes[axis] for axis in kernel.batch)
            for axes in (kernel.rows, kernel.columns, kernel.inner):
                product *= max(1.0, LEAST / prod(sizes[axis] for axis in axes))
            product /= OF_WINDOWS if kernel.windowed else 1
            product /= OF_VENDOR[self.dtype] * min(1.0, programs / PROGRAMS)
            product += self.elementwise(step, sizes)
        return max(traffic, product) + self.machine.exposed_launch

    def bytes(self, operand: Operand, sizes: Mapping[str, int]) -> int:
        width = INTEGER_BYTES if operand.integer_range is not None else DTYPE_BYTES[self.dtype]
        return width * prod(sizes[axis] for axis in operand.axes)

    def multiplication(self, axes: Sequence[str], sizes: Mapping[str, int]) -> float:
        """Seconds of a matrix product with these axes, at the vendor's speed."""
        operations = 2 * prod(sizes[axis] for axis in axes)
        return operations / (self.machine.peak[self.dtype] * self.machine.compute_efficiency)

    def products(self, step: Step, kernel: ProductKernel, sizes: Mapping[str, int]) -> float:
        """Seconds of arithmetic of a kernel over products: of the products and of their elementwise operations."""
        nests = nests_of(step.instance)
        matrices = (*kernel.products, *kernel.mixed)
        spaces = [nests[name].equation.space for name in matrices]
        product = sum(self.multiplication(space, sizes) for space in spaces) / OF_VENDOR[self.dtype]
        whole = product + self.elementwise(step, sizes, matrices)
        return whole * kernel.live.part(sizes[kernel.rows[-1]], sizes[kernel.columns[-1]])

    def elementwise(self, step: Step, sizes: Mapping[str, int], without: Sequence[str] = ()) -> float:
        """Seconds of elementwise arithmetic. Operands of a product are recomputed for every tile."""
        kernel, nests = step.kernel, nests_of(step.instance)
        total = 0.0
        for name in dict.fromkeys((*step.reduced, *step.prologue, *step.epilogue)):
            if name in without:
                continue
            equation = nests[name].equation
            count = prod(sizes[axis] for axis in equation.space)
            if isinstance(kernel, Contraction):
                if name == kernel.product:
                    continue
                for way in (kernel.rows, kernel.columns):
                    count *= 1 if {*way} & {*equation.space} else tiles(way, sizes)
            total += count * operations_of(equation.value)
        return total / (self.machine.peak["f32"] / 2 * self.machine.compute_efficiency)


def tiles(axes: Sequence[str], sizes: Mapping[str, int]) -> int:
    """The number of tiles of a product along these axes."""
    return -(-prod(sizes[axis] for axis in axes) // BLOCK)


def operations_of(value: Expr) -> int:
    """The cost of one element, in additions."""
    total = 0
    for node in walk(value):
        match node:
            case Apply(function):
                total += 1 if function in _CHEAP else FUNCTION
            case Select():
                total += 1
            case Uniform():
                total += DRAW
    return total


_CHEAP = frozenset({"+", "-", "*", "neg", *COMPARISONS})

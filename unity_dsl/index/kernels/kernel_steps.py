"""The kernels that compute an instance."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..equations.instance import Instance
from .contractions import contraction_steps
from .product_kernels import ProductKernel, product_kernels
from .row_kernels import RowKernel, row_kernels
from .scatters import scatter_steps
from .step_schedule import Step


def kernel_steps(instance: Instance, vendor: Collection[str] = ()) -> tuple[Step, ...] | None:
    """One after the other: kernels over rows and columns, or over products that are not kept, or sums into rows that
    data choose, or contractions, of which products of `vendor` are left to the vendor's library; None where none of
    these compute it.
    """
    found: Sequence[RowKernel | ProductKernel] | None = row_kernels(instance)
    if found is None:
        found = product_kernels(instance)
    if found is not None:
        return tuple(Step(kernel, instance) for kernel in found)
    return scatter_steps(instance) or contraction_steps(instance, vendor)

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
    """The kernels that compute an instance, in order; None if none of the kinds computes it.

    The kinds are kernels over rows and columns, kernels over products that are not stored, sums into rows that data
    choose, and contractions. Products in `vendor` are left to the vendor's library.
    """
    found: Sequence[RowKernel | ProductKernel] | None = row_kernels(instance)
    if found is None:
        found = product_kernels(instance)
    if found is not None:
        return tuple(Step(kernel, instance) for kernel in found)
    return scatter_steps(instance) or contraction_steps(instance, vendor)

"""The kernels that compute an instance."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..equations.instance import Instance
from .contractions import Step, contraction_steps
from .product_kernels import ProductKernel, product_kernels
from .row_kernels import RowKernel, row_kernels


def kernel_steps(instance: Instance, vendor: Collection[str] = ()) -> tuple[Step, ...] | None:
    """One after the other: kernels over rows and columns, or over products that are not kept, or contractions, of which
    products of `vendor` are left to the vendor's library; None where none of these compute it.
    """
    found: Sequence[RowKernel | ProductKernel] | None = row_kernels(instance)
    if found is None:
        found = product_kernels(instance)
    return contraction_steps(instance, vendor) if found is None else tuple(Step(kernel, instance) for kernel in found)

"""What the values of a kernel depend on: its rows, its columns, and its reductions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...syntax.ast import Expr
from ..equations.term import free_axes
from .read_closure import Nests, unreduced
from .row_kernels import RowKernel


@dataclass(frozen=True)
class Dependence:
    """The dependences of a kernel's values, through equations without a reduction.

    `sizes` are lengths on one device.
    """

    kernel: RowKernel
    nests: Nests
    sizes: Mapping[str, int]

    def on_rows(self, value: Expr) -> bool:
        return self._on(value, self.kernel.rows)

    def on_columns(self, value: Expr) -> bool:
        return self._on(value, self.kernel.columns)

    def on_reductions(self, value: Expr) -> set[str]:
        """The reductions of this kernel that a value is computed from."""
        return unreduced(value, self.nests) & set(self.kernel.reduced)

    def passes(self) -> Iterator[list[str]]:
        """The reductions along columns, in order, grouped so that none is computed from another in its group."""
        left = list(self.kernel.reduced)
        while left:
            ready = [name for name in left if not self.on_reductions(self.nests[name].value) & set(left)]
            yield ready
            left = [name for name in left if name not in ready]

    def _on(self, value: Expr, axes: Sequence[str]) -> bool:
        wanted = {axis for axis in axes if self.sizes[axis] > 1}
        inlined = [name for name in unreduced(value, self.nests) if name in self.nests and not self.nests[name].over]
        return any(wanted & set(free_axes(part)) for part in (value, *(self.nests[name].value for name in inlined)))

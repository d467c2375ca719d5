"""Seconds of an operator from measurements of the machine, for many configurations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ..graph.graph import DTYPE_BYTES
from ..graph.precision import FULL, TF32
from ..index.cost.kernels import EquationKernel, MatrixProduct, equation_kernels
from ..index.cost.lowering_class import PRODUCT_CLASSES, LoweringClass, lowering_class
from ..index.cost.work import Count, Work, backward_work, work
from ..index.equations.instance import Instance
from ..index.lowering.padded_columns import LINEAR
from ..syntax.ast import NativeCall
from .measured_curves import Curve, Numbers
from .measured_operators import CurveKey, Direction, GridKey, MeasuredOperators, WorkCurve, class_name

_STREAMS = (LoweringClass.ROW_REDUCTION, LoweringClass.ELEMENTWISE)
_COTANGENTS = (Direction.LEFT, Direction.RIGHT)
HALF = 2
"""Bytes of the floats whose products may be unaligned: tensor cores multiply them."""
TOGETHER = 8
"""Floats of 16 bits that tensor cores load at a time."""
LAUNCHES_OF_PADDING = 5e-5
"""Host seconds to launch the five kernels that pad a product: padding must save more than this."""


def aligned(extent: Numbers) -> Numbers:
    """The next multiple of TOGETHER."""
    return np.asarray(np.ceil(extent / TOGETHER) * TOGETHER)


@dataclass(frozen=True)
class MeasuredPrice:
    """Prices of one operator at the local sizes of a device; arrays of sizes are evaluated elementwise. `runs` says
    whether there are any kernels, forward and backward. An operator without kernels is a view; one that only moves
    elements is elementwise if it has kernels.

    An operator that runs as it was measured is priced by the curve of its name. Another native call is priced by the
    grid of its matrix product, or by the curve of its class. If an operator with a native call runs equation by
    equation, each equation is a kernel, except those `absorbed` by others. Each elementwise kernel is one of the
    `passes`: its function, the bytes it reads and writes, and those of its backward. It is priced by the curve of the
    operator named like the function if there is one, else by that of the class. Neither direction takes less than a
    launch.

    Unmeasured reductions and elementwise kernels are priced by their bytes, by `streams` if given. The result is None
    if any other part was not measured. In TF32 only products run, by grids of their own. The columns of a linear map
    are `padded` if that takes less, copies included.
    """

    instance: Instance
    native: bool
    runs: tuple[bool, bool]
    passes: Sequence[tuple[str, Numbers, Numbers | None]]
    sizes: Mapping[str, Count]
    dtype: str
    measured: MeasuredOperators
    launch: float
    absorbed: frozenset[int] = frozenset()
    streams: Curve | None = None

    def forward(self) -> Numbers | None:
        seconds = self._forward()
        return None if seconds is None else np.maximum(seconds, self.launch)

    def _forward(self) -> Numbers | None:
        done = work(self.instance, self.sizes, DTYPE_BYTES[self.dtype])
        if not self.runs[0]:
            return self._view(done)
        named = self._named(Direction.FORWARD)
        if named is not None:
            return named.at(done)
        if self.native and (product := self._only_product) is not None:
            alone = self._product(product, Direction.FORWARD)
            return None if alone is None else alone + self.padded * self._copies(product)[0]
        if self.native or not self._kernels:
            curve = self._class_curve(lowering_class(self.instance), Direction.FORWARD)
            return None if curve is None else curve.at(done)
        made = [self._pass(function, count, Direction.FORWARD) for function, count, _ in self.passes]
        return _total([*(self._kernel(kernel, Direction.FORWARD) for kernel in self._further), *made])

    def backward(self, needs: Sequence[bool]) -> Numbers | None:
        """Seconds for the inputs that need a gradient, at least one. Gradients merely passed on take a launch."""
        done = backward_work(self.instance, needs, self.sizes, DTYPE_BYTES[self.dtype])
        seconds = self._backward(needs, done)
        passed = np.asarray(done.flops + done.bytes_read + done.bytes_written) == 0
        return None if seconds is None else np.where(passed, self.launch, np.maximum(seconds, self.launch))

    def _backward(self, needs: Sequence[bool], done: Work) -> Numbers | None:
        if not self.runs[1]:
            return self._view(done)
        named = self._named(Direction.BACKWARD)
        if named is not None:
            return named.at(done)
        wanted = {operand.name for operand, needed in zip(self.instance.inputs, needs, strict=True) if needed}
        if self.native and (product := self._only_product) is not None:
            found = self._cotangents(product, wanted)
            return None if found is None else found + self.padded * self._copies(product)[1]
        if self.native or not self._kernels:
            curve = self._class_curve(lowering_class(self.instance), Direction.BACKWARD)
            return None if curve is None else curve.at(done)
        made = {equation.target.name for equation in self.instance.equations}
        cotangents = [
            self._pass(function, count, Direction.BACKWARD) for function, _, count in self.passes if count is not None
        ]
        return _total([*(self._kernel_backward(kernel, wanted | made) for kernel in self._further), *cotangents])

    # ------------------------------------------------------------------------------------------ parts

    @property
    def _elements(self) -> str:
        """The type of everything but products."""
        return FULL if self.dtype == TF32 else self.dtype

    @property
    def _kernels(self) -> tuple[EquationKernel, ...]:
        kernels = equation_kernels(self.instance)
        return tuple(kernel for number, kernel in enumerate(kernels) if number not in self.absorbed)

    @property
    def _further(self) -> tuple[EquationKernel, ...]:
        """The kernels that are not counted pass by pass."""
        return tuple(k for k in self._kernels if k.kind is not LoweringClass.ELEMENTWISE or not self.passes)

    @cached_property
    def _only_product(self) -> MatrixProduct | None:
        products = [kernel.product for kernel in self._kernels if kernel.product is not None]
        return products[0] if len(products) == 1 and lowering_class(self.instance) in PRODUCT_CLASSES else None

    def _named(self, direction: Direction) -> WorkCurve | None:
        measured_natively = self.instance.native and self.instance.operator.torch is not None
        if self.native != measured_natively:
            return None
        return self.measured.curves.get(CurveKey(self.instance.name, self.dtype, direction))

    def _class_curve(self, kind: LoweringClass, direction: Direction) -> WorkCurve | None:
        if kind is LoweringClass.VIEW and self.runs[0]:
            kind = LoweringClass.ELEMENTWISE
        found = self.measured.curves.get(CurveKey(class_name(kind), self._elements, direction))
        if found is None and self.streams is not None and kind in _STREAMS:
            return WorkCurve("bytes", self.streams)
        return found

    def _view(self, done: Work) -> Numbers:
        """Seconds of an operator without kernels: those of a measured view, or 0 without one."""
        curve = self.measured.curves.get(CurveKey(class_name(LoweringClass.VIEW), self._elements, Direction.FORWARD))
        return np.zeros(()) if curve is None else curve.at(done)

    def _pass(self, function: str, count: Numbers, direction: Direction) -> Numbers | None:
        """Seconds of an elementwise kernel that reads and writes `count` bytes."""
        own = self.measured.curves.get(CurveKey(function, self._elements, direction))
        curve = own or self._class_curve(LoweringClass.ELEMENTWISE, direction)
        return None if curve is None else curve.at(Work(0, count, 0))

    def _product(self, product: MatrixProduct, direction: Direction) -> Numbers | None:
        columns = np.asarray(self._extent(product.columns))
        return self._of_columns(product, direction, np.where(self.padded, aligned(columns), columns))

    @cached_property
    def padded(self) -> Numbers:
        """Whether a native linear map takes less time, forward and backward, if its columns are padded until they are
        aligned.

        The result does not depend on which gradients are needed, because one program text is run for both.
        """
        product, call = self._only_product, self.instance.operator.torch
        linear = self.native and isinstance(call, NativeCall) and call.function == LINEAR
        apart = self.streams is not None and self.measured.unaligned and not self._named(Direction.FORWARD)
        if product is None or not linear or not apart:
            return np.zeros((), dtype=bool)
        columns = np.asarray(self._extent(product.columns))
        if np.all(columns % TOGETHER == 0):
            return np.zeros((), dtype=bool)
        as_it_is, even = (
            _total([self._of_columns(product, way, extent) for way in (Direction.FORWARD, *_COTANGENTS)])
            for extent in (columns, aligned(columns))
        )
        if as_it_is is None or even is None:
            return np.zeros((), dtype=bool)
        return np.asarray(even + sum(self._copies(product)) + LAUNCHES_OF_PADDING < as_it_is)

    def _copies(self, product: MatrixProduct) -> tuple[Numbers, Numbers]:
        """Seconds of the copies that pad columns, forward and backward, at streaming speed. Forward, zeros are written
        and the weight is copied over them. Backward does the same with the result's gradient, and copies that of the
        weight once.
        """
        if self.streams is None:
            return np.zeros(()), np.zeros(())
        rows, inner = self._extent((*product.batch, *product.rows)), self._extent(product.inner)
        column = HALF * aligned(np.asarray(self._extent(product.columns)))
        forward, backward = (self.streams.at(column * count) for count in (3 * inner, 3 * rows + 2 * inner))
        return forward, backward

    def _of_columns(self, product: MatrixProduct, direction: Direction, columns: Numbers) -> Numbers | None:
        """Seconds of a product with this many columns."""
        batch, rows, inner = (np.asarray(self._extent(axes)) for axes in (product.batch, product.rows, product.inner))
        window = lowering_class(self.instance) is LoweringClass.WINDOW
        kind = LoweringClass.WINDOW if window else LoweringClass.CONTRACTION
        one, many = (
            self.measured.grids.get(GridKey(kind, self.dtype, direction, batched)) for batched in (False, True)
        )
        if one is None:
            return None
        single = one.at(rows, columns, inner, batch)
        found = single if many is None else np.where(batch > 1, many.at(rows, columns, inner, batch), single)
        return found * self._unaligned(columns, inner)

    def _unaligned(self, *sides: Numbers) -> Numbers:
        """The slowdown of a product by misaligned rows of these lengths in memory."""
        width = DTYPE_BYTES[self.dtype]
        if width != HALF or not self.measured.unaligned:
            return np.ones(())
        shared = np.gcd.reduce([np.asarray(side).astype(np.int64) * width for side in sides])
        times = np.ones(np.shape(shared))
        for place, slower in sorted(self.measured.unaligned.items(), reverse=True):
            times = np.where(shared % (2 * place) != 0, slower, times)
        return times

    def _cotangents(self, product: MatrixProduct, wanted: set[str]) -> Numbers | None:
        """Seconds of the gradients of a product's operands. The gradient of any other input, such as a bias, is a sum
        over the rows of the result's gradient.
        """
        parts = [
            self._product(product, direction)
            for direction, side in zip(_COTANGENTS, (product.left, product.right), strict=True)
            if side & wanted
        ]
        if wanted - product.left - product.right:
            width = DTYPE_BYTES[self.dtype]
            result = width * self._extent((*product.batch, *product.rows, *product.columns))
            curve = self._class_curve(LoweringClass.ROW_REDUCTION, Direction.FORWARD)
            parts.append(None if curve is None else curve.at(Work(0, result, 0)))
        return _total(parts)

    def _kernel(self, kernel: EquationKernel, direction: Direction) -> Numbers | None:
        if kernel.product is not None:
            return self._product(kernel.product, direction)
        curve = self._class_curve(kernel.kind, direction)
        return None if curve is None else curve.at(self._work(kernel))

    def _kernel_backward(self, kernel: EquationKernel, wanted: set[str]) -> Numbers | None:
        """Seconds of an equation's backward. It reads what the forward read and the gradient of the result, and writes
        the gradients of what the forward read.
        """
        if kernel.product is not None:
            return self._cotangents(kernel.product, wanted & (kernel.product.left | kernel.product.right))
        curve, done = self._class_curve(kernel.kind, Direction.BACKWARD), self._work(kernel)
        if curve is None:
            return None
        return curve.at(Work(done.flops, done.bytes_read + done.bytes_written, done.bytes_read))

    def _work(self, kernel: EquationKernel) -> Work:
        return kernel.tally.at({**self.instance.sizes, **self.sizes}, DTYPE_BYTES[self.dtype], self.instance.sizes)

    def _extent(self, axes: Sequence[str]) -> Count:
        sizes = {**self.instance.sizes, **self.sizes}
        return prod(sizes[axis] for axis in axes)


def _total(parts: Sequence[Numbers | None]) -> Numbers | None:
    total: Numbers = np.zeros(())
    for part in parts:
        if part is None:
            return None
        total = total + part
    return total

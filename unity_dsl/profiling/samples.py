"""The samples to measure: operators of the library at increasing sizes, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..graph.graph import DTYPE_BYTES
from ..index.cost.kernels import equation_kernels
from ..index.cost.lowering_class import LoweringClass, lowering_class
from ..index.cost.work import Work, backward_work, work
from ..index.equations.instance import Instance
from ..index.instantiation.instantiate import Shape, instantiate
from ..index.instantiation.representative import instance_at, representative
from ..index.library import Library
from ..machine.measured_operators import Direction
from ..syntax.ast import OperatorDecl
from ..syntax.diagnostic import InputError
from ..syntax.rational import Rational

USUAL_SIZES = {
    **dict.fromkeys(("heads", "e"), 4),
    **dict.fromkeys(("g", "l"), 8),
    **dict.fromkeys(("h", "w", "p", "q", "f", "m"), 16),
    **dict.fromkeys(("s", "t"), 128),
    **dict.fromkeys(("k", "v", "n"), 64),
}
"""Typical sizes of dimensions, by the names in declarations; `OTHER_SIZE` for all other names."""

OTHER_SIZE = 256


@dataclass(frozen=True)
class Sample:
    """One measurement: an operator forward, or the gradients of the inputs that `needs` marks.

    `done` is the measured work.
    """

    instance: Instance
    dtype: str
    direction: Direction
    needs: tuple[bool, ...]
    done: Work

    @property
    def bytes(self) -> float:
        return float(self.done.bytes_read + self.done.bytes_written)

    @property
    def elements(self) -> int:
        """Elements of all inputs, including those that are not read."""
        return sum(prod(self.instance.shape(operand)) for operand in self.instance.inputs)


def sample_of(instance: Instance, dtype: str, direction: Direction, needs: Sequence[bool] = ()) -> Sample:
    """The measurement of an instance; by default `needs` marks all inputs of floats."""
    wanted = tuple(needs) or tuple(operand.integer_range is None for operand in instance.inputs)
    width = DTYPE_BYTES[dtype]
    forward = direction is Direction.FORWARD
    done = work(instance, None, width) if forward else backward_work(instance, wanted, None, width)
    return Sample(
        instance,
        dtype,
        direction,
        wanted,
        Work(float(done.flops), float(done.bytes_read), float(done.bytes_written)),
    )


# ---------------------------------------------------------------------------------------------- by their bytes


def streamed_operators(library: Library) -> dict[str, LoweringClass]:
    """The operators whose time is measured over bytes or operations, with their classes.

    Matrix products, which have sizes of their own, and operators whose conditions forbid such sizes are left out.
    """
    found: dict[str, LoweringClass] = {}
    for name, operator in library.operators.items():
        smallest = _scaled(operator, 1)
        if smallest is None:
            continue
        kind = lowering_class(smallest)
        products = [kernel.product for kernel in equation_kernels(smallest) if kernel.product is not None]
        if not products or (smallest.native and len(products) > 1):
            found[name] = kind
    return found


def streamed_samples(operator: OperatorDecl, amounts: Sequence[int], dtype: str) -> Iterator[Sample]:
    """Samples of an operator, forward and backward, at sizes at which its forward reads and writes these `amounts` of
    bytes.
    """
    smallest = _scaled(operator, 1)
    assert smallest is not None
    least = work(smallest, None, DTYPE_BYTES[dtype])
    for amount in amounts:
        scale = max(1, round(amount / float(least.bytes_read + least.bytes_written)))
        instance = _scaled(operator, scale)
        if instance is not None:
            yield sample_of(instance, dtype, Direction.FORWARD)
            if not instance.whole and any(operand.integer_range is None for operand in instance.inputs):
                yield sample_of(instance, dtype, Direction.BACKWARD)


@lru_cache(maxsize=4096)
def _scaled(operator: OperatorDecl, scale: int) -> Instance | None:
    """The operator at the usual sizes, its first dimension of length `scale`; None if its conditions forbid them."""
    try:
        attributes = representative(operator).instance.attributes
    except InputError:
        return None
    dims = [dim for tensor in operator.inputs for dim in tensor.dims]
    sizes = {dim.name: OTHER_SIZE if dim.rest else USUAL_SIZES.get(dim.name, OTHER_SIZE) for dim in dims}
    ranges = [tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None]
    sizes |= {name: sizes.get(name, OTHER_SIZE) for name in ranges}
    if not dims:
        return None
    sizes[dims[0].name] = scale
    return _instance(operator, sizes, attributes)


def _instance(operator: OperatorDecl, sizes: Mapping[str, int], attributes: Mapping[str, Rational]) -> Instance | None:
    try:
        return instance_at(operator, sizes, attributes, 1)
    except InputError:
        return None


# ---------------------------------------------------------------------------------------------- products


@dataclass(frozen=True)
class ProductPlan:
    """A grid of matrix products: the class of the operator that is run, and the sizes along each side of the grid.

    A batch is large enough for `BATCH_FLOPS`, from 2 to 256 products.
    """

    kind: LoweringClass
    batched: bool
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inner: tuple[int, ...]

    def samples(self, library: Library, dtype: str, direction: Direction) -> Iterator[tuple[tuple[int, ...], Sample]]:
        """The index of each point in the grid, and its measurement."""
        needs = {Direction.FORWARD: (True, True), Direction.LEFT: (True, False), Direction.RIGHT: (False, True)}
        for i, rows in enumerate(self.rows):
            for j, columns in enumerate(self.columns):
                for k, inner in enumerate(self.inner):
                    instance = self.instance(library, rows, columns, inner)
                    wanted = needs[direction]
                    if self.kind is LoweringClass.WINDOW:
                        wanted = wanted[::-1]  # conv2d's statement has the kernel first
                    yield (i, j, k), sample_of(instance, dtype, direction, wanted)

    def instance(self, library: Library, rows: int, columns: int, inner: int) -> Instance:
        batch = self.batch(rows, columns, inner)
        if self.kind is LoweringClass.WINDOW:
            return _convolution(library, batch, rows, columns, inner)
        if self.batched:
            shapes = [Shape((batch, rows, inner)), Shape((batch, inner, columns))]
            return instantiate(library.operators["matmul"], shapes, {})
        return instantiate(library.operators["linear"], [Shape((rows, inner)), Shape((columns, inner))], {})

    def batch(self, rows: int, columns: int, inner: int) -> int:
        """The number of products in a batch."""
        return min(256, max(2, BATCH_FLOPS // (2 * rows * columns * inner))) if self.batched else 1


BATCH_FLOPS = 2_000_000
_WINDOW = 3
"""Height and width of the convolutions' kernels."""


def _convolution(library: Library, groups: int, rows: int, columns: int, inner: int) -> Instance:
    """A convolution that keeps the image's size. Each group has `rows` kernels of `inner` numbers, over `columns`
    pixels.
    """
    channels = max(1, inner // _WINDOW**2)
    height = max(size for size in (1, 2, 4, 8, 16) if size * size <= columns)
    image = Shape((columns // height**2, groups * channels, height, height))
    kernels = Shape((groups * rows, channels, _WINDOW, _WINDOW))
    return instantiate(library.operators["conv2d"], [image, kernels], {"pad_h": 1, "pad_w": 1, "groups": groups})

"""An operator as functions of kernels.py: its kernels and how they are launched, forward and backward."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from keyword import kwlist
from math import prod
from string import ascii_letters

from ...index.equations.instance import Instance, Key, Operand
from ...index.equations.term import free_axes, walk
from ...index.kernels.backward import DifferentAxesError, aliases, backward_instance
from ...index.kernels.contractions import LEAST, products_of
from ...index.kernels.kernel_steps import kernel_steps
from ...index.kernels.named_tiles import with_named_tiles
from ...index.kernels.product_kernels import ProductKernel, product_kernels, statistics
from ...index.kernels.row_kernels import RowKernel, row_kernels
from ...index.kernels.step_schedule import Contraction, Scatter, Step
from ...index.library import Library
from ...machine.contraction_price import KernelStepPrices
from ...syntax.ast import Read, Uniform
from ..source_lines import broken
from .contraction_kernel_text import contraction_kernel_text
from .kernel_text import KernelText, Placed
from .positions import Local
from .product_kernel_text import product_kernel_text
from .row_kernel_text import row_kernel_text
from .scatter_kernel_text import scatter_kernel_text
from .triton_terms import NoKernelError


@dataclass(frozen=True)
class Launches:
    """Kernels that run one after the other, for the `steps`. `made` are the statements that allocate and launch,
    `results` the variables of the outputs, `read` the inputs that are needed.
    """

    steps: tuple[Step, ...]
    kernels: tuple[KernelText, ...]
    made: tuple[str, ...]
    results: tuple[str, ...]
    read: frozenset[str]


@dataclass(frozen=True)
class FusedOperator:
    """An operator that runs as kernels. `backward` has a result for each of the inputs `wrt`. It is None if none needs
    one.

    `numbers` are integers that kernels are given besides tensors. `positions` is the number of positions in one batch
    at which random numbers are drawn. `kept` are intermediates that the forward saves for backward.
    """

    name: str
    instance: Instance
    shapes: tuple[tuple[int, ...], ...]
    forward: Launches
    backward: Launches | None
    wrt: tuple[int, ...]
    numbers: tuple[str, ...]
    positions: int
    kept: tuple[str, ...]

    @property
    def contracts(self) -> bool:
        """Whether it is a matrix product with elementwise operations around it."""
        return any(isinstance(step.kernel, Contraction) for step in self.forward.steps)

    @property
    def keeps_no_product(self) -> bool:
        """Whether reductions consume its matrix products, as in attention."""
        return any(isinstance(step.kernel, ProductKernel) for step in self.forward.steps)

    @property
    def random(self) -> bool:
        return self.positions > 0

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.forward.steps + (self.backward.steps if self.backward else ())

    @property
    def kernels(self) -> tuple[KernelText, ...]:
        return self.forward.kernels + (self.backward.kernels if self.backward else ())


def fused_operator(
    name: str,
    instance: Instance,
    local: Local,
    library: Library,
    needs: Sequence[bool],
    prices: KernelStepPrices | None = None,
) -> FusedOperator | None:
    """The kernels of an operator on one device, with gradients of the inputs that `needs` marks; None if kernels cannot
    compute it or its gradient. With `prices`, matrix products of its gradient are left to the vendor's library if that
    is cheaper.
    """
    wrt = tuple(number for number, needed in enumerate(needs) if needed)
    return _fused_operator(name, instance.identity, local, library, wrt, prices)


@lru_cache(maxsize=1024)
def _fused_operator(
    name: str, identity: Key, local: Local, library: Library, wrt: tuple[int, ...], prices: KernelStepPrices | None
) -> FusedOperator | None:
    instance = identity.instance
    if row_kernels(instance) is None:
        instance = with_named_tiles(instance)
    try:
        saved = _kept(instance, library, wrt) if wrt else _Kept()
        forward = _launches(f"{name}_forward", instance, saved, local, library)
        backward = None
        if forward is not None and wrt:
            again = backward_instance(instance, library, wrt, saved.names)
            backward = _launches(f"{name}_backward", again, saved, local, library, prices)
    except (NoKernelError, DifferentAxesError):
        return None
    if forward is None or (wrt and backward is None):
        return None
    kernels = forward.kernels + (backward.kernels if backward else ())
    numbers = tuple(dict.fromkeys(number for kernel in kernels for number in kernel.numbers))
    shapes = tuple(_shape(operand, local) for operand in instance.inputs)
    positions = _positions(instance) if any(kernel.random for kernel in kernels) else 0
    return FusedOperator(name, instance, shapes, forward, backward, wrt, numbers, positions, saved.names)


@dataclass(frozen=True)
class _Kept:
    """Intermediates that the forward saves for backward: statistics of rows in the type in which kernels compute, or
    matrix products in the type of results (`narrow`).
    """

    operands: tuple[Operand, ...] = ()
    narrow: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.operands)


def _kept(instance: Instance, library: Library, wrt: tuple[int, ...]) -> _Kept:
    """What the forward saves: statistics, or products that the backward pass would compute again."""
    if row_kernels(instance) is not None:
        return _Kept()
    products = product_kernels(instance)
    if products is not None:
        return _Kept(statistics(products, instance))
    again = {equation.target for equation in backward_instance(instance, library, wrt).equations}
    products_again = [instance.operand(name) for name in products_of(instance)]
    return _Kept(tuple(operand for operand in products_again if operand in again), narrow=True)


def _positions(instance: Instance) -> int:
    """At how many positions random numbers are drawn, on all devices together."""
    drawn = [node for equation in instance.equations for node in walk(equation.value) if isinstance(node, Uniform)]
    if len(set(drawn)) != 1:
        raise NoKernelError("random numbers at several positions")
    return prod(instance.sizes[axis] for index in drawn[0].index for axis in free_axes(index))


def product_statement(step: Step) -> str:
    """The statement of a product by the vendor's library. Letters are axes."""
    kernel = step.kernel
    assert isinstance(kernel, Contraction) and isinstance(kernel.left, Read) and isinstance(kernel.right, Read)
    letters = dict(zip((*kernel.batch, *kernel.rows, *kernel.columns, *kernel.inner), ascii_letters, strict=False))
    operands = [step.instance.operand(name) for name in (kernel.left.tensor, kernel.right.tensor, kernel.product)]
    left, right, made = ("".join(letters[axis] for axis in operand.axes) for operand in operands)
    first, second, result = (variable(operand.name) for operand in operands)
    return f'{result} = torch.einsum("{left},{right}->{made}", {first}, {second}).contiguous()'


def by_row(placed: Placed) -> str:
    """The variable of the entries sorted by row."""
    return f"{variable(placed.keys)}_by_row_{placed.rows}"


def by_row_statement(placed: Placed) -> str:
    """The statement that sorts entries by row."""
    keys = variable(placed.keys)
    if placed.batch > 1:
        rows, entries = placed.rows // placed.batch, placed.entries // placed.batch
        first = f"torch.arange(0, {placed.rows}, {rows}, device=device)[:, None]"
        keys = f"{keys}.reshape({placed.batch}, {entries}) + {first}"
    return f"{by_row(placed)} = by_row({keys}, {placed.rows}, {placed.part})"


def add_parts_statement(text: KernelText, adding: KernelText, placed: Placed) -> str:
    """The statement that adds up the parts of rows that have several."""
    rows = by_row(placed)
    given = f"{rows}.starts, {rows}.part_rows, {variable(placed.sums)}, {variable(text.stores[0])}"
    blocks = "".join(f"{name}={size}, " for name, size in adding.blocks)
    return f"{adding.name}[{adding.grid}]({given}, {blocks}T=full, num_warps={adding.warps})"


def length(text: KernelText, block: str) -> str:
    """The text of a block's length in a launch."""
    size = dict(text.blocks)[block]
    if block not in text.by_width or size == LEAST:
        return str(size)
    # For elements of 8 bytes it is a quarter as long.
    shortest = f"{2 * size} // real.itemsize"
    return shortest if size >= 4 * LEAST else f"max({LEAST}, {shortest})"


def _shape(operand: Operand, local: Local) -> tuple[int, ...]:
    return tuple(prod(local.sizes[axis] for axis in dim) for dim in operand.dims)


def _launches(
    name: str,
    instance: Instance,
    kept: _Kept,
    local: Local,
    library: Library,
    prices: KernelStepPrices | None = None,
) -> Launches | None:
    """The kernels of an instance. Besides its outputs they store what is `kept`, unless that is an input."""
    known = {axis: local.sizes.get(axis, size) for axis, size in instance.sizes.items()}
    if local.divided and any(axis not in local.sizes for axis in instance.sizes):
        raise NoKernelError("an axis of the gradient is none of the operator")
    local = Local(known, local.starts, local.divided)
    made = [operand for operand in kept.operands if operand not in instance.inputs]
    instance = replace(instance, outputs=(*instance.outputs, *made))
    steps = kernel_steps(instance) if prices is None else _cheapest(instance, local, prices)
    if steps is None:
        return None
    given = {operand.name for operand in (*instance.inputs, *instance.outputs)}
    multiplied = {operand.name for step in steps if is_vendor(step) for operand in (*step.loaded, *step.made)}
    multiplied |= {name for step in steps if isinstance(step.kernel, Contraction) for name in step.kernel.windowed}
    wide = {equation.target.name for equation in instance.equations} - given - multiplied
    wide |= set() if kept.narrow else {*kept.names}
    texts: list[KernelText | Step] = []
    for number, step in enumerate(steps):
        called = name if len(steps) == 1 else f"{name}_{number}"
        texts.append(step if is_vendor(step) else _text(called, step, wide, local, library))
    return _Written(instance, kept, wide, local, texts).launches(steps)


def _cheapest(instance: Instance, local: Local, prices: KernelStepPrices) -> tuple[Step, ...] | None:
    """The steps that take the least time, over all choices of products to leave to the vendor's library."""
    steps, products = kernel_steps(instance), products_of(instance)
    if steps is None or not any(isinstance(step.kernel, Contraction) for step in steps):
        return steps
    sets = [found for count in range(len(products) + 1) for found in combinations(products, count)]
    ways = [steps for found in sets if (steps := kernel_steps(instance, found)) is not None]
    return min(ways, key=lambda steps: prices.seconds(steps, local.sizes), default=None)


def is_vendor(step: Step) -> bool:
    """Whether a step is a product by the vendor's library."""
    return isinstance(step.kernel, Contraction) and step.kernel.vendor


def _text(name: str, step: Step, wide: Collection[str], local: Local, library: Library) -> KernelText:
    kernel = step.kernel
    if isinstance(kernel, RowKernel):
        text = row_kernel_text(name, kernel, step.instance, local, library)
    elif isinstance(kernel, ProductKernel):
        text = product_kernel_text(name, kernel, step.instance, wide, local, library)
    elif isinstance(kernel, Scatter):
        text = scatter_kernel_text(name, step, wide, local, library)
    else:
        text = contraction_kernel_text(name, step, wide, local, library)
    given = (*text.loads, *text.stores)
    return replace(text, wide=(*(name for name in given if name in wide), *text.wide))


class _Written:
    """Writes the statements that allocate memory for kernels and launch them."""

    def __init__(
        self, instance: Instance, kept: _Kept, wide: Collection[str], local: Local, texts: Sequence[KernelText | Step]
    ) -> None:
        self.instance = instance
        self.local = local
        self.texts = texts
        self.operands = {e.target.name: e.target for e in instance.equations}
        self.inputs = {operand.name for operand in instance.inputs}
        self.wide = wide
        self.outputs = {operand.name for operand in instance.outputs if operand not in kept.operands}

    def launches(self, steps: tuple[Step, ...]) -> Launches:
        # An output that equals a product of the vendor's library was made with it.
        multiplied = [operand for step in steps if is_vendor(step) for operand in step.made]
        same = aliases(replace(self.instance, inputs=(*self.instance.inputs, *multiplied)))
        lines = dict.fromkeys(line for text in self.texts for line in self.launch(text))  # equal keys are sorted once
        kernels = tuple(text for text in self.texts if isinstance(text, KernelText))
        loads = [name for text in kernels for name in text.loads]
        loads += [text.placed.keys for text in kernels if text.placed is not None]
        loads += [operand.name for step in self.texts if isinstance(step, Step) for operand in step.loaded]
        results = tuple(
            variable(same.get(output.name, output.name))
            for output in self.instance.outputs
            if output.name in self.outputs
        )
        read = {name for name in (*loads, *same.values()) if name in self.inputs}
        return Launches(steps, kernels, tuple(lines), results, frozenset(read))

    def launch(self, text: KernelText | Step) -> Iterator[str]:
        if isinstance(text, Step):
            yield product_statement(text)
            return
        terms = dict(text.terms)
        given = [variable(name) for name in text.loads]
        if text.placed is not None:
            yield by_row_statement(text.placed)
            rows = by_row(text.placed)
            given = [f"{rows}.order", f"{rows}.first", f"{rows}.last", *given]
        for name in text.stores:
            shape = self.shape(name)
            if name in terms:
                made, several = "zeros" if text.zeroed else "empty", (terms[name], prod(shape))
                yield f"{variable(name)}_terms = torch.{made}({several}, dtype=wide, device=device)"
                given.append(f"{variable(name)}_terms")
            else:
                dtype = "wide" if name in self.wide else "real"
                yield f"{variable(name)} = torch.empty({shape}, dtype={dtype}, device=device)"
                given.append(variable(name))
        if text.placed is not None and text.placed.parts:
            sums = variable(text.placed.sums)
            yield f"{sums} = torch.empty({(text.placed.parts, text.placed.columns)}, dtype=wide, device=device)"
            given.append(sums)
        given += [*text.numbers, *(["*draw"] if text.random else [])]
        given += [*(f"{name}={length(text, name)}" for name, _ in text.blocks), "T=full", f"num_warps={text.warps}"]
        yield f"{text.name}[{text.grid}]({', '.join(given)})"
        if text.placed is not None and text.adds_parts is not None:
            yield add_parts_statement(text, text.adds_parts, text.placed)
        for name in terms:
            shape = self.shape(name)
            reshaped = f".reshape({shape})" if len(shape) != 1 else ""
            cast = "" if name in self.wide else ".to(real)"
            yield f"{variable(name)} = {variable(name)}_terms.sum(0){reshaped}{cast}"

    def shape(self, name: str) -> tuple[int, ...]:
        return _shape(self.operands[name], self.local)


_OF_FILE = ("F", "torch", "triton", "tl", "types", "runs", "attempt", "counters", "failed", "gradients", "by_row")
_OF_FUNCTIONS = ("uniform", "at_least", "by_torch", "ctx", "device", "draw", "full", "model", "real", "site", "wide")
_OTHERS = ("kernel", "error", "places")
_RESERVED = frozenset([*_OF_FILE, *_OF_FUNCTIONS, *_OTHERS, *kwlist])


def variable(name: str) -> str:
    """The variable of a tensor in the functions around kernels."""
    name = name.replace("'", "_")
    return f"{name}_" if name in _RESERVED else name


def kernel_head(text: KernelText) -> list[str]:
    """The `def` line of a kernel."""
    given = [*text.pointers, *text.numbers, *(["seed", "step", "site", "first_position"] if text.random else [])]
    given += [f"{name}: tl.constexpr" for name, _ in text.blocks]
    return broken(f"def {text.name}({', '.join([*given, 'T: tl.constexpr'])}):")

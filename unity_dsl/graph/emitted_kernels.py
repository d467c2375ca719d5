"""The kernels that an operator's emitted code launches on a device, and the tensors that pass between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from ..index.equations.instance import Instance, Key
from ..index.library import Library
from ..index.lowering.division import InnerMoments
from ..index.lowering.execution import Built, Execution
from ..index.lowering.standardisation import standardisations
from ..index.lowering.standardised_lowering import STANDARDISED
from ..index.lowering.torch_term import ARITHMETIC, Argument, Term
from .layout import Mesh
from .local_lowering import cuts_together, execution_of_lowering, training_lowering
from .local_native_call import left_out
from .local_operator import LocalOperator

Numbers = npt.NDArray[np.float64]

DRAWS = {"uniform": (12, 8, 124), "at_least": (9, 4, 80)}
"""Emitted functions that draw random numbers: kernels, bytes of an element, and bytes moved for each position."""

STANDARDISING = (9, 11), (1, 2)
"""The emitted function that standardises, except in float64: its kernels forward and backward, and how often each reads
or writes the tensor in addition to operands and results. The forward pass also reads it for mean and variance; in the
backward pass one kernel writes the summands and another reads them.
"""

_SEVERAL = ("torch.einsum", "torch.matmul", "torch.bmm", "F.linear")
"""Calls that copy operands with separate kernels. Any other call makes all its tensors with one kernel."""


@dataclass(frozen=True)
class Extent:
    """Bytes of a tensor on one device, in proportion to the lengths of `axes` there."""

    bytes: float
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Pass:
    """An elementwise kernel: its `function` in the library, "" for arithmetic, and how many tensors as large as its
    result are read and written `forward` and `backward`: none backward if the gradient is passed on unchanged.
    """

    function: str
    result: Extent
    forward: int
    backward: int


@dataclass(frozen=True)
class EmittedKernels:
    """Numbers of kernels forward, and backward for the inputs that need a gradient; a view has none.

    Tensors `between` kernels are written by one and read by others; `cotangents` are their gradients in the backward
    pass. `sizes` are the local sizes that belong to the extents' bytes. `passes` are the elementwise kernels of
    statements, including those that make factors of matrix products; there are none for a native call or if functions
    draw or standardise. `absorbed` are the equations that kernels of other equations compute.
    """

    forward: int
    backward: int
    between: tuple[Extent, ...]
    cotangents: tuple[Extent, ...]
    sizes: Mapping[str, int] = field(hash=False)
    passes: tuple[Pass, ...] = ()
    absorbed: frozenset[int] = frozenset()

    def passes_at(self, sizes: Mapping[str, Numbers | np.float64]) -> list[tuple[str, Numbers, Numbers | None]]:
        """For each pass at other sizes: its function, the bytes that it reads and writes, and the bytes that its
        backward reads and writes, None without one.
        """
        made = [(one, self._moved([one.result], sizes)) for one in self.passes]
        return [
            (one.function, one.forward * count, one.backward * count if one.backward else None) for one, count in made
        ]

    def traffic(self, sizes: Mapping[str, Numbers | np.float64]) -> tuple[Numbers, Numbers]:
        """Bytes that kernels write and read for each other at other sizes, forward and backward."""
        return self._moved(self.between, sizes), self._moved(self.cotangents, sizes)

    def _moved(self, extents: Sequence[Extent], sizes: Mapping[str, Numbers | np.float64]) -> Numbers:
        total: Numbers = np.zeros(())
        for extent in extents:
            total = total + extent.bytes * prod(sizes[axis] / self.sizes[axis] for axis in extent.axes)
        return np.asarray(total)


def emitted_kernels(
    instance: Instance, typed: LocalOperator, mesh: Mesh, library: Library, needs: Sequence[bool], width: int
) -> EmittedKernels:
    """The kernels of all configurations that have the same `emission`; floats have `width` bytes."""
    return _emitted_kernels(
        _Case(instance.identity, emission(instance, typed), tuple(needs), width, typed, mesh, library)
    )


def emission(instance: Instance, typed: LocalOperator) -> Hashable:
    """What kernels depend on besides sizes: equal for configurations that divide the same axes in the same ways and
    have one element left along the same axes. Transposing an axis of one element is a view. A native call divides any
    axes alike, except for those whose padding it leaves out: equations are emitted where one of them is divided.
    """
    inner = frozenset([(type(found).__name__, found.equation) for found in typed.inner])
    single = frozenset([axis for axis in typed.divided if typed.local_sizes[axis] == 1])
    if typed.native and not typed.windows:
        masked = frozenset[str]() if instance.unpadded is None else left_out(instance).intersection(typed.divided)
        return True, False, inner, single, masked, typed.reuse
    divided = frozenset(
        [(axis, tuple([by for by, _ in cuts_together(typed, axes)])) for axis, axes in typed.divided.items()]
    )
    return typed.native, bool(typed.windows), inner, single, divided, typed.reuse


@dataclass(frozen=True)
class _Case:
    """What kernels depend on. The fields not compared are those of any one configuration that is `alike`."""

    identity: Key
    alike: Hashable
    needs: tuple[bool, ...]
    width: int
    typed: LocalOperator = field(compare=False)
    mesh: Mesh = field(compare=False)
    library: Library = field(compare=False)


@lru_cache(maxsize=16384)
def _emitted_kernels(case: _Case) -> EmittedKernels:
    instance, typed = case.identity.instance, case.typed
    lowering = training_lowering(instance, typed, case.mesh, case.library)
    run, called = execution_of_lowering(lowering, instance, typed, case.needs, case.width), lowering.native
    results = {tensor.storage for tensor in run.outputs}
    between = [built for built in run.kernels if built.storage not in results and not called]
    draws = [(built, DRAWS[built.term.operation]) for built in run.kernels if built.term.operation in DRAWS]
    extents = tuple(Extent(2 * built.storage.bytes, _axes(built, typed)) for built in between)
    drawn = tuple(
        Extent(built.storage.bytes / width * moved, _axes(built, typed)) for built, (_, width, moved) in draws
    )
    more = any(built.term.operation in (*DRAWS, STANDARDISED) for built in run.kernels)
    moving = [built for built in run.kernels if built.moves]
    forward, backward = _standardising(run.kernels, typed)
    made = tuple(extent for extent, built in zip(extents, between, strict=True) if built.moves)
    return EmittedKernels(
        _launches(run.kernels, called) + sum(kernels - 1 for _, (kernels, _, _) in draws) + forward.kernels,
        _backward_launches(instance, run, moving, called) + backward.kernels if any(case.needs) else 0,
        extents + drawn + forward.extents,
        made + backward.extents,
        dict(typed.local_sizes),
        () if called or more else tuple(_passes(run.kernels, typed, case.library)),
        frozenset(_absorbed(instance, typed)),
    )


@dataclass(frozen=True)
class _More:
    """Kernels of a function in addition to one for each tensor that it makes, and what these read and write."""

    kernels: int
    extents: tuple[Extent, ...]


def _standardising(kernels: Sequence[Built], typed: LocalOperator) -> tuple[_More, _More]:
    """The additional kernels of functions that standardise, forward and backward."""
    made = [built for built in kernels if built.term.operation == STANDARDISED]
    found = []
    for (count, passes), several in zip(
        zip(*STANDARDISING, strict=True), (made, [b for b in made if b.moves]), strict=True
    ):
        # The first of three tensors is as large as what is standardised.
        extents = tuple(Extent(passes * built.storage.bytes, _axes(built, typed)) for built in several[::3])
        found.append(_More(count * len(extents) - len(several), extents))
    return found[0], found[1]


def _absorbed(instance: Instance, typed: LocalOperator) -> Iterator[int]:
    """The equations that a standardising function computes along with others."""
    means = {one.equation for one in typed.inner if isinstance(one, InnerMoments)}
    for group in standardisations(instance) if means else ():
        if group.mean in means:
            yield from group.absorbed(instance)


def _passes(kernels: Sequence[Built], typed: LocalOperator, library: Library) -> Iterator[Pass]:
    """The elementwise kernels. Anything else that is built for a matrix product, before it, is a copy."""
    functions = {decl.torch.function: name for name, decl in library.functions.items() if decl.torch is not None}
    before = _before_products(kernels)
    for built in kernels:
        operation, extent = built.term.operation, Extent(built.storage.bytes, _axes(built, typed))
        if operation in ARITHMETIC or operation in functions:
            operands = [found for found in built.term.arguments if isinstance(found, Term) and found.axes]
            whole = sum(set(_viewed(operand).axes) >= set(built.term.axes) for operand in operands)
            # The gradient of a sum is passed on unchanged, except to a broadcast operand: there rows are summed.
            backward = 2 * (len(operands) - whole) if operation == "+" else 1 + 2 * len(operands)
            yield Pass(functions.get(operation, ""), extent, 1 + whole, backward if built.moves else 0)
        elif any(built is factor for factor in before):
            yield Pass("", extent, 2, 3 if built.moves else 0)


def _viewed(term: Term) -> Term:
    """The term that a term views by subscripts; itself if it is no such view."""
    while term.operation == "[]" and isinstance(term.arguments[0], Term):
        term = term.arguments[0]
    return term


def _before_products(kernels: Sequence[Built]) -> list[Built]:
    """What is built for matrix products before they run: by terms inside them, and by them except the last tensor."""
    products = [built.term for built in kernels if built.term.operation in _SEVERAL]
    inside = {id(term) for product in products for term in _terms_inside(product)}
    last = {id(built.term): built for built in kernels}
    own = [built for built in kernels if built.term.operation in _SEVERAL and built is not last[id(built.term)]]
    return [*(built for built in kernels if id(built.term) in inside), *own]


def _terms_inside(term: Term) -> Iterator[Term]:
    """The terms inside a term, at any depth."""
    pending: list[Argument] = [*term.arguments, *(value for _, value in term.keywords)]
    while pending:
        match pending.pop():
            case Term() as found:
                yield found
                pending += [*found.arguments, *(value for _, value in found.keywords)]
            case tuple() | list() as parts:
                pending += parts


def _launches(kernels: Sequence[Built], called: bool) -> int:
    """The number of kernels: one per tensor that is built, but one for all tensors of most native calls."""
    if not called:
        return len(kernels)
    several = sum(built.term.operation in _SEVERAL for built in kernels)
    return several + len({id(built.term) for built in kernels if built.term.operation not in _SEVERAL})


def _backward_launches(instance: Instance, run: Execution, moving: Sequence[Built], called: bool) -> int:
    """Backward kernels: as many as forward for what has a gradient. A view of all elements has a view as gradient."""
    if moving:
        return _launches(moving, called)
    whole = {prod(tensor.shape) for tensor in run.outputs}
    return 0 if all(prod(x.shape) in whole for x in run.inputs if x.moves) else 1


def _axes(built: Built, typed: LocalOperator) -> tuple[str, ...]:
    """The axes of a tensor: those of its term, or of a term inside, whose local sizes give its number of elements."""
    found = [axes for axes in _candidates(built.term) if all(axis in typed.local_sizes for axis in axes)]
    for axes in found:
        if built.storage.bytes in (width * prod(typed.local_sizes[axis] for axis in axes) for width in (1, 2, 4, 8)):
            return axes
    return max(found, key=len, default=())


def _candidates(term: Term) -> Iterator[tuple[str, ...]]:
    """The axes of a term and of all inside it, outermost first."""
    yield tuple(dict.fromkeys(term.axes))
    for argument in (*term.arguments, *(value for _, value in term.keywords)):
        yield from _inside(argument)


def _inside(argument: Argument) -> Iterator[tuple[str, ...]]:
    if isinstance(argument, Term):
        yield from _candidates(argument)
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _inside(part)

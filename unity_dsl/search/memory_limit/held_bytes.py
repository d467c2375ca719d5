"""Bytes that each choice of a plan holds on a device: a sum over operators, weights and conversions, as seconds are.

A value that the backward pass needs is charged where it is made, in its layout there. If an operator saves what it
reads in another layout, the copy is charged with the conversion that makes it, so that readers of one layout share it.
Storages that only an operator knows are charged with its configuration; a weight, with its gradient and moments, where
it is stored; an input in equal parts with its readers. Readers that save a copy are not told apart from others of the
same value. A value that is converted for all its readers is counted as it was made besides, unless it was made as terms
of a sum. `accounting/memory_prediction.py` walks a finished plan instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np
import numpy.typing as npt

from ...graph.graph import DTYPE_BYTES, Graph, Node, Value
from ...graph.layout import Layout, Mesh, Partial
from ...graph.layout_typing import TypedOperator, type_operator
from ...graph.local_lowering import local_execution
from ...graph.plan import PlannedNode
from ...graph.precision import arithmetic, operand_types
from ...index.library import Library
from ...index.lowering.division import InnerReplicate
from ...index.lowering.execution import Execution
from ...index.lowering.local_tensor import Shape
from ...machine.collective_price import local_fraction
from ..accounting.recomputation import segments
from ..choices.layout_space import Space
from ..choices.operator_options import Options
from ..choices.restriction import node_path
from ..cost_network.bucket_elimination import Table
from .kept_values import KeptValues, kept_values
from .stored_bytes import HELD_TRAINED


@dataclass(frozen=True)
class _Saved:
    """The storages that an operator saves in one way of being computed. `own` are bytes of storages that only it knows,
    at local `sizes` of its axes; `grows[s, a]` tells whether storage s has axis a. First come the storages that it
    saves, then those that it only `passes` on or frees. `operands` and `results` that are saved are given by place.
    """

    axes: tuple[str, ...]
    sizes: npt.NDArray[np.float64]
    own: npt.NDArray[np.float64]
    grows: npt.NDArray[np.float64]
    passes: npt.NDArray[np.bool_]
    operands: frozenset[int]
    results: frozenset[int]

    def bytes(self, typed: Sequence[TypedOperator]) -> Table:
        """Own bytes that are saved, for configurations computed in this way. Shape [configurations]."""
        return np.asarray(self._each(typed) @ np.where(self.passes, 0.0, self.own))

    def largest(self, typed: Sequence[TypedOperator]) -> Table:
        """The bytes of the largest saved storage alone."""
        return np.asarray((self._each(typed) * np.where(self.passes, 0.0, self.own)).max(axis=1, initial=0.0))

    def passing(self, typed: Sequence[TypedOperator]) -> Table:
        """The own bytes that are not saved."""
        return np.asarray(self._each(typed) @ np.where(self.passes, self.own, 0.0))

    def _each(self, typed: Sequence[TypedOperator]) -> Table:
        """How many times larger each storage is than at `sizes`. Shape [configurations, storages]."""
        sizes = np.array([[found.local_sizes[axis] for axis in self.axes] for found in typed], dtype=float)
        ratios = np.log(sizes.reshape(len(typed), len(self.axes)) / self.sizes)
        return np.asarray(np.exp(ratios @ self.grows.T))


class HeldBytes:
    """Bytes held by the choices of a model, and of models that rules make of it, on any mesh."""

    def __init__(
        self,
        graph: Graph,
        library: Library,
        saved: dict[object, _Saved] | None = None,
        recomputed: Collection[str] = (),
        *,
        moment: Moment | None = None,
    ) -> None:
        self.library, self.moment = library, moment
        self.copies = HELD_TRAINED if moment is None or moment.gradients else HELD_TRAINED - 1
        self.busy = None if moment is None else moment.operator or busiest(graph, library)
        around = {path: segment.count for path, segment in segments(graph) if f"{self.busy}".startswith(f"{path}.")}
        self.iterations = prod(around.values())
        self.inside = tuple(f"{path}." for path in recomputed)
        self.kept: KeptValues = kept_values(graph, library, recomputed)
        self.variables = self._variables(graph) if self.busy is not None and not around else frozenset[str]()
        self.saved: dict[object, _Saved] = {} if saved is None else saved
        self.forward: dict[object, tuple[object, Table]] = {}  # recomputation prices; keeps objects whose id is a key
        self._of_options: dict[tuple[str, int], tuple[Options, Table]] = {}

    def _variables(self, graph: Graph) -> frozenset[str]:
        """Values outside of repeats that are made before the busy operator runs, are no views, and of which nothing is
        saved. If they are terms of a sum, variables hold them until the forward pass ends.
        """
        nodes = [step for step in graph.steps if isinstance(step, Node)]
        end = next((number for number, node in enumerate(nodes) if node_path("", node) == self.busy), 0)
        made = {value.name for node in nodes[:end] for value in node.results}
        return frozenset(made - self.kept.views - self.kept.read)

    def of_options(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """`of_operator` for all configurations, computed once."""
        key = node_path(prefix, node), id(options)
        if key not in self._of_options:
            self._of_options[key] = options, self.of_operator(node, prefix, options.typed, mesh)
        return self._of_options[key][1]

    def of_operator(self, node: Node, prefix: str, typed: Sequence[TypedOperator], mesh: Mesh) -> Table:
        """Bytes by configuration: what only the operator knows, and its results that are kept. Shape
        [configurations].
        """
        total = np.zeros(len(typed))
        made, read = self.kept.made, self.kept.read
        for number, value in enumerate(node.results):
            results = [found.results[number] for found in typed]
            if (path := prefix + value.name) in made:
                total += value.bytes * _fractions(results, mesh, terms=path in self.kept.entering)
            if path in self.variables:
                total += value.bytes * (_fractions(results, mesh, terms=True) - _fractions(results, mesh))
        for number, value in enumerate(node.arguments):
            if part := self.kept.given.get((node_path(prefix, node), number)):
                layouts = (found.arguments[number] for found in typed)
                total += part * value.bytes * _fractions(layouts, mesh)
        kept = not prefix.startswith(self.inside)
        if not any(node.gradients) or not (kept or node_path(prefix, node) == self.busy):
            return total
        ways: dict[_Way, list[int]] = {}
        for place, found in enumerate(typed):
            ways.setdefault(_way(node, found), []).append(place)
        for way, places in ways.items():
            some = [typed[place] for place in places]
            saved = self._saved(node, prefix, some[0], mesh, way)
            wanted = operand_types(node, arithmetic(node, way.native, self.library))
            if node_path(prefix, node) == self.busy:
                total[places] += _while_it_runs(node, saved, some, wanted, mesh) / self.iterations
            if not kept:
                continue
            held = saved.bytes(some)
            for number in saved.operands:
                value, dtype = node.arguments[number], wanted[number]
                if value.dtype != dtype or prefix + value.name not in read:
                    layouts = (found.arguments[number] for found in some)
                    held = held + value.elements * DTYPE_BYTES[dtype] * _fractions(layouts, mesh)
            for number in saved.results:
                if prefix + node.results[number].name not in made:
                    held = held + node.results[number].bytes * _fractions(
                        (found.results[number] for found in some), mesh
                    )
            total[places] += held
        return total

    def _saved(self, node: Node, prefix: str, typed: TypedOperator, mesh: Mesh, way: _Way) -> _Saved:
        width = DTYPE_BYTES[arithmetic(node, way.native, self.library)]
        strides = self.kept.strides.get(node_path(prefix, node), (None,) * len(node.arguments))
        key = node.instance.identity, node.gradients, width, strides, way
        if key not in self.saved:
            if way.windows:  # as on one device, where no operand is read beyond its slice
                mesh = Mesh(())
                alone = type_operator(node.instance, (), mesh, self.library)
                assert not isinstance(alone, str), alone
                typed = alone
            self.saved[key] = _find_saved(node, replace(typed, native=way.native), mesh, self.library, width, strides)
        return self.saved[key]

    def of_stored(self, value: Value, layouts: Iterable[Layout], mesh: Mesh) -> Table:
        """Bytes of a weight or buffer, with what training keeps of it, by storage layout."""
        copies = self.copies if value.needs_gradient else 1
        return copies * value.stored_bytes * np.array([local_fraction(layout, mesh) for layout in layouts])

    def of_copies(self, value: Value, space: Space, *, alone: bool = False) -> Table:
        """Bytes of a copy of a value in layout j that is made of layout i. Shape [layouts, layouts].

        If one operator `alone` reads a weight that is cast, the cast is a copy even where a view of it is read.
        """
        held = value.bytes * np.array([local_fraction(layout, space.prices.mesh) for layout in space.layouts])
        return np.where(space.views, held[:, None] if alone and value.is_cast else 0.0, held[None, :])


@dataclass(frozen=True)
class Moment:
    """When bytes are counted: not at the end of the forward pass, but while an `operator`, given by its path, or else
    the busiest one runs. `gradients` says that all gradients are there by then, of another micro-batch. In repeats, it
    is an iteration in which nearly all that is kept is there.
    """

    gradients: bool
    operator: str = ""


def busiest(graph: Graph, library: Library) -> str | None:
    """The operator, of those behind all repeats of a model, that holds the most only while it runs, on one device.
    Nearly all that the forward pass keeps is there at that time. None if no such operator has a gradient.
    """
    found: dict[str, float] = {}
    for node in reversed(graph.steps):
        if not isinstance(node, Node):
            break
        typed = type_operator(node.instance, (), Mesh(()), library)
        assert not isinstance(typed, str), typed
        if any(node.gradients):
            width = DTYPE_BYTES[arithmetic(node, typed.native, library)]
            saved = _find_saved(node, typed, Mesh(()), library, width, (None,) * len(node.arguments))
            wanted = operand_types(node, arithmetic(node, typed.native, library))
            found[node.name] = float(_while_it_runs(node, saved, [typed], wanted, Mesh(()))[0])
    return max(found, key=found.__getitem__, default=None)


def _while_it_runs(
    node: Node, saved: _Saved, typed: Sequence[TypedOperator], types: Sequence[str], mesh: Mesh
) -> Table:
    """The bytes that an operator holds only while it runs, or, if that is more, while its gradient does: the gradients
    of its operands, and that of the largest storage that it saves. It reads operands in these types.
    """
    backward = saved.largest(typed)
    for number, (value, dtype, needed) in enumerate(zip(node.arguments, types, node.gradients, strict=True)):
        if needed:
            parts = np.array([local_fraction(one.arguments[number], mesh) for one in typed])
            backward = backward + value.elements * DTYPE_BYTES[dtype] * parts
    return np.maximum(saved.passing(typed), backward)


@dataclass(frozen=True)
class _Way:
    """How an operator is computed: by its native call, or by statements, of which those in `inner` are reduced at once;
    and whether its operands are `windows`.
    """

    native: bool
    windows: bool
    inner: frozenset[tuple[str, int | str]]


def _way(node: Node, typed: TypedOperator) -> _Way:
    inner = (
        (type(one).__name__, one.operand if isinstance(one, InnerReplicate) else one.equation) for one in typed.inner
    )
    return _Way(PlannedNode(node, typed).native, bool(typed.windows), frozenset(inner))


def _fractions(layouts: Iterable[Layout], mesh: Mesh, *, terms: bool = False) -> Table:
    """The fraction of a tensor that a device keeps, by layout. Terms of a sum count as nothing, since they are added up
    for their readers, unless `terms` are kept.
    """
    known: dict[Layout, float] = {}
    rows = []
    for layout in layouts:
        if layout not in known:
            known[layout] = 0.0 if layout.where(Partial) and not terms else local_fraction(layout, mesh)
        rows.append(known[layout])
    return np.array(rows)


def _find_saved(
    node: Node, typed: TypedOperator, mesh: Mesh, library: Library, width: int, strides: Sequence[Shape | None]
) -> _Saved:
    """Runs the operator's lowering, and once more with each axis twice as long: storages that grow have the axis. If
    the longer run has other storages (numbers of positions take 64 bits from 2^31 on, and as many places as choices
    drop nothing), the axis is half as long instead. If that does not help either, all storages are taken to grow.
    """
    axes = tuple(node.instance.sizes)

    def run(sizes: Mapping[str, int]) -> tuple[Execution, list[int], list[int]]:
        longer = replace(typed, local_sizes=sizes)
        whole = {a: size * sizes[a] // typed.local_sizes[a] for a, size in node.instance.sizes.items()}
        instance = replace(node.instance, sizes=whole)
        local = [
            None if steps is None else _packed([prod(sizes[a] for a in dim) for dim in operand.dims], steps)
            for operand, steps in zip(node.instance.inputs, strides, strict=True)
        ]
        found = local_execution(instance, longer, mesh, library, node.gradients, width, local)
        known = {tensor.storage for tensor in (*found.inputs, *found.outputs)}
        own = [storage.bytes for storage in found.saved if storage not in known]
        passing = [storage.bytes for storage in found.built if storage not in found.saved]
        return found, own, passing

    sizes = dict(typed.local_sizes)
    first, kept, passing = run(sizes)
    own = [*kept, *passing]

    def changed(axis: str) -> list[bool]:
        half, rest = divmod(sizes[axis], 2)
        for other in (2 * sizes[axis], *([] if rest else [half])):
            _, *after = run({**sizes, axis: other})
            if [*map(len, after)] == [len(kept), len(passing)]:
                return [one != before for one, before in zip(chain(*after), own, strict=True)]
        return [True] * len(own)

    grows = np.array([changed(axis) for axis in axes] if own else [], dtype=float)
    saved = set(first.saved)
    return _Saved(
        axes,
        np.array([sizes[axis] for axis in axes], dtype=float),
        np.array(own, dtype=float),
        grows.reshape(len(axes), len(own)).T,
        np.arange(len(own)) >= len(kept),
        frozenset(number for number, tensor in enumerate(first.inputs) if tensor.storage in saved),
        frozenset(number for number, tensor in enumerate(first.outputs) if tensor.storage in saved),
    )


def _packed(shape: Sequence[int], strides: Shape) -> Shape:
    """Strides of a tensor without gaps, in the same order as the given ones; those of broadcast dimensions stay 0."""
    packed, count = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (strides[dim], -dim)):
        if strides[dim]:
            packed[dim], count = count, count * shape[dim]
    return tuple(packed)

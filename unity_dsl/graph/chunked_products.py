"""Decomposed matmuls: products in parts, overlapped with the all-gather of an operand or the sum of the result.

The rows of a product do not depend on each other. If an operand is gathered along rows, the blocks of the group's
members are sent one by one, and each is multiplied when it arrives, the device's own block at once. If the result is a
term of a sum over devices, the sum of some rows is overlapped with the computation of the next rows. In the backward
pass the gradient of the operand is computed in the same way, from the blocks of a gathered gradient (Wang et al.,
Overlap communication with dependent computation via decomposition in large deep learning models, 2023).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..index.library import Library
from ..index.lowering.torch_term import Term, Variable
from .collective_steps import SUMS, Step, StepKind
from .deferred_gradients import WeightProduct, weight_product
from .graph import Value
from .layout import Layout, Mesh
from .layout_conversion import Conversions
from .local_lowering import training_lowering
from .plan import Plan, PlannedGraph, PlannedNode, PlannedSegment
from .precision import arithmetic, operand_types, result_types


@dataclass(frozen=True)
class ChunkedProduct:
    """A product in `parts` along an `axis` of its operator, overlapped with the conversion of `value` to `layout`. The
    value is its operand number `reads`, or its result if that is None.
    """

    product: WeightProduct
    value: Value
    layout: Layout
    axis: str
    parts: int
    reads: int | None = None


@dataclass(frozen=True)
class Chunked:
    """The decomposed matmuls of a graph. `arriving` are those that read a value block by block, by the value and the
    layout to which it is converted. `leaving` are those whose results are sent part by part, by their operators' names.
    """

    arriving: Mapping[tuple[str, Layout], ChunkedProduct] = field(default_factory=dict)
    leaving: Mapping[str, ChunkedProduct] = field(default_factory=dict)

    @property
    def products(self) -> tuple[ChunkedProduct, ...]:
        return *self.arriving.values(), *self.leaving.values()

    def reading(self, step: PlannedNode) -> ChunkedProduct | None:
        """The decomposed matmul of an operator that reads a value block by block; None for other operators."""
        reads = zip(step.node.arguments, step.typed.arguments, strict=True)
        found = (self.arriving.get((value.name, layout)) for value, layout in reads)
        return next((one for one in found if one is not None and one.product.step.node.name == step.node.name), None)


NONE = Chunked()


def chunks_of_plan(plan: Plan, library: Library, count: int) -> Iterator[tuple[str, ChunkedProduct]]:
    """The products of a plan that can be decomposed, each with the path of the body it is in; sums take `count` parts.
    Products of interleaved repeats are left out: these repeats already compute while others send.
    """
    turns = {name for names in plan.passes.interleaved for name in names}

    def within(graph: PlannedGraph, path: str, left: Collection[str]) -> Iterator[tuple[str, ChunkedProduct]]:
        found = chunked_products(graph, plan.conversions, plan.mesh, library, count, left)
        yield from ((path, product) for product in found.products)
        for step in graph.steps:
            if isinstance(step, PlannedSegment) and (path or step.segment.name not in turns):
                leaves = {value.name for value in step.segment.leaves}
                for run in step.runs:
                    yield from within(run.body, f"{path}{step.segment.name}.", leaves)

    outside = (*plan.model.returned, *plan.model.outputs)
    yield from within(plan.graph, "", {value.name for value in outside})


def chunked_products(
    planned: PlannedGraph, conversions: Conversions, mesh: Mesh, library: Library, count: int, left: Collection[str]
) -> Chunked:
    """The decomposed matmuls of a graph, without its bodies. `left` names the values that are read after the graph."""
    if any(step.placement for step in planned.steps if isinstance(step, PlannedNode)):
        return NONE
    finder = _Finder(planned, conversions, mesh, library, count, left)
    arriving = {(found.value.name, found.layout): found for found in finder.arriving()}
    reading = {found.product.step.node.name for found in arriving.values()}
    leaving = {name: found for name, found in finder.leaving() if name not in reading}
    return Chunked(arriving, leaving) if arriving or leaving else NONE


def gathers_blocks(steps: Sequence[Step], start: Layout, shape: tuple[int, ...], mesh: Mesh) -> Step | None:
    """The all-gather that a conversion from layout `start` is, if the members' blocks are contiguous and have rows;
    None for other conversions.
    """
    if len(steps) != 1 or steps[0].kind is not StepKind.ALL_GATHER:
        return None
    return steps[0] if _in_blocks(steps[0], start, shape, mesh) else None


def _in_blocks(step: Step, layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> bool:
    """Whether a group's blocks of a dimension are contiguous, in the order of its members, and are sent in one step."""
    if layout.declared_dims or step.dim >= len(shape) - 1 or list(step.axes) != sorted(step.axes) or step.first:
        return False
    return all(extent == 1 for extent in layout.local_shape(shape, mesh)[: step.dim])


def linear_product(step: PlannedNode, mesh: Mesh, library: Library) -> WeightProduct | None:
    """The product that an operator computes, if that is `F.linear`, else None."""
    product = weight_product(step, mesh, library)
    return product if product is not None and product.function == "linear" else None


def operand_of(product: WeightProduct) -> int | None:
    """The number of the operand that a product multiplies unchanged; None if it changes it first."""
    match product.term.arguments[0]:
        case Term("name", (Variable(number),)):
            return number
    return None


class _Finder:
    def __init__(
        self,
        planned: PlannedGraph,
        conversions: Conversions,
        mesh: Mesh,
        library: Library,
        count: int,
        left: Collection[str],
    ) -> None:
        self.planned, self.conversions, self.mesh, self.library = planned, conversions, mesh, library
        self.count, self.left = count, {*left, *(update.value.name for update in planned.graph.updates)}
        self.readers: dict[str, list[tuple[Layout, PlannedNode]]] = {}
        self.read_by_bodies: set[str] = set()
        for step in planned.steps:
            if isinstance(step, PlannedNode):
                for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                    self.readers.setdefault(value.name, []).append((layout, step))
            else:
                self.read_by_bodies |= {value.name for value in step.segment.reads}

    def arriving(self) -> Iterator[ChunkedProduct]:
        """For every gathered value, the product that reads it first, if it can be decomposed."""
        for name, planned in self.planned.values.items():
            value = planned.value
            if not value.needs_gradient or value.is_weight or name in self.read_by_bodies:
                continue
            for made in planned.materialised:
                onward = any(other.source == made.layout for other in planned.materialised)
                if made.source != planned.produced or onward:
                    continue
                steps = self._steps(value, made.source, made.layout)
                gather = gathers_blocks(steps, made.source, value.shape, self.mesh)
                readers = self.readers.get(name, [])
                first = next((step for layout, step in readers if layout == made.layout), None)
                if gather is not None and first is not None:
                    found = self._reading(first, value, made.layout, gather)
                    if found is not None:
                        yield found

    def _reading(self, step: PlannedNode, value: Value, layout: Layout, gather: Step) -> ChunkedProduct | None:
        node, parts = step.node, self.mesh.degree(gather.axes)
        product = linear_product(step, self.mesh, self.library)
        place = None if product is None else operand_of(product)
        if product is None or place is None:
            return None
        taken = operand_types(node, arithmetic(node, step.native, self.library))[place]
        axes = node.instance.inputs[place].dims[gather.dim]
        if node.arguments[place] != value or taken != value.dtype or step.typed.arguments[place] != layout:
            return None
        if len(axes) != 1 or step.typed.local_sizes[axes[0]] % parts:
            return None
        return ChunkedProduct(product, value, layout, axes[0], parts, place)

    def leaving(self) -> Iterator[tuple[str, ChunkedProduct]]:
        """The products whose results are read by operators only, all after the same sum over devices."""
        for step in self.planned.steps:
            if not isinstance(step, PlannedNode) or len(step.node.results) != 1:
                continue
            (value,) = step.node.results
            planned = self.planned.values[value.name]
            made = [one for one in planned.materialised if one.source == planned.produced]
            layouts = [layout for layout, _ in self.readers.get(value.name, [])]
            if value.name in self.left | self.read_by_bodies or len(made) != 1 or not value.needs_gradient:
                continue
            if not layouts or planned.produced in layouts:
                continue
            steps = self._steps(value, planned.produced, made[0].layout)
            if len(steps) == 1 and steps[0].kind in SUMS:
                found = self._summed(step, value, made[0].layout, steps[0])
                if found is not None:
                    yield step.node.name, found

    def _summed(self, step: PlannedNode, value: Value, layout: Layout, summed: Step) -> ChunkedProduct | None:
        node, produced = step.node, step.typed.results[0]
        scatters = summed.kind is StepKind.REDUCE_SCATTER
        dim = summed.dim if scatters else 0
        if produced.declared_dims or (scatters and not _in_blocks(summed, produced, value.shape, self.mesh)):
            return None
        product = linear_product(step, self.mesh, self.library)
        if product is None or len(product.term.arguments) != 2:
            return None
        lowering = training_lowering(node.instance, step.typed, self.mesh, self.library)
        if [statement.value for statement in lowering.statements] != [product.term]:
            return None
        if result_types(node, arithmetic(node, step.native, self.library))[0] != value.dtype:
            return None
        for place, axes in enumerate(node.instance.outputs[0].dims[:-1]):
            if place < dim or len(axes) != 1:
                continue
            members = self.mesh.degree(summed.axes) if scatters and place == dim else 1
            if step.typed.local_sizes[axes[0]] // members % self.count == 0:
                return ChunkedProduct(product, value, layout, axes[0], self.count)
        return None

    def _steps(self, value: Value, source: Layout, target: Layout) -> Sequence[Step]:
        return self.conversions.conversion(source, target, value.shape, value.bytes, value.stored_bytes).forward

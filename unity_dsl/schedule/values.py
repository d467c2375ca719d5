"""The tensors of a function under construction: layouts and casts, which are made where they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..graph.chunked_products import NONE, Chunked, chunked_products
from ..graph.collective_steps import BEGUN
from ..graph.deferred_gradients import DeferredGradients, WeightProduct, deferred_gradients
from ..graph.gathered_weights import GatheredWeights
from ..graph.graph import Value
from ..graph.layout import Layout, invariant
from ..graph.layout_conversion import Conversion
from ..graph.plan import Plan, PlannedGraph, PlannedNode
from ..graph.precision import arithmetic, operand_types
from ..graph.reused_operands import updated_in_place
from ..graph.shared_calls import SharedCalls
from ..index.library import Library
from .ir import (
    Arrive,
    AwaitGathers,
    Begin,
    Cast,
    Compute,
    Convert,
    Defer,
    Group,
    Instruction,
    Loop,
    Tensor,
)

Groups = Callable[[Sequence[PlannedNode], PlannedGraph, frozenset[str], bool], Iterable[PlannedNode | Group]]
"""Groups the steps of a graph that run as one kernel, given what is read after the steps and whether they run without
gradients.
"""


@dataclass(frozen=True)
class Building:
    """The state that the functions of one schedule share."""

    plan: Plan
    library: Library
    weights: GatheredWeights
    groups: Groups | None = None
    shared_of: dict[int, SharedCalls] = field(default_factory=dict)

    def shared(self, planned: PlannedGraph) -> SharedCalls:
        return self.shared_of.setdefault(id(planned), SharedCalls(planned, self.plan.mesh, self.library))


@dataclass
class Held:
    """The tensors of a value, by layout, and the layout that each is made from. If these are casts of a stored weight,
    `stored` is the stored tensor. `casts` are those to the float types of operators.
    """

    value: Value
    produced: Layout
    tensors: dict[Layout, Tensor]
    sources: dict[Layout, Layout] = field(default_factory=dict)
    parameter: bool = False
    stored: Tensor | None = None
    casts: dict[tuple[Tensor, str], Tensor] = field(default_factory=dict)


def new_tensors(values: Iterable[Value], layouts: Iterable[Layout]) -> tuple[Tensor, ...]:
    """Values in these layouts, each in its own float type."""
    return tuple(Tensor(value, layout, value.dtype) for value, layout in zip(values, layouts, strict=True))


class Values:
    """The tensors of a function under construction. An instruction is added when what it makes is first needed.

    `first` are the gathers that come before all else, `announced` those that a loop's last iteration has started, and
    `ungathered` the weights that operators will wait for. Tensors are `travelling` until they arrive. `departed`
    conversions, by value and layout, were started but not requested yet. Parts are `joined` by later operators,
    `slices` were made by earlier ones, and operators outside of fused kernels are `alone`. At the end, when only
    updates of buffers are left, it is `detached`: they have no gradients.
    """

    def __init__(
        self,
        building: Building,
        planned: PlannedGraph,
        path: str,
        outside: Mapping[str, Held] = {},
        left: Iterable[Value] = (),
        *,
        interleaved: bool,
    ) -> None:
        self.building, self.planned, self.path, self.interleaved = building, planned, path, interleaved
        plan, graph = building.plan, planned.graph
        self.instructions: list[Instruction] = []
        self.detached = False
        self.held = dict(outside)
        for name, held in outside.items():
            if name in planned.values:
                held.sources |= {made.layout: made.source for made in planned.values[name].materialised}
        self.travelling: dict[Tensor, Begin | Compute] = {}
        self.departed: dict[tuple[str, Layout], Begin | Compute] = {}
        self.deferred: dict[str, Defer] = {}
        self.joined: dict[str, tuple[Tensor, ...]] = {}
        self.slices: dict[str, Tensor] = {}
        self.alone: set[str] = set()
        self.loops: dict[str, Loop] = {}
        self.first: tuple[Convert, ...] = ()
        self.announced: tuple[Convert, ...] = ()
        self.ungathered: dict[str, AwaitGathers] = {}
        self.written: set[int] = set()
        self.leaving = frozenset(value.name for value in (*left, *(update.value for update in graph.updates)))
        defers = plan.passes.deferred_gradients and not interleaved
        shared = plan.conversions, plan.mesh, building.library
        self.deferring: DeferredGradients = deferred_gradients(planned, *shared) if defers else {}
        self.chunks: Chunked = NONE
        if plan.passes.chunks > 1 and not interleaved:
            self.chunks = chunked_products(planned, *shared, plan.passes.chunks, self.leaving)
        self.inputs: list[Tensor] = []
        changed = updated_in_place(planned)
        self.updates_left = [update for update in graph.updates if update.buffer.name not in changed]
        self.stored = [self._store(weight.value, trained=True) for weight in graph.weights]
        self.stored += [self._store(buffer.value, trained=False) for buffer in graph.buffers]
        updated = {update.buffer.name for update in self.updates_left}
        self.updated = {tensor for tensor in self.stored if tensor.value.name in updated}

    @property
    def weights(self) -> GatheredWeights:
        """The weights that operators read gathered."""
        return self.building.weights

    # ------------------------------------------------------------------------------------------ values

    def _store(self, value: Value, *, trained: bool) -> Tensor:
        layout = self.planned.values[value.name].produced
        tensor = Tensor(value, layout, value.stored_dtype if value.is_cast else value.dtype, trained)
        self.add(tensor, parameter=trained)
        return tensor

    def add_input(self, value: Value, layout: Layout | None) -> None:
        """Adds an input. One that is given whole is cut into the layout that the plan has for it."""
        produced = self.planned.values[value.name].produced
        tensor = Tensor(value, layout or produced, value.dtype)
        self.inputs.append(tensor)
        self.add(tensor)
        if tensor.layout == invariant(self.building.plan.mesh) != produced:
            self.held[value.name].sources[produced] = tensor.layout

    def add(self, tensor: Tensor, *, parameter: bool = False) -> None:
        """Adds a value that exists from here on."""
        value, planned = tensor.value, self.planned.values.get(tensor.value.name)
        sources = {made.layout: made.source for made in planned.materialised} if planned else {}
        tensors, stored = ({}, tensor) if value.is_cast else ({tensor.layout: tensor}, None)
        self.held[value.name] = Held(value, tensor.layout, tensors, sources, parameter, stored)

    def tensor(self, value: Value, layout: Layout, dtype: str | None = None) -> Tensor:
        """A value in a layout, in the float type `dtype` if one is given."""
        held, given = self.held[value.name], self.in_layout(value, layout)
        if dtype is None or dtype in ("int", value.dtype):
            return given
        if (given, dtype) not in held.casts:
            held.casts[given, dtype] = self._cast(given, dtype)
        return held.casts[given, dtype]

    def _cast(self, given: Tensor, dtype: str) -> Tensor:
        self.arrive([given])
        made = Tensor(given.value, given.layout, dtype)
        self.instructions.append(Cast(given, made))
        return made

    def in_layout(self, value: Value, layout: Layout) -> Tensor:
        """A value in a layout."""
        while value.name in self.ungathered:
            self.add_awaited(next(iter(self.ungathered.values())))
        held = self.held[value.name]
        if not value.needs_gradient:
            layout = layout.without_copies
            held.tensors = {found.without_copies: tensor for found, tensor in held.tensors.items()}
            # Invariant made from Replicate, or the other way, is the same tensor: the first source is the real one.
            sources: dict[Layout, Layout] = {}
            for made, source in held.sources.items():
                sources.setdefault(made.without_copies, source.without_copies)
            held.sources = sources
        if layout not in held.tensors:
            held.tensors[layout] = self._converted(held, layout)
        return held.tensors[layout]

    def conversion(self, value: Value, source: Layout, target: Layout, *, copy: bool = False) -> Conversion:
        """The steps that convert a value from its produced layout, or from that of a `copy`."""
        in_buckets = value.is_weight and not copy
        ahead = in_buckets and self.building.weights.ahead.begins(value, source, target)
        return self.building.plan.conversions.conversion(
            source, target, value.shape, value.bytes, value.stored_bytes, in_buckets=in_buckets, ahead=ahead
        )

    def _converted(self, held: Held, layout: Layout) -> Tensor:
        value = held.value
        produced = held.produced if value.needs_gradient else held.produced.without_copies
        source = held.sources.get(layout, produced)
        # A weight is cast during its conversion, as its gradient is; a buffer is cast before it.
        stored = held.stored if source == produced and (value.is_weight or layout == produced) else None
        if stored is not None and layout == produced:
            return self._cast(stored, value.dtype)
        gradient = value.needs_gradient and not self.detached
        parameter = held.parameter and source == produced and gradient
        conversion = self.conversion(value, source, layout, copy=source != produced)
        if not conversion.forward and not (gradient and conversion.backward):
            return self.in_layout(value, source)
        given = stored or self.in_layout(value, source)
        self.arrive([given])
        made = Tensor(value, layout, value.dtype)
        if self.interleaved and not held.parameter and stored is None and _travels(conversion, parameter):
            return self._begin(Begin(given, made, source, conversion))
        if gradient and self._is_begun(Begin(given, made, source, conversion)):
            return made
        in_buckets = parameter and conversion.ends_in_sum
        self.instructions.append(Convert(given, made, source, conversion, in_buckets))
        return made

    # ------------------------------------------------------------------------------------------ overlap

    def add_awaited(self, awaited: AwaitGathers) -> None:
        """Waits for weights that are gathered together."""
        if self.path and not awaited.among and not self.first:
            self.first = awaited.gathers
        self.instructions.append(awaited)
        for gather in awaited.gathers:
            self.held[gather.value.name].tensors[gather.makes.layout] = gather.makes
            self.ungathered.pop(gather.value.name, None)

    def _begin(self, begin: Begin) -> Tensor:
        self.instructions.append(begin)
        self.travelling[begin.makes] = begin
        return begin.makes

    def _is_begun(self, begin: Begin) -> bool:
        """Starts a conversion here if weight gradients are deferred to overlap it, or if a product runs in blocks with
        it. It is waited for after the deferred weights are read. Returns whether it was started.
        """
        made, key = begin.makes, (begin.makes.value.name, begin.makes.layout)
        deferrable = [found for found in self.deferring.get(key, ()) if found.step.node.name in self.alone]
        sent, arriving = self.departed.pop(key, None), self.chunks.arriving.get(key)
        product = arriving if arriving is not None and arriving.product.step.node.name in self.alone else None
        if not (deferrable or sent or product):
            return False
        if sent is not None:
            self.travelling[made] = sent
        else:
            self._begin(replace(begin, product=product))
        if product is not None:
            self.departed[key] = self.travelling[made]
        for found in deferrable:
            self._defer(found, made.value)
        self.arrive([made])
        return True

    def _defer(self, found: WeightProduct, travelling: Value) -> None:
        step, node = found.step, found.step.node
        wanted = operand_types(node, arithmetic(node, step.native, self.building.library))[found.weight]
        weight = self.tensor(node.arguments[found.weight], step.typed.arguments[found.weight], wanted)
        in_blocks = self.chunks.reading(step) is not None or node.name in self.chunks.leaving
        self.deferred[node.name] = Defer(found, weight, travelling, in_blocks)
        self.instructions.append(self.deferred[node.name])

    def arrive(self, tensors: Iterable[Tensor], *, yields: bool = False) -> None:
        """Waits for those of these tensors that are in flight. If it `yields`, other interleaved repeats run before."""
        for tensor in tensors:
            if (begun := self.travelling.pop(tensor, None)) is not None:
                self.instructions.append(Arrive(begun, tensor, yields))
                yields = False


def _travels(conversion: Conversion, parameter: bool) -> bool:
    """Whether a conversion, or its backward conversion, ends in a collective that can be started
    and waited for later.
    """
    back = conversion.backward[:-1] if parameter and conversion.ends_in_sum else conversion.backward
    return any(steps and steps[-1].kind in BEGUN for steps in (conversion.forward, back))

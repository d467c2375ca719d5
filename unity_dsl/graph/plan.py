"""Plans, or parallel computation graphs: operators with configurations, values with layouts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..index.evaluation.native_calls import changed_in_place
from ..syntax.diagnostic import Diagnostic
from ..syntax.span import Span
from .graph import Graph, Model, Node, Segment, Value
from .layout import At, Layout, Mesh, Partial, Placement, Replicate, Shard, Window
from .layout_conversion import Conversions
from .layout_typing import TypedOperator
from .passes import Passes
from .search_trail import Trial


@dataclass(frozen=True)
class Materialised:
    """One layout in which a value exists, made from another (`source`)."""

    layout: Layout
    source: Layout


@dataclass(frozen=True)
class PlannedValue:
    """A value with the layout it is produced (or stored) in, and those it is converted to, sources first.

    A consumer reads the layout its operator asks for: `produced` or one of `materialised`.
    """

    value: Value
    produced: Layout
    materialised: tuple[Materialised, ...] = ()

    @property
    def nearest_whole(self) -> Layout:
        """The value's layout that takes the least to gather: the one with the fewest Partial axes, then the fewest
        Window, Shard, At and Replicate axes, in this order. Ties go to the first layout.
        """
        held = (self.produced, *(made.layout for made in self.materialised))
        kinds = (Partial, Window, Shard, At, Replicate)
        return min(held, key=lambda layout: [len(layout.where(kind)) for kind in kinds])


@dataclass(frozen=True)
class PlannedNode:
    """An operator with its configuration, and the layouts of what it reads and makes."""

    node: Node
    typed: TypedOperator

    @property
    def placement(self) -> Placement:
        """The devices that compute it."""
        return self.typed.results[0].placement

    @property
    def native(self) -> bool:
        """Whether the declaration's native call is run. A result that it makes in place must need no gradient."""
        changed = changed_in_place(self.node.instance.operator.torch)
        results = zip(self.node.results, self.node.instance.outputs, strict=True)
        return self.typed.native and not any(value.needs_gradient and o.name in changed for value, o in results)


@dataclass(frozen=True)
class Run:
    """Consecutive iterations of a segment that share one plan. With count > 1 the exits' layouts equal the entries'."""

    first: int
    count: int
    body: PlannedGraph

    def parts(self, first_ones: int) -> Iterator[tuple[Run, bool]]:
        """The run, split after the segment's first `first_ones` iterations: True for those, False for the others."""
        before = min(max(first_ones - self.first, 0), self.count)
        if before:
            yield replace(self, count=before), True
        if before < self.count:
            yield replace(self, first=self.first + before, count=self.count - before), False


@dataclass(frozen=True)
class Border:
    """The layouts in which values enter and leave a body, the same in every iteration, in the segment's order.

    `sliced` and `stacked` are the layouts of the slices. `carried` are the layouts of the values that a cond replaces
    or leaves unchanged; other segments carry values in the layouts of their bodies.
    """

    captured: tuple[Layout, ...] = ()
    sliced: tuple[Layout, ...] = ()
    stacked: tuple[Layout, ...] = ()
    carried: tuple[Layout, ...] = ()
    predicate: Layout | None = None

    def reads(self, segment: Segment) -> Iterator[tuple[Value, Layout]]:
        """The outside values that the segment reads in a layout of the border, with these layouts."""
        yield from zip(segment.captured, self.captured, strict=True)
        for series, layout in zip(segment.sliced, self.sliced, strict=True):
            yield series.whole, layout.inserted(series.dim)
        if segment.predicate is not None and self.predicate is not None:
            yield from zip(segment.initial, self.carried, strict=True)
            yield segment.predicate, self.predicate

    def leaves(self, segment: Segment) -> Iterator[tuple[Value, Layout]]:
        """The values that leave the body in a layout of the border, with these layouts."""
        for series, layout in zip(segment.stacked, self.stacked, strict=True):
            yield series.part, layout
        if segment.predicate is not None:
            yield from zip(segment.exit, self.carried, strict=True)


@dataclass(frozen=True)
class PlannedSegment:
    """A segment with the plans of its iterations, first to last, and the layouts at its border."""

    segment: Segment
    runs: tuple[Run, ...]
    border: Border

    def leaving(self, number: int, around: PlannedGraph) -> Sequence[Layout]:
        """The layouts in which iterations of a run leave the carried values: those that the next reader takes.

        The next reader is the next iteration, the next run, or the graph `around`.
        """
        segment, run = self.segment, self.runs[number]
        if segment.predicate is not None:
            return self.border.carried
        if run.count > 1 or number + 1 < len(self.runs):
            following = run if run.count > 1 else self.runs[number + 1]
            return [following.body.values[value.name].produced for value in segment.entry]
        return [around.values[value.name].produced for value in segment.results]

    def goes_on(self, number: int, around: PlannedGraph) -> bool:
        """Whether a run takes the carried values in the layouts in which the previous run leaves them."""
        if number == 0:
            return False
        layouts = [self.runs[number].body.values[value.name].produced for value in self.segment.entry]
        return list(self.leaving(number - 1, around)) == layouts


@dataclass(frozen=True)
class PlannedGraph:
    """A graph with the layouts of its values, by name: inputs, weights, buffers, entries of a segment, step results.

    A segment's body sees outside values in the layouts of its border, and converts them further itself.
    """

    graph: Graph
    values: Mapping[str, PlannedValue]
    steps: tuple[PlannedNode | PlannedSegment, ...]

    def nodes(self) -> Iterator[PlannedNode]:
        """Every operator; those of a repeated body once per run."""
        for step in self.steps:
            if isinstance(step, PlannedSegment):
                for run in step.runs:
                    yield from run.body.nodes()
            else:
                yield step


@dataclass(frozen=True)
class Memory:
    """Predicted peak memory of each device in bytes, by kind. Activations are everything that is neither stored nor a
    gradient of a parameter. `at` says what runs at the peak.
    """

    parameters: float = 0.0
    buffers: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    at: str = ""

    @property
    def place(self) -> str:
        """The path of the operator or tensor at which memory peaks, without iteration numbers."""
        return without_iterations(self.at.rpartition(" of ")[2])

    @property
    def total(self) -> float:
        return self.parameters + self.buffers + self.gradients + self.optimizer + self.activations

    def plus(self, other: Memory, times: int = 1) -> Memory:
        return Memory(
            self.parameters + times * other.parameters,
            self.buffers + times * other.buffers,
            self.gradients + times * other.gradients,
            self.optimizer + times * other.optimizer,
            self.activations + times * other.activations,
        )


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one training step, by kind, and the memory footprint of each device.

    `synchronisation` is the part of `communication` that sums gradients which devices keep whole: once for all
    micro-batches. `accumulation` is the time to add the gradients of one micro-batch to those before it; `seconds`
    leaves it out.
    """

    compute: float = 0.0
    communication: float = 0.0
    update: float = 0.0
    memory: Memory = Memory()
    synchronisation: float = 0.0
    accumulation: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.communication + self.update

    def of_micro_batches(self, count: int) -> Cost:
        """The cost of a step of `count` micro-batches, where `self` is the cost of a step of one."""
        compute = count * self.compute + (count - 1) * self.accumulation
        communication = count * self.communication - (count - 1) * self.synchronisation
        return replace(self, compute=compute, communication=communication)


@dataclass(frozen=True)
class Exposure:
    """The exposed fractions, 0 to 1, of a step's work. `launches`: kernel launches, which a host issues ahead of the
    device. `sums`: gradient sums in buckets, which overlap the backward pass. `gathers`: prefetched weight gathers.
    `values`: conversions of values in repeats that may be interleaved. `devices`: all device work, if devices wait for
    their hosts in a part of the step. `products`: a lower bound for conversions that a decomposed matmul may overlap.
    `summed` is the fraction of all gradient bytes that is summed over devices, and so fills buckets.
    """

    launches: float = 1.0
    sums: float = 1.0
    gathers: float = 1.0
    values: float = 1.0
    devices: float = 1.0
    summed: float = 1.0
    products: float = 1.0


@dataclass(frozen=True)
class AppliedRule:
    """A rule that changed the model: the first replaced value, `layer.h`, and its span in the model's text.

    `replaced` are the names of all replaced values, in the order of the rule's left sides, since several matches may
    begin at one place. `assumed` are the unproved facts about element functions on which the rule's proof rests.
    """

    rule: str
    place: str
    span: Span | None = None
    assumed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputPart:
    """How an output of the batch follows from those of its micro-batches: joined along `dim`, or without a `dim` their
    sum divided by `divisor`.
    """

    dim: int | None
    divisor: float = 1


@dataclass(frozen=True)
class BatchDivision:
    """How a step runs as `count` micro-batches: one after the other, gradients accumulated, then one update.

    `parameter` is the model's batch size, which in the planned model is that of a micro-batch. `parameters` are the
    model's at the size of the whole batch. `inputs` are cut along their first dimension; other inputs are the same in
    every micro-batch. The loss of the batch is the sum of the micro-batches' losses divided by `divisor`; so are its
    gradients. `outputs` are in the model's order.
    """

    parameter: str
    parameters: Mapping[str, int | float]
    count: int
    inputs: tuple[str, ...]
    divisor: float
    outputs: tuple[OutputPart, ...] = ()


class Advice(str):
    """A note that asks for an action or states something unexpected. Every summary prints it."""


class Undivided(Advice):
    """A note on operators that devices compute redundantly, and why."""


class Proof(str):
    """A note on how far a plan may be from the optimum."""


@dataclass(frozen=True)
class Plan:
    """The result of a search, from which the emitter writes a program.

    `model` is the model after `rules`, `considered` the number of models that were compared, the given one included.
    `conversions` chooses the steps from one layout to another, as they were priced. `warnings` are what the user should
    know before a run. `passes` change the schedule. With a `division` the plan is for one micro-batch, and `cost` is
    for a step over all of them. If the cheapest plan does not fit in memory, `unlimited_seconds` is its step time, and
    `unlimited` is that plan for the whole batch. If no plan fits, `least_bytes` is the smallest peak memory found. The
    cost weights work by the fractions that the search took to be `exposed`; `simulated` is the time of the simulated
    step in seconds. If the search ended early, `ended` says what ended it; `trail` lists what it tried.
    """

    model: Model
    mesh: Mesh
    machine: str
    strategy: str
    graph: PlannedGraph
    cost: Cost
    conversions: Conversions = field(compare=False, repr=False)
    notes: tuple[str, ...] = field(default=())
    rules: tuple[AppliedRule, ...] = ()
    considered: int = 1
    warnings: tuple[Diagnostic, ...] = ()
    passes: Passes = field(default_factory=Passes)
    division: BatchDivision | None = None
    unlimited_seconds: float | None = None
    unlimited: Plan | None = field(default=None, compare=False, repr=False)
    least_bytes: float | None = None
    exposed: Exposure = Exposure()
    simulated: float | None = None
    ended: str | None = None
    trail: tuple[Trial, ...] = field(default=(), compare=False, repr=False)

    @property
    def seconds(self) -> float:
        """The predicted seconds of a step: as simulated, or else from its cost."""
        return self.cost.seconds if self.simulated is None else self.simulated

    def with_passes(self, **settings: Any) -> Plan:
        """The plan with other settings of passes: the fields of `Passes`."""
        return replace(self, passes=replace(self.passes, **settings))

    @property
    def micro_batches(self) -> int:
        """How many forward and backward passes a step has."""
        return 1 if self.division is None else self.division.count

    @property
    def parameters(self) -> Mapping[str, int | float]:
        """The model's parameters at the size of the whole batch."""
        return self.model.parameters if self.division is None else self.division.parameters

    @property
    def part_of_batch(self) -> dict[str, int | float]:
        """The batch-size parameter at the size of a micro-batch; empty if the batch is not divided."""
        return (
            {} if self.division is None else {self.division.parameter: self.model.parameters[self.division.parameter]}
        )


def in_micro_batches(plan: Plan, division: BatchDivision | None) -> Plan:
    """The plan of a step that divides its batch, from the plan of a step over one micro-batch."""
    if division is None:
        return plan
    unlimited = plan.unlimited_seconds
    cost = plan.cost.of_micro_batches(division.count)
    return replace(plan, division=division, cost=cost, unlimited_seconds=unlimited and division.count * unlimited)


def without_iterations(name: str) -> str:
    """The path of a weight from its full name: `layer.w` from `layer.3.w`."""
    return re.sub(r"\.\d+(?=\.)", "", name)


def updates_again(graph: PlannedGraph, recomputed: frozenset[str], prefix: str = "", inside: bool = False) -> bool:
    """Whether a recomputed body, or a body inside one, updates buffers."""
    if inside and graph.graph.updates:
        return True
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            path = prefix + step.segment.name
            again = inside or path in recomputed
            if any(updates_again(run.body, recomputed, f"{path}.", again) for run in step.runs):
                return True
    return False


def gathered_once(graph: PlannedGraph) -> dict[str, Layout]:
    """The trained weights whose slices along some mesh axes are gathered for one operator, the only one to read them,
    which runs on all devices: by name, the layout that it reads. In mixed precision, weights that are not cast are left
    out.
    """
    trained = [weight.value for weight in graph.graph.weights if weight.value.needs_gradient]
    weights = {value.name for value in trained if value.cast_from is None or value.is_cast}
    reads = Counter(value.name for step in graph.graph.steps for value in step.reads)
    found = {}
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                if value.name in weights and reads[value.name] == 1:
                    planned = graph.values[value.name]
                    source = {made.layout: made.source for made in planned.materialised}.get(layout, planned.produced)
                    gathered = {*source.where(Shard)} - {*layout.where(Shard)} and not layout.placement
                    if source == planned.produced and gathered:
                        found[value.name] = layout
    return found

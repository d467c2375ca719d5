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
        """Of the layouts in which the value is held, the one that is gathered with the least: the fewest axes along
        which it is a sum's terms, then overlapping slices, then slices, then copies; the first of equals.
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
        """Whether the declaration's native call is run: what it changes in place must need no gradient."""
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
        """Its iterations that are among so many first ones of the segment, True, and the others, False."""
        before = min(max(first_ones - self.first, 0), self.count)
        if before:
            yield replace(self, count=before), True
        if before < self.count:
            yield replace(self, first=self.first + before, count=self.count - before), False


@dataclass(frozen=True)
class Border:
    """The layouts in which values cross the border of a body, the same ones in every iteration, in the segment's order.

    `sliced` and `stacked` are those of the slices. `carried` are those of what a cond replaces or leaves as it is;
    other segments carry in the layouts of their bodies.
    """

    captured: tuple[Layout, ...] = ()
    sliced: tuple[Layout, ...] = ()
    stacked: tuple[Layout, ...] = ()
    carried: tuple[Layout, ...] = ()
    predicate: Layout | None = None

    def reads(self, segment: Segment) -> Iterator[tuple[Value, Layout]]:
        """The values of outside that are read in a layout of the border."""
        yield from zip(segment.captured, self.captured, strict=True)
        for series, layout in zip(segment.sliced, self.sliced, strict=True):
            yield series.whole, layout.inserted(series.dim)
        if segment.predicate is not None and self.predicate is not None:
            yield from zip(segment.initial, self.carried, strict=True)
            yield segment.predicate, self.predicate

    def leaves(self, segment: Segment) -> Iterator[tuple[Value, Layout]]:
        """The values of the body that leave it in a layout of the border."""
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
        """The layouts in which iterations of a run leave what they carry: those that whatever comes next takes.

        That is the next iteration, the next run, or the graph `around`.
        """
        segment, run = self.segment, self.runs[number]
        if segment.predicate is not None:
            return self.border.carried
        if run.count > 1 or number + 1 < len(self.runs):
            following = run if run.count > 1 else self.runs[number + 1]
            return [following.body.values[value.name].produced for value in segment.entry]
        return [around.values[value.name].produced for value in segment.results]

    def goes_on(self, number: int, around: PlannedGraph) -> bool:
        """Whether the iterations of a run take what those of the run before leave, as they leave it."""
        if number == 0:
            return False
        layouts = [self.runs[number].body.values[value.name].produced for value in self.segment.entry]
        return list(self.leaving(number - 1, around)) == layouts


@dataclass(frozen=True)
class PlannedGraph:
    """`values` by name: inputs, weights, buffers, entries of a segment and results of nodes.

    A segment's body sees what crosses its border in the layouts there, and converts it further itself.
    """

    graph: Graph
    values: Mapping[str, PlannedValue]
    steps: tuple[PlannedNode | PlannedSegment, ...]

    def nodes(self) -> Iterator[PlannedNode]:
        """Every operator, those of repeated bodies once per run."""
        for step in self.steps:
            if isinstance(step, PlannedSegment):
                for run in step.runs:
                    yield from run.body.nodes()
            else:
                yield step


@dataclass(frozen=True)
class Memory:
    """Predicted bytes on each device when it holds the most, by what they hold: activations are all that is neither
    stored nor a gradient of a parameter. `at` says what runs at that time.
    """

    parameters: float = 0.0
    buffers: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    at: str = ""

    @property
    def place(self) -> str:
        """The path of the operator or tensor that most is held for, without numbers of iterations."""
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
    """Predicted seconds of one training step, by what they are spent on, and what each device holds.

    Of the communication `synchronisation` sums gradients that devices keep whole: once for several micro-batches.
    `accumulation` is what it takes to add the gradients of a micro-batch to those before, and no part of the seconds.
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
        """Of a step of so many micro-batches, where this is that of a step of one."""
        compute = count * self.compute + (count - 1) * self.accumulation
        communication = count * self.communication - (count - 1) * self.synchronisation
        return replace(self, compute=compute, communication=communication)


@dataclass(frozen=True)
class Exposure:
    """The parts of a step's work, 0 to 1, that nothing else hides: of the launches, which a host issues ahead of the
    device; of the sums of gradients in buckets, which run beside the backward pass; of the gathers of weights, which
    are begun ahead; of conversions of values in repeats that may run in turns; of all that devices do, where they wait
    for their hosts in a part of the step; of conversions beside products that may run in chunks, at least. `summed` is
    the part of the bytes of all gradients that is summed at all, which fills buckets.
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
    """A rule that changed the model: what was replaced first, `layer.h`, and where the model's text says so.

    `replaced` are the names of all values that were, in the order of the rule's left sides, as one place may begin
    several matches. `assumed` are the facts of element functions that the rule's proof rests on and that are not
    proved.
    """

    rule: str
    place: str
    span: Span | None = None
    assumed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputPart:
    """What a micro-batch returns of an output: slices of dimension `dim`, which are joined; without one a tensor, and
    the output of the batch is their sum divided by `divisor`.
    """

    dim: int | None
    divisor: float = 1


@dataclass(frozen=True)
class BatchDivision:
    """How a step runs as `count` micro-batches: one after the other, gradients accumulated, then one update.

    `parameter` of the model is the batch, of which the planned model has a part, `parameters` are those of the model at
    the size of the batch. `inputs` are cut along their first dimension, the others are the same in each. The loss of
    the batch, and so its gradients, are the sum of those of the micro-batches divided by `divisor`. `outputs` are in
    the order of the model's.
    """

    parameter: str
    parameters: Mapping[str, int | float]
    count: int
    inputs: tuple[str, ...]
    divisor: float
    outputs: tuple[OutputPart, ...] = ()


class Advice(str):
    """A note that asks for something, or tells what a user would not expect: every summary prints it."""


class Undivided(Advice):
    """A note on operators that devices repeat, and why."""


class Proof(str):
    """A note on how far a plan may be from the best one."""


@dataclass(frozen=True)
class Plan:
    """What the search found and the emitter writes down.

    `model` is the one that `rules` made, `considered` the number of models that were compared, the given one included.
    `conversions` chooses the steps from each layout to another, as they were priced.
    `warnings` are what the user should know before running it. `passes` change its schedule. With a `division` the plan
    is that of a micro-batch, and `cost` that of a step over all of them. Where the cheapest plan of all does not fit
    the memory, its step would take `unlimited_seconds`, and `unlimited` is that of the whole batch; where none fits,
    the one that was found to hold the least holds `least_bytes`. The cost counts work as far as the search took it to
    be `exposed`; `simulated` are the seconds of the simulated step. Where the search was ended before it was through,
    `ended` says by what; `trail` is what it tried.
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
        """What a step is predicted to take: simulated, or else by its cost."""
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
        """Those of the model at the size of the batch."""
        return self.model.parameters if self.division is None else self.division.parameters

    @property
    def part_of_batch(self) -> dict[str, int | float]:
        """The parameter that is the batch with the size of a micro-batch; empty where the batch is not divided."""
        return (
            {} if self.division is None else {self.division.parameter: self.model.parameters[self.division.parameter]}
        )


def in_micro_batches(plan: Plan, division: BatchDivision | None) -> Plan:
    """The plan of a step that runs the batch so, from that of a step over one micro-batch."""
    if division is None:
        return plan
    unlimited = plan.unlimited_seconds
    cost = plan.cost.of_micro_batches(division.count)
    return replace(plan, division=division, cost=cost, unlimited_seconds=unlimited and division.count * unlimited)


def without_iterations(name: str) -> str:
    """The path of a weight from its full name: `layer.w` from `layer.3.w`."""
    return re.sub(r"\.\d+(?=\.)", "", name)


def updates_again(graph: PlannedGraph, recomputed: frozenset[str], prefix: str = "", inside: bool = False) -> bool:
    """Whether a body that is recomputed, or is inside one, updates buffers."""
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
    """The trained weights of a graph that one operator alone reads, on all devices, whose slices along some mesh axes
    are gathered for it: the layout that is read, by name. In mixed precision those that are not cast are not among
    them.
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

"""Builds the schedule of a plan: operators in order, conversions before their first use, bodies as functions.

Steps that only updates of buffers need come last. They run only in training, without gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ..graph.gathered_weights import GatheredWeights
from ..graph.graph import Segment, Value, computed_from
from ..graph.interleaved_repeats import interleaved_groups
from ..graph.layout import Layout, invariant
from ..graph.placed_order import in_stretches
from ..graph.plan import Plan, PlannedNode, PlannedSegment
from ..index.library import Library
from .gathers import add_gathers
from .ir import (
    Cast,
    Function,
    Keep,
    Loop,
    ReturnOutputs,
    Tensor,
    Updates,
)
from .loops import add_interleaved, add_segment
from .operators import add_operators, add_placed
from .values import Building, Groups, Held, Values

InLayouts = Sequence[tuple[Value, Layout]]
"""Values, each with the layout in which it is read."""


def output_layout(plan: Plan, value: Value) -> Layout:
    """The layout in which an output is returned. In a training step it is the layout that takes the least to gather; a
    model without a loss returns the output whole.
    """
    if plan.model.loss is None:
        return invariant(plan.mesh)
    return plan.graph.values[value.name].nearest_whole


def build_schedule(
    plan: Plan,
    library: Library,
    *,
    given: Mapping[str, Layout] = {},
    apart: bool = False,
    groups: Groups | None = None,
) -> Function:
    """The model's function. Its inputs are `given` in these layouts, or else in those of the plan. With `apart`, the
    outputs are computed before what only the loss needs. Operators run in `groups`, if any.
    """
    model, whole = plan.model, invariant(plan.mesh)
    weights = GatheredWeights(plan.graph, plan.conversions, plan.passes.interleaved)
    building = Building(plan, library, weights, groups)
    builder = Builder(building, plan.graph, "", left=model.returned, interleaved=False)
    for source in plan.graph.graph.inputs:
        builder.add_input(source.value, given.get(source.value.name))
    outputs = [(value, output_layout(plan, value)) for value in model.outputs]
    loss = [] if model.loss is None else [(model.loss, whole)]
    return builder.function(outputs, loss, apart=apart)


class Builder(Values):
    """Builds one function."""

    def steps(self, steps: Iterable[PlannedNode | PlannedSegment]) -> None:
        """Adds operators one after the other. The gathers of operators between two bodies come
        before these operators.
        """
        stretches = [list(stretch) for _, stretch in groupby(steps, lambda step: isinstance(step, PlannedNode))]
        for number, stretch in enumerate(stretches, 1):
            following = stretches[number] if number < len(stretches) else []
            nodes = [step for step in stretch if isinstance(step, PlannedNode)]
            if nodes:
                add_gathers(self, nodes, following, self.loop)
            for placement, same in in_stretches(nodes):
                add_placed(self, same, placement) if placement else add_operators(self, same)
            bodies = (step for step in stretch if isinstance(step, PlannedSegment))
            for together in interleaved_groups(bodies, () if self.path else self.building.plan.passes.interleaved):
                after = following if together[-1] is stretch[-1] else []
                loops = [self.loop(step) for step in together]
                add_interleaved(self, loops, after) if len(loops) > 1 else add_segment(self, loops[0], after)

    def loop(self, step: PlannedSegment) -> Loop:
        """A segment with its bodies."""
        segment, plan = step.segment, self.building.plan
        if segment.name not in self.loops:
            together = {name for names in plan.passes.interleaved for name in names}
            interleaved = not self.path and segment.name in together
            bodies = tuple(self._body(step, number, interleaved) for number in range(len(step.runs)))
            path, count = self.path + segment.name, segment.count
            first_ones = plan.passes.run_again(path, count), plan.passes.moved_out(path, count)
            self.loops[segment.name] = Loop(step, bodies, *first_ones)
        return self.loops[segment.name]

    def _body(self, step: PlannedSegment, number: int, interleaved: bool) -> Function:
        """The function of a run's iterations."""
        segment, planned, outside = step.segment, step.runs[number].body, dict[str, Held]()
        captured = []
        for value, layout in zip(segment.captured, step.border.captured, strict=True):
            around = self.held.get(value.name)  # results of operators may not exist yet
            whole = around is not None and around.stored is None and layout == around.produced
            parameter = around is not None and around.parameter and whole
            tensor = Tensor(value, layout, value.dtype, parameter)
            outside[value.name] = Held(value, layout, {layout: tensor}, {}, parameter)
            captured.append(tensor)
        path = f"{self.path}{segment.name}."
        body = Builder(self.building, planned, path, outside, segment.leaves, interleaved=interleaved)
        entering = [(value, planned.values[value.name].produced) for value in segment.entry]
        sliced = zip(segment.sliced, step.border.sliced, strict=True)
        entering += [(series.part, layout) for series, layout in sliced]
        given = [Tensor(value, layout, value.dtype) for value, layout in entering]
        for tensor in given:
            body.add(tensor)
        leaves = [*zip(segment.exit, step.leaving(number, self.planned), strict=True)]
        leaves += [(series.part, layout) for series, layout in zip(segment.stacked, step.border.stacked, strict=True)]
        return body.body_function(leaves, segment, given, captured)

    def function(self, outputs: InLayouts, loss: InLayouts = (), *, apart: bool = False) -> Function:
        """The function that returns a loss, if there is one, and then the outputs. With `apart`, it returns the outputs
        alone if the inputs that the loss reads are not given.
        """
        if apart:
            made = self._compute(outputs)
            self.instructions.append(ReturnOutputs(tuple(made)))
            return self._finished([*self._through(loss), *made])
        return self._finished(self._through((*loss, *outputs)))

    def body_function(
        self, leaves: InLayouts, segment: Segment, entering: Sequence[Tensor], captured: Sequence[Tensor]
    ) -> Function:
        """The function of a body that leaves these values. A carried value leaves in the type in which it enters."""
        results = self._through(leaves)
        self.arrive(results, yields=True)
        for number, (value, entry) in enumerate(zip(segment.exit, segment.entry, strict=True)):
            if value.dtype != entry.dtype:
                made = Tensor(value, results[number].layout, entry.dtype)
                self.instructions.append(Cast(results[number], made, returned=True))
                results[number] = made
        return replace(self._finished(results), entering=tuple(entering), captured=tuple(captured))

    def _finished(self, results: Sequence[Tensor]) -> Function:
        return Function(
            self.planned,
            self.path,
            tuple(self.inputs),
            tuple(self.stored),
            (),
            (),
            tuple(self.instructions),
            tuple(results),
            self.leaving,
            self.first,
            self.interleaved,
            bool(self.deferring),
        )

    def _through(self, wanted: InLayouts) -> list[Tensor]:
        """These values, after all steps and updates that are still missing."""
        results = self._compute(wanted)
        late = [step for number, step in enumerate(self.planned.steps) if number not in self.written]
        if self.updates_left or late:
            self._update(late)
        return results

    def _compute(self, wanted: InLayouts) -> list[Tensor]:
        """These values, after the missing steps that they are computed from."""
        _, numbers = computed_from(self.planned.graph, [value for value, _ in wanted])
        left = numbers - self.written
        self.written |= left
        self.steps(self.planned.steps[number] for number in sorted(left))
        return [self._before_updates(value, layout) for value, layout in wanted]

    def _update(self, steps: Sequence[PlannedNode | PlannedSegment]) -> None:
        """Updates the buffers that no operator has changed in place. All new values are computed from the old ones."""
        before, self.instructions = self.instructions, []
        self.detached = True
        self.steps(steps)
        layouts = [self.planned.values[update.buffer.name].produced for update in self.updates_left]
        values = [
            self._before_updates(one.value, layout) for one, layout in zip(self.updates_left, layouts, strict=True)
        ]
        body, self.instructions = tuple(self.instructions), before
        self.instructions.append(Updates(body, tuple(zip(self.updates_left, values, strict=True))))

    def _before_updates(self, value: Value, layout: Layout) -> Tensor:
        """A value. If it is a buffer that is updated, its value before the update."""
        tensor = self.tensor(value, layout)
        if tensor not in self.updated:
            return tensor
        kept = Tensor(value, tensor.layout, tensor.dtype)
        self.instructions.append(Keep(tensor, kept))
        return kept

"""Variables of an emitted program that hold gathered weights: what is gathered together, when it begins, who waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ..graph.gathered_weights import GatheredWeight
from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedNode, PlannedSegment
from .gathering_tasks import Gather
from .local_tensors import Local
from .program_variables import Variables


class GatheredVariables(Variables):
    """The variables of a forward function that gathers weights."""

    @cached_property
    def ungathered(self) -> dict[str, Sequence[Gather]]:
        """Weights of operators that wait for their own, in this order, each with all of its operator."""
        return {}

    @cached_property
    def announced(self) -> set[str]:
        """Weights of operators behind a loop that are gathered in its last iteration, as far as that can begin."""
        return set()

    def gathers(self, steps: Iterable[PlannedNode | PlannedSegment]) -> list[list[Gather]]:
        """The weights that operators among these read gathered: those whose gradients come in buckets together, and the
        others; first the kind that is read first.
        """
        return [[*map(self._gather_of, weights)] for weights in self.program.weights.together(self.graph, steps)]

    def _gather_of(self, weight: GatheredWeight) -> Gather:
        held = self.held[weight.value.name]
        stored, place = held.uncast or held.tensors[held.produced], self.path + weight.value.name
        return Gather(weight.value, place, stored, weight.stored, weight.gathered, weight.conversion)

    def announce(self, steps: Iterable[PlannedNode | PlannedSegment]) -> Sequence[Gather]:
        """Those of operators behind a loop whose gradients come in buckets: what can begin in its last iteration."""
        found = next((some for some in self.gathers(steps) if some[0].conversion.ends_in_sum), [])
        self.announced.update(gather.value.name for gather in found)
        return found

    @cached_property
    def first_gathers(self) -> Sequence[Gather]:
        """What can be under way before the function is called."""
        return [*map(self._gather_of, self.program.weights.first(self.graph))]

    def gather(self, gathers: Sequence[Gather]) -> None:
        """Waits for weights that are gathered together."""
        for gather, found in zip(gathers, self.program.gathering.gather(gathers), strict=True):
            self.ungathered.pop(gather.value.name, None)
            held = self.held[gather.value.name]
            tensor = self._recorded(held, gather.conversion, gather.stored, found, gather.layout, gather.gathered)
            held.tensors[gather.gathered] = tensor

    def gather_in_order(self, steps: Sequence[PlannedNode], entering: Sequence[Gather]) -> None:
        """Begins with all that operators of the model, one after the other, read gathered, save what began before, and
        with what a loop behind them reads first: what operators read is one collective for each group. Each operator
        waits for its own; where some devices alone compute, all wait for all. What hides them is known of a plan alone,
        so that the cost counts them as wanted at once.
        """
        gathering, kinds, together = self.program.gathering, self.gathers(steps), list[Gather]()
        begun = [gathers for gathers in kinds if gathers[0].value.name in self.announced]
        placed = any(step.placement for step in steps)
        for gathers in kinds:
            if gathers not in begun and gathers[0].conversion.ends_in_sum and not placed:
                together = gathers
            elif gathers not in begun:
                self.gather(gathers)
        gathering.start(together, ahead=False)
        for some in _by_operator(together, steps):
            self.ungathered.update((gather.value.name, some) for gather in some)
        gathering.start(entering, ahead=False)
        for gathers in begun:
            self.gather(gathers)

    def _in_layout(self, value: Value, layout: Layout) -> Local:
        while value.name in self.ungathered:
            self.gather(next(iter(self.ungathered.values())))
        return super()._in_layout(value, layout)


def _by_operator(gathers: Iterable[Gather], steps: Iterable[PlannedNode]) -> list[list[Gather]]:
    """Those of each operator that reads any."""
    made = {gather.value.name: gather for gather in gathers}
    read = ([made[value.name] for value in step.node.arguments if value.name in made] for step in steps)
    return [found for found in read if found]

"""Variables of an emitted program that hold gathered weights: what is gathered together, when it begins, who waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby

from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedNode, PlannedSegment
from .gathering_tasks import Gather
from .local_tensors import Local
from .program_variables import Variables

Steps = Sequence[PlannedNode | PlannedSegment]


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
        found: dict[bool, list[Gather]] = {}
        for step in steps:
            for value in step.node.arguments if isinstance(step, PlannedNode) else ():
                if (layout := self.once.get(value.name)) is not None:
                    held = self.held[value.name]
                    conversion = self.program.steps(value, held.produced, layout)
                    stored, place = held.uncast or held.tensors[held.produced], self.path + value.name
                    gather = Gather(value, place, stored, held.produced, layout, conversion)
                    found.setdefault(conversion.ends_in_sum, []).append(gather)
        return list(found.values())

    def announce(self, steps: Iterable[PlannedNode | PlannedSegment]) -> Sequence[Gather]:
        """Those of operators behind a loop whose gradients come in buckets: what can begin in its last iteration."""
        found = next((some for some in self.gathers(steps) if some[0].conversion.ends_in_sum), [])
        self.announced.update(gather.value.name for gather in found)
        return found

    @cached_property
    def first_gathers(self) -> Sequence[Gather]:
        """Those of the first operators that read any with which no loop before them begins: what can be under way
        before the function is called.
        """
        behind_loop = False
        for _, stretch in groupby(self.graph.steps, lambda step: isinstance(step, PlannedNode)):
            *_, last = steps = list(stretch)
            for found in self.gathers(steps):
                if not (behind_loop and found[0].conversion.ends_in_sum):
                    return found
            behind_loop = isinstance(last, PlannedSegment) and last.segment.is_loop
        return []

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

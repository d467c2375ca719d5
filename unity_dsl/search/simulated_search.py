"""The plan whose simulated step is the shortest, of searches in turns with the simulator.

A search minimises a sum over choices, in which all work takes its time. In a step some of it is hidden: a host launches
kernels ahead of the device, gradients are summed beside the backward pass, weights gathered before they are read. The
cost stays a sum if it counts a fixed part of each kind, its exposure; the simulated step of the plan that is found
tells how much is exposed there. Where that makes a difference, the search is done once more with what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf

from ..graph.chunked_products import chunks_of_plan
from ..graph.delayed_gradients import delays_gradients
from ..graph.interleaved_repeats import repeats_in_turns
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.plan import Exposure, Plan
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.mesh import describe_mesh
from ..rules.process_map import begun_map, processors, sharing_processors
from ..simulation.exposure import (
    exposed_backwards,
    exposed_gathers,
    exposed_sums,
    exposed_values,
    exposure_of,
    gradient_sums,
)
from ..simulation.step_tasks import simulate_step
from ..simulation.timeline import Timeline
from .accounting.memory_budget import Budget
from .accounting.summed_gradients import summed_part
from .accounting.weighed_plan import counted
from .alike_plans import Shortest
from .bucket_size import EXPOSED, Tried, describe_buckets, shortest_size
from .expected_exposure import IN_CHUNKS, has_long_products
from .incumbent import Incumbent
from .overlapping import (
    CHUNKS,
    GAIN,
    describe_chunks,
    describe_delays,
    describe_stagger,
    describe_turns,
    in_turns,
    staggers,
)
from .plan_notes import of_any_layouts
from .search_end import SearchEnded, check_end, why_ended
from .search_progress import tell_stage
from .strategies import AUTO
from .wanted import Referee

NEAR = 0.03
"""Of the simulated time: where the cost is as near, no other search is done."""
LEAST = 0.02
"""Of each kind of work that is hidden the cost counts so much, so that less of it is better."""
LEAST_OF_DEVICES = 0.3
"""Of what devices do behind launches: of plans with fewer launches it is more than of the one that was simulated."""
GATHERED = 0.2
"""Fraction of a simulated step: where exposed gathers take more, plans are searched again at that exposure, on the
meshes that the first search led to. That one counts little of them, which holds where there is much to compute.
"""
IN_TURNS = 0.5
"""Of values of repeats that may run in turns, what travels there and back counts so much: what is exposed of it in a
step depends on what the others compute, and less leads to plans in which none computes as long as another sends.
"""


class Simulations:
    """Simulated steps of plans on a machine. That of a plan which differs from an earlier one in what is told of it
    alone, as in names of mesh axes and in notes, is not simulated again.
    """

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine, self.library, self.incumbent = machine, library, Incumbent()
        self._known: dict[object, tuple[Plan, Timeline]] = {}
        self._delayed: dict[object, tuple[Plan, Plan]] = {}
        self._chunked: dict[object, tuple[Plan, Plan]] = {}
        self._turns: dict[object, tuple[Plan, Plan]] = {}
        self._staggered: dict[object, tuple[Plan, Plan]] = {}
        self._sizes: dict[object, tuple[Plan, Plan]] = {}
        self._products: dict[object, tuple[Plan, tuple[float, Sequence[int]]]] = {}

    def timeline(self, plan: Plan) -> Timeline:
        key = _simulated_of(plan)
        if key not in self._known:
            self._known[key] = plan, simulate_step(plan, self.machine, self.library)
        return self._known[key][1]

    def delayed(self, plan: Plan) -> Plan:
        """The plan, with gradients of weights delayed if that step is shorter and fits the memory as well."""
        return self._changed(plan, self._delayed, self._with_delays)

    def shortest(self, plan: Plan, below: float = inf) -> Plan:
        """The same, with its independent repeats in turns where it is shorter still, or without delays if that is; then
        with products in chunks. The plan as it is where no such step could take less than `below`.
        """
        if self._least_overlapping(plan) >= below:
            return plan
        delayed = self.delayed(plan)
        found = self._changed(delayed, self._turns, self._with_turns)
        if delayed.passes.delayed_gradients != plan.passes.delayed_gradients:
            other = self._changed(plan, self._turns, self._with_turns)
            found = other if other.passes.interleaved and self.seconds(other) < self.seconds(found) else found
        if (1 - self._beside_products(found)[0]) * self.seconds(found) >= below:
            return found
        return self._changed(found, self._chunked, self._with_chunks)

    def offer(self, plan: Plan, told: str = "") -> None:
        """Keeps the plan with its simulated step, if it is the best so far, and tells so."""
        self.incumbent.offer(replace(plan, simulated=self.seconds(plan)), told)

    def in_buckets(self, plan: Plan) -> Plan:
        """The plan, with its repeats in turns staggered and gradients in buckets of the size whose step is the shortest
        of those that are tried, and fits the memory as well.
        """
        staggered = self._changed(plan, self._staggered, self._with_stagger)
        found = self._changed(staggered, self._sizes, self._with_buckets)
        return plan if found is plan else replace(found, simulated=self.seconds(found))

    def seconds_beside(self, plan: Plan) -> Callable[[Plan], float]:
        """What other plans are simulated to take next to a chosen one: with what their steps are shortened by where
        that is of use to this one, or where everything is exposed at first.
        """
        passes = plan.passes
        shortened = passes.interleaved or passes.delayed_gradients or passes.chunks > 1
        shortened = shortened or passes.bucket_mib != BUCKET_MIB
        if not shortened and self.machine.device != "cpu":
            return self.seconds
        return lambda other: self.seconds(self.in_buckets(self.shortest(other)))

    def least_seconds(self, plan: Plan, *, overlapping: bool = False) -> float:
        """Of the simulated step, were no sum of gradients exposed; nor anything that `shortest` hides."""
        timeline = self.timeline(plan)
        least = self._least_overlapping(plan) if overlapping else timeline.seconds
        return least - exposed_sums(timeline) * timeline.seconds

    def _least_overlapping(self, plan: Plan) -> float:
        """Seconds of the simulated step, were no value exposed; nor any collective, where repeats may run in turns."""
        timeline = self.timeline(plan)
        if in_turns(plan) is not plan:
            return timeline.seconds - timeline.exposed()
        return (1 - exposed_values(timeline)) * timeline.seconds

    def seconds(self, plan: Plan, below: float = inf) -> float:
        return self.timeline(plan).seconds

    def shortest_seconds(self, plan: Plan, below: float = inf) -> float:
        """Of the plan, or that with delayed gradients, products in chunks and its repeats in turns, where that could
        take less than `below`.
        """
        return self.timeline(self.shortest(plan, below)).seconds

    def chunked_seconds(self, plan: Plan, below: float = inf) -> float:
        """Of the plan, or that with products in the most chunks, gradients of weights delayed or not, where that could
        take less than `below`: whatever it holds, as what is compared may not fit yet.
        """
        exposed, counts = self._beside_products(plan)
        seconds = self.seconds(plan)
        if exposed <= GAIN or (1 - exposed) * seconds >= below:
            return seconds
        chunked = plan.with_passes(chunks=counts[0])
        return min(seconds, self.seconds(chunked), self.seconds(chunked.with_passes(delayed_gradients=True)))

    def referee(self, machine: Machine) -> Referee:
        """What plans are compared by in a search at the prices of a machine: with all that may overlap where values in
        turns are hidden, with products in chunks where these hide something. Else plans with branches on disjoint
        devices are found next to those that would be longer in turns.
        """
        if machine.exposure.values < 1:
            return self.shortest_seconds
        return self.chunked_seconds if machine.exposure.products < 1 else self.seconds

    def _changed(self, plan: Plan, known: dict[object, tuple[Plan, Plan]], change: Callable[[Plan], Plan]) -> Plan:
        """The plan as `change` makes it, which is done once for plans that differ in what is told of them alone."""
        key = _simulated_of(plan)
        if key not in known:
            if why_ended() is not None:
                return plan
            known[key] = plan, change(plan)
        before, found = known[key]
        if found is before:
            return plan
        cost, notes = replace(plan.cost, memory=found.cost.memory), (*plan.notes, *found.notes[len(before.notes) :])
        return replace(plan, passes=found.passes, graph=found.graph, cost=cost, notes=notes)

    def _with_delays(self, plan: Plan) -> Plan:
        if plan.passes.delayed_gradients or exposed_backwards(self.timeline(plan)) <= GAIN:
            return plan
        if not delays_gradients(plan, self.library):
            return plan
        return self._shorter(plan, plan.with_passes(delayed_gradients=True), describe_delays)

    def _with_chunks(self, plan: Plan) -> Plan:
        exposed, counts = self._beside_products(plan)
        if exposed <= GAIN:
            return plan
        told = partial(describe_chunks, library=self.library)
        others = (self._shorter(plan, plan.with_passes(chunks=count), told) for count in counts)
        return next((other for other in others if other is not plan), plan)

    def _beside_products(self, plan: Plan) -> tuple[float, Sequence[int]]:
        """The part of a step in which values travel that could do so beside products in chunks, and the parts in which
        results may be sent there: that makes no difference to products of what is gathered.
        """
        if plan.passes.chunks > 1 or exposed_values(self.timeline(plan)) <= GAIN:
            return 0.0, ()
        key = _simulated_of(plan)
        if key not in self._products:
            found = list(chunks_of_plan(plan, self.library, min(CHUNKS)))
            paths = {path + product.value.name for path, product in found}
            exposed = exposed_values(self.timeline(plan), paths=paths)
            sums = any(product.reads is None for _, product in found)
            self._products[key] = plan, (exposed, CHUNKS if sums else CHUNKS[:1])
        return self._products[key][1]

    def _with_turns(self, plan: Plan) -> Plan:
        other = in_turns(plan)
        return plan if other is plan else self._shorter(plan, other, describe_turns)

    def _with_stagger(self, plan: Plan) -> Plan:
        if plan.passes.stagger > 1 or not plan.passes.interleaved:
            return plan
        others = [plan.with_passes(stagger=stagger) for stagger in staggers(plan)]
        return self._shorter(plan, min(others, key=self.seconds), describe_stagger)

    def _with_buckets(self, plan: Plan) -> Plan:
        timeline = self.timeline(plan)
        if plan.passes.bucket_mib != BUCKET_MIB or exposed_sums(timeline) <= EXPOSED:
            return plan
        made = {BUCKET_MIB: plan}

        def simulated(size: int) -> Tried:
            other = plan.with_passes(bucket_mib=size)
            if size not in made:
                made[size] = self._shorter(plan, other, describe_buckets)
            return self.seconds(made[size]), len(gradient_sums(self.timeline(other)))

        tasks = timeline.graph.tasks
        kinds = {(tasks[number].name, tasks[number].channel) for number in gradient_sums(timeline)}
        return made[shortest_size(BUCKET_MIB, simulated, len(kinds))]

    def _shorter(self, plan: Plan, other: Plan, describe: Callable[[Plan, float], str]) -> Plan:
        """Another plan with what is told of it, if its step is shorter and it fits the memory as well."""
        before, after = self.timeline(plan), self.timeline(other)
        if after.seconds >= (1 - GAIN) * before.seconds:
            return plan
        other = counted(other, Budget(self.machine, self.library, plan.division))
        if other.cost.memory.total > max(plan.cost.memory.total, self.machine.memory_bytes):
            return plan
        return replace(other, notes=(*plan.notes, describe(other, after.seconds / before.seconds)))


def _simulated_of(plan: Plan) -> object:
    """What a plan's simulated step depends on."""
    return id(plan.graph), plan.micro_batches, plan.passes


Finish = Callable[[Plan, float], AbstractContextManager[Callable[[], Shortest]]]
"""Begins to look for a plan next to one that is simulated, of less than so many seconds, and gives what it finds
when it is asked.
"""


def search_simulated(
    find: Callable[[Machine, Plan | None], Plan],
    simulations: Simulations,
    expected: Exposure,
    begin: Finish = lambda plan, below: nullcontext(lambda: Shortest.of(plan)),
    compared: Callable[[Plan], Sequence[Plan]] = lambda plan: (),
) -> Plan:
    """The better of the plans that `find` makes by two exposures: the `expected` one, of all meshes, numbers of
    micro-batches and operators that rules make, then that of the first plan, of those of this plan. Both are done once
    more with values in turns hidden, where the model has repeats that may run so: by another process if there are
    several processors; and of all meshes with what decomposed matmuls overlap, where products are long and a plan fits.
    Where what the first plan exposes of gathers is much of its step, one more search counts that, on the meshes that
    the first led to. Next to each plan one with a shorter step is looked for, which other processes `begin`; the
    shortest that fits the memory is taken. Only `auto` has a choice. At last the size of gradient buckets is chosen, of
    the shortest plan, of those that were found by exposures, and of those with which the first was `compared` on other
    meshes.
    """
    turn = _Turn(find, simulations, expected, begin, compared)
    first, measured = turn.first(expected)
    if first.strategy != AUTO:
        return simulations.in_buckets(simulations.shortest(first))
    others = [replace(expected, values=IN_TURNS)] if repeats_in_turns(first.model.graph) else []
    if not first.warnings and has_long_products(simulations.machine, first.model, first.mesh.size):
        others.append(replace(expected, products=IN_CHUNKS))
    if exposed_gathers(simulations.timeline(simulations.shortest(first))) > GATHERED:
        others.append(replace(expected, gathers=measured.gathers))
    several = bool(others) and processors() > 1
    with sharing_processors(2 if several else 1), begun_map(turn.hiding, others, int(several), check_end) as hidden:
        found = [turn.shortest(first, measured)]
        with suppress(SearchEnded):
            found += [plan for plan in hidden() if plan is not None]
    best = _best(map(Shortest.of, found))
    return replace(best, ended=why_ended() or next((plan.ended for plan in found if plan.ended), None))


@dataclass(frozen=True)
class _Turn:
    """Searches by an exposure, and by what is measured of the plan that it leads to."""

    find: Callable[[Machine, Plan | None], Plan]
    simulations: Simulations
    expected: Exposure
    begin: Finish
    compared: Callable[[Plan], Sequence[Plan]]

    def first(self, exposure: Exposure, near: Plan | None = None) -> tuple[Plan, Exposure]:
        """A plan, and what is exposed in its simulated step; of one next to another, if that could be shorter."""
        found = self.find(self.simulations.machine.exposing(exposure), near)
        below = inf if near is None or near.warnings else near.seconds
        plan, measured = _simulated(found, self.simulations, self.expected, below)
        return plan, replace(measured, values=exposure.values)

    def hiding(self, exposure: Exposure) -> Plan | None:
        """The shortest plan of a search by another exposure, if that is not ended before."""
        turn = replace(self, expected=exposure)
        with suppress(SearchEnded):
            return turn.shortest(*turn.first(exposure))
        return None

    def second(self, first: Plan, measured: Exposure) -> Plan:
        """The plan of a search by what was measured of a first one, on its mesh."""
        plan, _ = self.first(measured, first)
        told = "meshes and rules were compared by what a step exposes mostly, layouts by what the simulated step"
        return replace(plan, notes=(*plan.notes, f"{told} exposes on {describe_mesh(first.mesh)}"))

    def shortest(self, first: Plan, measured: Exposure) -> Plan:
        """The shortest of a first plan, the second one where the cost of the first is far from its simulated step, and
        those next to both.
        """
        plans, simulations = [first], self.simulations
        with ExitStack() as begun:
            try:
                finish = [begun.enter_context(self.begin(first, inf))]
                check_end()
                for exposure in self._measured(first, measured):
                    tell_stage("the same at what the simulated step exposes")
                    plans.append(self.second(first, exposure))
                    below = inf if first.warnings else first.seconds
                    finish.append(begun.enter_context(self.begin(plans[-1], below)))
                    check_end()
            except SearchEnded as end:
                return replace(simulations.shortest(_best(map(Shortest.of, plans))), ended=end.reason)
            ended = next((plan.ended for plan in plans if plan.ended), None)
            best = _best([shortest() for shortest in finish])
        ended = ended or why_ended()
        if ended:
            return replace(simulations.shortest(best), ended=ended)
        return self._on_other_meshes(self._in_buckets(best, plans), first)

    def _measured(self, first: Plan, measured: Exposure) -> Sequence[Exposure]:
        """Those by which plans next to a first one are searched, if its cost is far from its simulated step: what that
        exposes, and the same were nothing hidden by products in chunks that are not long.
        """
        if abs(first.cost.seconds - first.seconds) <= NEAR * first.seconds:
            return ()
        if measured.products == 1 or has_long_products(self.simulations.machine, first.model, first.mesh.size):
            return (measured,)
        return measured, replace(measured, products=1.0)

    def _in_buckets(self, shortest: Plan, others: Sequence[Plan]) -> Plan:
        """The shortest of plans, of each of which the size of buckets is chosen if it may be the shortest so."""
        best = self.simulations.in_buckets(self.simulations.shortest(shortest))
        for other in others:
            if (found := self._shorter_than(best.seconds, other)) is not None:
                best = _best(map(Shortest.of, (best, found)))
        return best

    def _on_other_meshes(self, shortest: Plan, first: Plan) -> Plan:
        """The shortest plan, or one with which the first was compared on another mesh, that fits and is shorter with
        what overlaps and in buckets of its own size.
        """
        best = shortest
        for other in self.compared(first):
            if (found := self._shorter_and_fitting(other, best)) is not None:
                told = f"with what overlaps the shortest step is that on {describe_mesh(other.mesh)}"
                notes = (*of_any_layouts(first.notes, operators=found.rules == first.rules), *found.notes, told)
                best = replace(found, notes=notes)
        return best if best is shortest or best.rules == first.rules else self._with_operators_of(first, best)

    def _with_operators_of(self, first: Plan, best: Plan) -> Plan:
        """The best plan, on another mesh than the first one, or one there with the operators that rules made of the
        model in the first, if that fits and its step is shorter.
        """
        with suppress(SearchEnded):
            check_end()
            plan, _ = self.first(self.expected, replace(first, mesh=best.mesh))
            if (found := self._shorter_and_fitting(plan, best)) is not None:
                told = f"with these operators and what overlaps the shortest step is that on {describe_mesh(best.mesh)}"
                return replace(found, notes=(*found.notes, told))
        return best

    def _shorter_and_fitting(self, plan: Plan, best: Plan) -> Plan | None:
        """As `_shorter_than` the best one, with what it holds, if it fits the memory."""
        found = self._shorter_than((1 - GAIN) * best.seconds, plan)
        budget = Budget(self.simulations.machine, self.simulations.library)
        return None if found is None or not budget.fits(found := counted(found, budget)) else found

    def _shorter_than(self, below: float, plan: Plan) -> Plan | None:
        """A plan with what overlaps and in buckets of its own size, with its simulated step, if that takes less."""
        simulations = self.simulations
        if simulations.least_seconds(plan, overlapping=True) >= below:
            return None
        shortest = simulations.shortest(plan)
        if simulations.least_seconds(shortest) >= below:
            return None
        found = simulations.in_buckets(shortest)
        seconds = simulations.seconds(found)
        return replace(found, simulated=seconds) if seconds < below else None


def _best(found: Iterable[Shortest]) -> Plan:
    """Of those that fit the memory, if any do, the one with the shortest step."""
    return min(found, key=lambda one: (one.warned, one.seconds)).made()


def _simulated(plan: Plan, simulations: Simulations, expected: Exposure, below: float) -> tuple[Plan, Exposure]:
    """The plan with its simulated time, and what is exposed in it, as `expected` of what it does not have."""
    shortest = simulations.shortest(plan, below)
    simulations.offer(shortest)
    timeline = simulations.timeline(shortest)
    found = exposure_of(timeline, expected)
    counted = Exposure(**{name: max(LEAST, part) for name, part in asdict(found).items()})
    counted = replace(counted, devices=max(LEAST_OF_DEVICES, counted.devices), summed=summed_part(plan) or 1.0)
    counted = replace(counted, products=IN_CHUNKS if shortest.passes.chunks > 1 else 1.0)
    return replace(plan, simulated=timeline.seconds), counted

"""Plans next to the best one that keep all trained weights alike, whole or in slices, or run all iterations of a repeat
alike, for the simulator to choose from.

What of a gather or of a sum of gradients is exposed the cost counts in the same way for every weight. In a step the
collectives of many weights run together, and one that is kept in another way than those around it has a collective of
its own. So the best plans of restricted problems are of use, in which every weight is kept in the same way. Of
iterations that differ what is sent between them may cost as much as is saved, and be exposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.layout_typing import Configuration
from ..graph.plan import Plan, PlannedGraph, PlannedSegment, in_micro_batches
from ..rules.process_map import begun_map
from .accounting.kept_iterations import told_kept
from .accounting.weighed_plan import counted, within_memory
from .choices.restriction import Keeping, Restriction, node_path
from .meshes.mesh_search import processes_for
from .meshes.near_search import Found, Task, held_by, near_plan
from .plan_notes import of_any_layouts
from .search_end import SearchEnded, check_end
from .wanted import Referee, Wanted, made

LIKELY = 1.25
"""Times the cost of the best plan: how far others may cost more, of which the cost counts in full what is gathered
outside loops and a step hides. Slices of all weights of resnext50_unity on 8 H100 cost 1.12 times as much, and a step
takes 1.7 % less.
"""
EXPOSED = 3.0
"""Times the cost of the best plan within the memory: how far others may cost more that gather what a step hides."""


@dataclass(frozen=True)
class Way:
    """In what plans are alike, as it is told of them: how all weights are kept, or the configurations of operators in
    whatever iteration, by path.
    """

    told: str
    keeping: Keeping | None = None
    configurations: Mapping[str, Configuration] = field(default_factory=dict)

    def allowed(self, model: Model, wanted: Wanted) -> Callable[[Mesh], Restriction]:
        """What is allowed on a mesh, of what is wanted."""

        def on(mesh: Mesh) -> Restriction:
            given = wanted.allowed(model, mesh, wanted.pins)
            configurations = {**self.configurations, **given.configurations}
            return replace(given, keeping=self.keeping, configurations=configurations)

        return on


WEIGHTS = tuple(Way(f"all weights are kept {keeping.value}", keeping) for keeping in Keeping)
IN_SLICES = next(way for way in WEIGHTS if way.keeping is Keeping.SLICES)


def iterations_alike(graph: PlannedGraph) -> list[Way]:
    """All iterations of repeats as their last one, or as their first one, where operators do not do the same in all."""
    found = list[Way]()
    for which, told in ((-1, "last"), (0, "first")):
        configurations = dict(_of_differing(graph, "", which))
        if configurations and all(way.configurations != configurations for way in found):
            found.append(Way(f"all iterations do as the {told} one", configurations=configurations))
    return found


def _of_differing(graph: PlannedGraph, prefix: str, which: int) -> Iterator[tuple[str, Configuration]]:
    """Configurations in the first or the last iteration of repeats of which some differ, by path."""
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            path = f"{prefix}{step.segment.name}."
            bodies = [dict(_configurations(run.body, path, which)) for run in step.runs]
            if any(body != bodies[0] for body in bodies):
                yield from bodies[which].items()
            else:
                yield from _of_differing(step.runs[which].body, path, which)


def _configurations(graph: PlannedGraph, prefix: str, which: int) -> Iterator[tuple[str, Configuration]]:
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            yield from _configurations(step.runs[which].body, f"{prefix}{step.segment.name}.", which)
        else:
            yield node_path(prefix, step.node), step.typed.configuration


@dataclass(frozen=True)
class Shortest:
    """The plan of the shortest step that was found, of so many `seconds`: `made` where it is taken. It may be `warned`
    of, as that it does not fit the memory.
    """

    seconds: float
    warned: bool
    made: Callable[[], Plan]

    @staticmethod
    def of(plan: Plan) -> Shortest:
        return Shortest(plan.seconds, bool(plan.warnings), lambda: plan)


def shortest_alike(
    given: Plan,
    referee: Referee,
    wanted: Wanted,
    free: Wanted | None = None,
    ways: Sequence[Way] | None = None,
) -> Plan:
    """The plan, or the one of those next to it that are alike in one of these ways, by default any, and fit, that the
    referee gives the fewest seconds. Where that was `wanted` at a price of memory, next to it are also what is best
    without, as `free` says.
    """
    with begun_alike(given, referee, wanted, free, ways) as shortest:
        return shortest().made()


@contextmanager
def begun_alike(
    given: Plan,
    referee: Referee,
    wanted: Wanted,
    free: Wanted | None = None,
    ways: Sequence[Way] | None = None,
    below: float = inf,
) -> Iterator[Callable[[], Shortest]]:
    """`shortest_alike` once this process asks for it, begun by others if the problem is large enough for several; only
    plans of steps `below` so many seconds are of use besides. What a plan holds is counted where its step is shorter.
    """
    known, budget = wanted.found_of(given.model, given.mesh), wanted.budget
    if given.mesh.size == 1 or known is None:
        yield lambda: Shortest.of(given)  # one device, or what the search found there is not known any more
        return
    weights = {path for path, weight in given.model.weights() if weight.value.needs_gradient}
    every, made_here = held_by(given.mesh, [known]), dict[int, tuple[Found, Plan]]()
    without = below if given.warnings else min(below, referee(given, below))
    seconds_here = dict[int, float]()
    priced = [wanted, *([] if free is None or not (wanted.multiplier or wanted.recomputed) else [free])]
    below = known.best.cost * (LIKELY if wanted.unlimited is None else EXPOSED)

    def plans_of(way: Way, like: Plan, shortest: float) -> Iterator[tuple[Found, Plan]]:
        """The best plans that are alike so, with the operators of another one, if they fit and may take less than the
        `shortest` step; at each price of memory, if it costs little more.
        """
        told = f"{way.told} (a shorter simulated step than that of the cheapest plan)"
        told += "" if like is given else ", with the operators of the plan without a limit"
        for one in priced:
            task = Task(like.model, one.priced, way.allowed(like.model, one), one.memory(like.model))
            found = near_plan(task, given.mesh, every.without(weights if way.keeping else ()), below, rounds=1)
            if found is None:
                continue
            plan = _like(given, made(found, like.model, one), like, told)
            if wanted.unlimited is None and plan.graph == given.graph:
                continue  # it is the plan itself
            if referee(in_micro_batches(plan, given.division), shortest) >= shortest:
                continue  # what it takes to fit comes on top
            plan = told_kept(within_memory(counted(plan, budget), budget, one.segments), one.lasting, budget)
            if not plan.warnings:
                yield found, in_micro_batches(plan, given.division)

    def plan_of(number: int, like: Plan, shortest: float) -> tuple[Found, Plan] | None:
        """The shortest of these, by the number of the way."""
        return min(plans_of(tried[number], like, shortest), key=lambda one: referee(one[1], shortest), default=None)

    def looked_at(number: int) -> float:
        """The seconds of its simulated step, infinite where there is none that fits and is shorter."""
        shortest = min([without, *seconds_here.values()])
        looked = plan_of(number, given, shortest)
        if looked is None:
            return inf
        made_here[number], seconds_here[number] = looked, referee(looked[1], shortest)
        return seconds_here[number]

    tried = (*WEIGHTS, *iterations_alike(given.graph)) if ways is None else tuple(ways)
    tried = tuple(way for way in tried if way.keeping is not Keeping.HYBRID or len(given.mesh.axes) > 1)
    numbers = range(len(tried))
    with begun_map(looked_at, numbers, min(processes_for(known.problem) - 1, len(tried)), check_end) as simulated:

        def shortest() -> Shortest:
            with suppress(SearchEnded):
                found = list(simulated())
                best = min(numbers, key=found.__getitem__)
                if found[best] < without:
                    return Shortest(*with_operators(best, found[best]))
            return Shortest.of(given)

        def with_operators(number: int, seconds: float) -> tuple[float, bool, Callable[[], Plan]]:
            """The plan of that many seconds, or one with the operators of the plan without a limit that is shorter."""
            like = wanted.unlimited
            if like is not None and like.model.graph is not given.model.graph:
                looked = plan_of(number, like, seconds)
                if looked is not None and (other := referee(looked[1])) < seconds:
                    made_here[number] = looked
                    return other, False, lambda: plan_with(number, other)
            return seconds, False, lambda: plan_with(number, seconds)

        def plan_with(number: int, seconds: float) -> Plan:
            with suppress(SearchEnded):
                looked = made_here.get(number) or plan_of(number, given, inf)  # which another process has made
                assert looked is not None, "as it was looked at before"
                found, plan = looked
                wanted.found[plan.mesh] = found
                return replace(plan, simulated=seconds)
            return given

        yield shortest


def _like(given: Plan, plan: Plan, of: Plan, told: str) -> Plan:
    """A plan with what is known of the given one besides its layouts and memory, and with the operators of another."""
    return replace(
        given.with_passes(gathered_again=frozenset(), recomputed=plan.passes.recomputed, kept_iterations={}),
        model=plan.model,
        rules=of.rules,
        considered=max(given.considered, of.considered),
        mesh=plan.mesh,
        graph=plan.graph,
        cost=plan.cost,
        conversions=plan.conversions,
        notes=(*of_any_layouts(given.notes, of is given), told),
        least_bytes=None,
        division=None,
        simulated=None,
    )

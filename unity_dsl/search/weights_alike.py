"""Plans next to the best one that keep all trained weights alike, whole or in slices, for the simulator to choose from.

What of a gather or of a sum of gradients is exposed the cost counts in the same way for every weight. In a step the
collectives of many weights run together, and one that is kept in another way than those around it has a collective of
its own. So the best plans of restricted problems are of use, in which every weight is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan, in_micro_batches
from ..rules.process_map import begun_map
from .accounting.kept_iterations import told_kept
from .accounting.weighed_plan import counted, within_memory
from .choices.restriction import Keeping, Restriction
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
    ways: Sequence[Keeping] = tuple(Keeping),
) -> Plan:
    """The plan, or the one of those next to it that keep all weights alike, in one of these ways, and fit, that the
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
    ways: Sequence[Keeping] = tuple(Keeping),
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
    held, made_here = held_by(given.mesh, [known]).without(weights), dict[Keeping, tuple[Found, Plan]]()
    without = below if given.warnings else min(below, referee(given, below))
    seconds_here = dict[Keeping, float]()
    priced = [wanted, *([] if free is None or not (wanted.multiplier or wanted.recomputed) else [free])]
    below = known.best.cost * (LIKELY if wanted.unlimited is None else EXPOSED)

    def plans_of(keeping: Keeping, like: Plan, shortest: float) -> Iterator[tuple[Found, Plan]]:
        """The best plans that keep weights so, with the operators of another one, if they fit and may take less than
        the `shortest` step; at each price of memory, if it costs little more.
        """
        told = f"all weights are kept {keeping.value}: so a step is simulated to be shorter than the cheapest one"
        told += "" if like is given else ", with the operators of the plan without a limit"
        for one in priced:
            task = Task(like.model, one.priced, _allowed(like.model, one, keeping), one.memory(like.model))
            found = near_plan(task, given.mesh, held, below, rounds=1)
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

    def plan_of(keeping: Keeping, like: Plan, shortest: float) -> tuple[Found, Plan] | None:
        """The shortest of these."""
        return min(plans_of(keeping, like, shortest), key=lambda one: referee(one[1], shortest), default=None)

    def looked_at(keeping: Keeping) -> float:
        """The seconds of its simulated step, infinite where there is none that fits and is shorter."""
        shortest = min([without, *seconds_here.values()])
        looked = plan_of(keeping, given, shortest)
        if looked is None:
            return inf
        made_here[keeping], seconds_here[keeping] = looked, referee(looked[1], shortest)
        return seconds_here[keeping]

    ways = [keeping for keeping in ways if keeping is not Keeping.HYBRID or len(given.mesh.axes) > 1]
    with begun_map(looked_at, ways, min(processes_for(known.problem) - 1, len(ways)), check_end) as simulated:

        def shortest() -> Shortest:
            with suppress(SearchEnded):
                found = dict(zip(ways, simulated(), strict=True))
                best = min(ways, key=lambda way: found[way])
                if found[best] < without:
                    return Shortest(*with_operators(best, found[best]))
            return Shortest.of(given)

        def with_operators(keeping: Keeping, seconds: float) -> tuple[float, bool, Callable[[], Plan]]:
            """The plan of that many seconds, or one with the operators of the plan without a limit that is shorter."""
            like = wanted.unlimited
            if like is not None and like.model.graph is not given.model.graph:
                looked = plan_of(keeping, like, seconds)
                if looked is not None and (other := referee(looked[1])) < seconds:
                    made_here[keeping] = looked
                    return other, False, lambda: plan_with(keeping, other)
            return seconds, False, lambda: plan_with(keeping, seconds)

        def plan_with(keeping: Keeping, seconds: float) -> Plan:
            with suppress(SearchEnded):
                looked = made_here.get(keeping) or plan_of(keeping, given, inf)  # which another process has made
                assert looked is not None, "as it was looked at before"
                found, plan = looked
                wanted.found[plan.mesh] = found
                return replace(plan, simulated=seconds)
            return given

        yield shortest


def _like(given: Plan, plan: Plan, of: Plan, told: str) -> Plan:
    """A plan with what is known of the given one besides its layouts and memory, and with the operators of another."""
    return replace(
        given,
        model=plan.model,
        rules=of.rules,
        considered=max(given.considered, of.considered),
        mesh=plan.mesh,
        graph=plan.graph,
        cost=plan.cost,
        conversions=plan.conversions,
        notes=(*of_any_layouts(given.notes, of is given), told),
        gathered_again=frozenset(),
        recomputed=plan.recomputed,
        kept_iterations={},
        least_bytes=None,
        division=None,
        simulated=None,
    )


def _allowed(model: Model, wanted: Wanted, keeping: Keeping) -> Callable[[Mesh], Restriction]:
    return lambda mesh: replace(wanted.allowed(model, mesh, wanted.pins), keeping=keeping)

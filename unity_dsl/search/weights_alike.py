"""Plans next to the best one that keep all trained weights alike, whole or in slices, for the simulator to choose from.

What of a gather or of a sum of gradients is exposed the cost counts in the same way for every weight. In a step the
collectives of many weights run together, and one that is kept in another way than those around it has a collective of
its own. So the best plans of restricted problems are of use, in which every weight is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Memory, Plan, in_micro_batches
from ..rules.process_map import begun_map
from .choices.restriction import Keeping, Restriction
from .meshes.fine_meshes import PROMISING
from .meshes.mesh_search import processes_for
from .meshes.near_search import Found, Task, held_by, near_plan
from .search_end import SearchEnded, check_end
from .wanted import Wanted, made


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


def shortest_alike(given: Plan, referee: Callable[[Plan], float], wanted: Wanted) -> Plan:
    """The plan, or the one of those next to it that keep all weights alike, and fit, that the referee gives the fewest
    seconds.
    """
    with begun_alike(given, referee, wanted) as shortest:
        return shortest().made()


@contextmanager
def begun_alike(given: Plan, referee: Callable[[Plan], float], wanted: Wanted) -> Iterator[Callable[[], Shortest]]:
    """`shortest_alike` once this process asks for it, begun by others if the problem is large enough for several. What
    a plan holds is counted where its step is shorter.
    """
    known = wanted.found_of(given.model, given.mesh)
    if given.mesh.size == 1 or known is None:
        yield lambda: Shortest.of(given)  # one device, or what the search found there is not known any more
        return
    weights = {path for path, weight in given.model.weights() if weight.value.needs_gradient}
    held, made_here = held_by(given.mesh, [known]).without(weights), dict[Keeping, tuple[Found, Plan]]()
    without = referee(given)

    def plan_of(keeping: Keeping) -> Plan | None:
        """The best plan that keeps weights so, if it costs little more."""
        task = Task(given.model, wanted.priced, _allowed(given.model, wanted, keeping))
        found = near_plan(task, given.mesh, held, known.best.cost * PROMISING, rounds=1)
        if found is None:
            return None
        plan = in_micro_batches(made(found, given.model, wanted), given.division)
        told = f"all weights are kept {keeping.value}: so a step is simulated to be shorter than the cheapest one"
        alike = replace(given, mesh=plan.mesh, graph=plan.graph, cost=plan.cost, conversions=plan.conversions)
        made_here[keeping] = found, replace(alike, notes=(*given.notes, told), simulated=None)
        return made_here[keeping][1]

    def looked_at(keeping: Keeping) -> tuple[float, Memory]:
        """The seconds of its simulated step, infinite where there is none that fits and is shorter; what it holds."""
        plan = plan_of(keeping)
        if plan is None or (seconds := referee(plan)) >= without:
            return inf, Memory()
        memory = wanted.budget.held(plan)
        return seconds if memory.total <= wanted.budget.bytes else inf, memory

    ways = [keeping for keeping in Keeping if keeping is not Keeping.HYBRID or len(given.mesh.axes) > 1]
    with begun_map(looked_at, ways, min(processes_for(known.problem) - 1, len(ways)), check_end) as simulated:

        def shortest() -> Shortest:
            with suppress(SearchEnded):
                found = dict(zip(ways, simulated(), strict=True))
                best = min(ways, key=lambda way: found[way][0])
                if found[best][0] < without:
                    return Shortest(found[best][0], bool(given.warnings), lambda: plan_with(best, *found[best]))
            return Shortest.of(given)

        def plan_with(keeping: Keeping, seconds: float, memory: Memory) -> Plan:
            with suppress(SearchEnded):
                if keeping not in made_here:  # but in another process
                    plan_of(keeping)
                found, plan = made_here[keeping]
                wanted.found[plan.mesh] = found
                return replace(plan, cost=replace(plan.cost, memory=memory), simulated=seconds)
            return given

        yield shortest


def _allowed(model: Model, wanted: Wanted, keeping: Keeping) -> Callable[[Mesh], Restriction]:
    return lambda mesh: replace(wanted.allowed(model, mesh, wanted.pins), keeping=keeping)

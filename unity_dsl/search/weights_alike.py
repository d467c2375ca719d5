"""Plans next to the best one that keep all trained weights alike, whole or in slices, for the simulator to choose from.

What of a gather or of a sum of gradients is exposed the cost counts in the same way for every weight. In a step the
collectives of many weights run together, and one that is kept in another way than those around it has a collective of
its own. So the best plans of restricted problems are of use, in which every weight is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan, in_micro_batches
from ..rules.process_map import begun_map
from .accounting.weighed_plan import counted
from .choices.restriction import Keeping, Restriction
from .meshes.fine_meshes import PROMISING
from .meshes.mesh_search import processes_for
from .meshes.near_search import Found, Task, held_by, near_plan
from .search_end import SearchEnded, check_end
from .wanted import Wanted, made


def shortest_alike(given: Plan, referee: Callable[[Plan], float], wanted: Wanted) -> Plan:
    """The plan, or the one of those next to it that keep all weights alike, and fit, that the referee gives the fewest
    seconds.
    """
    with begun_alike(given, referee, wanted) as shortest:
        return shortest()


@contextmanager
def begun_alike(given: Plan, referee: Callable[[Plan], float], wanted: Wanted) -> Iterator[Callable[[], Plan]]:
    """`shortest_alike` once this process asks for it, begun by others if the problem is large enough for several. What
    a plan holds is counted where its step is shorter.
    """
    known = wanted.found_of(given.model, given.mesh)
    if given.mesh.size == 1 or known is None:
        yield lambda: given  # one device, or what the search found there is not known any more
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

    def seconds(keeping: Keeping) -> float:
        """Of its simulated step, infinite where there is none that fits and is shorter."""
        plan = plan_of(keeping)
        if plan is None or (taken := referee(plan)) >= without:
            return inf
        return taken if wanted.budget.fits(counted(plan, wanted.budget)) else inf

    ways = [keeping for keeping in Keeping if keeping is not Keeping.HYBRID or len(given.mesh.axes) > 1]
    with begun_map(seconds, ways, min(processes_for(known.problem) - 1, len(ways)), check_end) as simulated:

        def shortest() -> Plan:
            with suppress(SearchEnded):
                least, best = min(zip(simulated(), ways, strict=True), key=lambda one: one[0])
                if least < without:
                    if best not in made_here:  # but in another process
                        plan_of(best)
                    found, plan = made_here[best]
                    wanted.found[plan.mesh] = found
                    return replace(counted(plan, wanted.budget), simulated=least)
            return given

        yield shortest


def _allowed(model: Model, wanted: Wanted, keeping: Keeping) -> Callable[[Mesh], Restriction]:
    return lambda mesh: replace(wanted.allowed(model, mesh, wanted.pins), keeping=keeping)

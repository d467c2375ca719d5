"""Plans next to the best one that keep all trained weights alike, whole or in slices, for the simulator to choose from.

What of a gather or of a sum of gradients is exposed the cost counts in the same way for every weight. In a step the
collectives of many weights run together, and one that is kept in another way than those around it has a collective of
its own. So the best plans of restricted problems are of use, in which every weight is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from .accounting.weighed_plan import counted
from .choices.restriction import Keeping, Restriction
from .meshes.mesh_search import PROMISING
from .meshes.near_search import Found, Task, held_by, near_plan
from .search_end import SearchEnded
from .wanted import Wanted, made


def shortest_alike(given: Plan, referee: Callable[[Plan], float], wanted: Wanted) -> Plan:
    """The plan, or the one of those next to it that keep all weights alike, and fit, that the referee gives the fewest
    seconds.
    """
    best, least, told = given, inf, ""
    with suppress(SearchEnded):
        for keeping, found in weights_alike(given, wanted):
            least = referee(given) if least == inf else least
            plan = counted(made(found, given.model, wanted), wanted.library)
            if plan.cost.memory.total <= wanted.machine.memory_bytes and (seconds := referee(plan)) < least:
                best, least = plan, seconds
                told = (
                    f"all weights are kept {keeping.value}: so a step is simulated to be shorter than the cheapest one"
                )
                wanted.found[plan.mesh] = found
    if best is given:
        return given
    graph, notes = best.graph, (*given.notes, told)
    return replace(given, mesh=best.mesh, graph=graph, cost=best.cost, conversions=best.conversions, notes=notes)


def weights_alike(plan: Plan, wanted: Wanted) -> Iterator[tuple[Keeping, Found]]:
    """The best of these plans on the mesh of a plan that cost little more than it. There are none on one device, and
    where what the search found there is not known any more.
    """
    known = wanted.found.get(plan.mesh)
    if plan.mesh.size == 1 or known is None or known.problem.meaning.graph is not plan.model.graph:
        return
    weights = {path for path, weight in plan.model.weights() if weight.value.needs_gradient}
    held = held_by(plan.mesh, [known]).without(weights)
    for keeping in Keeping:
        task = Task(plan.model, wanted.priced, _allowed(plan.model, wanted, keeping))
        found = near_plan(task, plan.mesh, held, wanted.cost(plan) * PROMISING, rounds=1)
        if found is not None:
            yield keeping, found


def _allowed(model: Model, wanted: Wanted, keeping: Keeping) -> Callable[[Mesh], Restriction]:
    return lambda mesh: replace(wanted.allowed(model, mesh, wanted.pins), keeping=keeping)

"""Plans beside the cheapest one, of which the simulator says whether a step is shorter: with branches on disjoint
devices, or alike in how weights are kept or in what iterations do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..graph.axis_names import named_axes
from ..graph.layout import Mesh
from ..graph.plan import Plan
from .alike_plans import IN_SLICES, Shortest, begun_alike, shortest_alike
from .branches.branch_search import shortest_with_branches
from .meshes.fine_meshes import LARGE, effort_of
from .wanted import Referee, Wanted


class Later:
    """What is known of plans, of one of which those that keep all weights alike are looked at when it is chosen; and
    the meshes on which it pays to search again next to plans with branches.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Plan, Wanted]] = {}
        self._searched: dict[int, tuple[Plan, Mesh]] = {}
        self._limited: dict[int, tuple[Plan, Sequence[Plan]]] = {}

    def kept(self, plan: Plan, wanted: Wanted) -> Plan:
        """The plan, of which is kept how it was searched for, and what was found on its mesh."""
        found = {mesh: found for mesh, found in wanted.found.items() if mesh == plan.mesh}
        self._known[id(plan.graph)] = plan, replace(wanted, found=found)
        return plan

    def with_branches(self, plan: Plan, without: Plan, wanted: Wanted) -> Plan:
        """The plan with branches, found next to one without. Where its mesh has so many configurations that a search of
        it is likely to prove nothing, plans are searched again on the mesh of the latter.
        """
        known = wanted.found_of(without.model, without.mesh)
        if known is not None and effort_of([known.problem], len(plan.mesh.axes)) > LARGE:
            self._searched[id(plan.graph)] = plan, without.mesh
        return plan

    def searched(self, plan: Plan) -> Mesh:
        """The mesh on which plans next to one are searched."""
        return self._searched[id(plan.graph)][1] if id(plan.graph) in self._searched else plan.mesh

    def within_memory(self, plan: Plan, others: Sequence[Plan]) -> None:
        """Keeps of a plan that was found within the memory with which others, that fit as well, it was compared."""
        self._limited[id(plan.graph)] = plan, others

    def compared(self, plan: Plan) -> Sequence[Plan]:
        """The plans of other meshes with which one was compared: within the memory, or, of one that is kept, of the
        model as it is written.
        """
        if plan.division is not None:
            return ()
        known, limited = self._known.get(id(plan.graph)), self._limited.get(id(plan.graph))
        found: Sequence[Plan] = () if known is None else known[1].compared
        if limited is not None:
            free, seconds = plan.unlimited, plan.unlimited_seconds
            found = [
                replace(other, unlimited=free, unlimited_seconds=seconds, exposed=plan.exposed) for other in limited[1]
            ]
        return [replace(other, mesh=named_axes(other.graph, other.mesh)) for other in found]

    @contextmanager
    def begun(self, plan: Plan, below: float, referee: Referee) -> Iterator[Callable[[], Shortest]]:
        """As `begun_alike` of a plan that is kept, its mesh axes named by what they do; another one as it is."""
        if id(plan.graph) not in self._known:
            yield lambda: Shortest.of(plan)
            return
        given, wanted = self._known[id(plan.graph)]
        with begun_alike(replace(plan, mesh=given.mesh), referee, wanted, below=below) as shortest:

            def named(best: Plan) -> Plan:
                return plan if best.graph is plan.graph else replace(best, mesh=named_axes(best.graph, best.mesh))

            def found() -> Shortest:
                best = shortest()
                return replace(best, made=lambda: named(best.made()))

            yield found


def shortest_beside(found: Plan, every: Sequence[Mesh], wanted: Wanted, later: Later | None) -> Plan:
    """The cheapest plan, or one beside it that the referee gives fewer seconds; those that keep weights alike may be
    looked at `later`, unless there are branches. The plan itself without a referee, or where memory makes it recompute
    or gather again.
    """
    if wanted.referee is None or found.passes.recomputed or found.passes.gathered_again:
        return found
    alike = shortest_alike(found, wanted.referee, wanted) if later is None else found
    best = shortest_with_branches(alike, every, wanted.referee, wanted)
    if later is None:
        return best
    return later.kept(best, wanted) if best is alike else later.with_branches(best, alike, wanted)


def limited_beside(found: Plan, wanted: Wanted, free: Wanted) -> Plan:
    """The best plan that was found within the memory, as it was `wanted` at a price of that, or one beside it that
    keeps weights alike, fits, and takes the referee fewer seconds; `free` is what is wanted without a price.

    In whatever way where the cost counts all gathers in full, of which no step was simulated yet. Elsewhere it tells
    what gathering weights in a loop takes, but counts in full what is gathered outside: weights in slices leave room
    for iterations that need not run again.
    """
    if wanted.referee is None:
        return found
    if wanted.machine.exposure.gathers == 1:
        return shortest_alike(found, wanted.referee, wanted, free)
    return shortest_alike(found, wanted.referee, wanted, ways=(IN_SLICES,)) if found.passes.recomputed else found

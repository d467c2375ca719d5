"""Plans of several meshes that cost nearly the same, of which a referee chooses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from ..machine.mesh import describe_mesh
from ..machine.written_figures import percent
from ..rules.process_map import shared_map
from .meshes.fine_meshes import PROMISING
from .meshes.mesh_search import is_large, processes_for
from .meshes.near_search import Found
from .search_end import SearchEnded, check_end, why_ended
from .wanted import Wanted, made

TIE = 0.005
"""Of the shortest step: where that on another mesh is longer by less, rules may make it the shorter one."""

CLOSE = 1.15
"""Times the shortest step: where that on another mesh takes less, what overlaps may make it shorter."""
EQUAL = 1e-6
"""The same, where it is the same step."""
UNTOLD = 0.01
"""Percent of the cost that are not told."""


def shortest_of_ties(
    best: Plan, wanted: Wanted, plan_on: Callable[[Sequence[Mesh], Wanted, float], Plan | None]
) -> Plan:
    """The plan, or one of the model that rules made of it on another mesh, where the plans of the model as it is were
    nearly as short, if the referee prefers that.
    """
    if wanted.referee is None or not best.rules:
        return best
    given = best
    for mesh in tuple(wanted.ties):
        found = plan_on((mesh,), wanted, wanted.cost(given) * PROMISING)
        if found is not None and wanted.referee(found, shortest := wanted.referee(best)) < shortest:
            note = f"with these rules the shortest step is that on {describe_mesh(mesh)}"
            best = replace(found, rules=given.rules, considered=given.considered, notes=(*given.notes, note))
    if best is not given:
        wanted.compared.append(replace(given, notes=()))
    return best


@dataclass
class RefereedPlans:
    """The plans of what was found for a model, each made once."""

    model: Model
    wanted: Wanted
    _made: dict[int, tuple[Found, Plan]] = field(default_factory=dict)
    _seconds: dict[int, tuple[Found, float]] = field(default_factory=dict)

    def of(self, found: Found) -> Plan:
        if id(found) not in self._made:
            self._made[id(found)] = found, made(found, self.model, self.wanted)
        return self._made[id(found)][1]

    def seconds(self, found: Found) -> float:
        """What the referee gives the plan."""
        assert self.wanted.referee is not None, "a simulator"
        if id(found) not in self._seconds:
            self._seconds[id(found)] = found, self.wanted.referee(self.of(found))
        return self._seconds[id(found)][1]

    def preferred(self, candidates: Sequence[Found]) -> Found:
        """Of candidates the one of the fewest seconds; without a referee the first."""
        return candidates[0] if self.wanted.referee is None else min(candidates, key=self.seconds)

    def look_at(self, expected: Sequence[Found]) -> None:
        """Asks the referee about what it will be asked about."""
        if self.wanted.referee is not None:
            for one in expected:
                check_end()
                self.seconds(one)

    def compare(self, candidates: Sequence[Found], beside: Callable[[], None]) -> None:
        """Asks the referee about candidates, by several processes if there are several that it was not asked about;
        meanwhile this one does what there is to do `beside`.
        """
        left = [one for one in candidates if id(one) not in self._seconds]
        if self.wanted.referee is None or len(left) < 2:
            return
        with suppress(SearchEnded):
            check_end()
            told = shared_map(self.seconds, left, processes_for(left[0].problem), check_end, beside)
            self._seconds.update((id(one), (one, seconds)) for one, seconds in zip(left, told, strict=True))

    def chosen(self, candidates: Sequence[Found]) -> tuple[Found, Plan, tuple[str, ...]]:
        """Of candidates, cheapest first, the one the referee prefers, its plan and what is told of that; without a
        referee the cheapest. Of equal steps it is that on the mesh of the fewest axes: a program with less to read.
        """
        cheapest = candidates[0]
        if why_ended() is not None:
            candidates = [one for one in candidates if id(one) in self._seconds]
        if self.wanted.referee is None or len(candidates) < 2:
            best = candidates[0] if candidates else cheapest
            return best, self.of(best), ()
        seconds = list(map(self.seconds, candidates))
        shortest = min(seconds) + EQUAL * abs(min(seconds))
        equal = (one for one, taken in zip(candidates, seconds, strict=True) if taken <= shortest)
        best = min(equal, key=lambda one: len(one.mesh.axes))
        near = (one for one, taken in zip(candidates, seconds, strict=True) if taken <= min(seconds) * (1 + TIE))
        self.wanted.ties[:] = [one.mesh for one in near if one is not best and not is_large(one)]
        close = (one for one, taken in zip(candidates, seconds, strict=True) if taken <= min(seconds) * CLOSE)
        self.wanted.compared[:] = [self.of(one) for one in close if one is not best]
        meshes = ", ".join(describe_mesh(one.mesh) for one in candidates)
        more = 100 * (best.best.cost / cheapest.best.cost - 1)
        note = f"simulated were the best plans of the meshes {meshes}: the shortest step is that on"
        note += f" {describe_mesh(best.mesh)}" + ("" if more < UNTOLD else f", which costs {percent(more)} more")
        return best, self.of(best), (note,)

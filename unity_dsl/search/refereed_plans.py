"""Plans of several meshes that cost nearly the same, of which a referee chooses one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..graph.graph import Model
from ..graph.plan import Plan
from ..machine.mesh import describe_mesh
from .meshes.near_search import Found
from .wanted import Wanted, made


@dataclass
class RefereedPlans:
    """The plans of what was found for a model, each made once."""

    model: Model
    wanted: Wanted
    _made: dict[int, tuple[Found, Plan]] = field(default_factory=dict)

    def of(self, found: Found) -> Plan:
        if id(found) not in self._made:
            self._made[id(found)] = found, made(found, self.model, self.wanted)
        return self._made[id(found)][1]

    def look_at(self, expected: Sequence[Found]) -> None:
        """Asks the referee, which keeps its answers, about what it will be asked about."""
        if self.wanted.referee is not None:
            for one in expected:
                self.wanted.referee(self.of(one))

    def chosen(self, candidates: Sequence[Found]) -> tuple[Found, Plan, tuple[str, ...]]:
        """Of candidates, cheapest first, the one the referee prefers, its plan and what is told of that; without a
        referee the cheapest.
        """
        cheapest = candidates[0]
        if self.wanted.referee is None or len(candidates) == 1:
            return cheapest, self.of(cheapest), ()
        seconds = [self.wanted.referee(self.of(one)) for one in candidates]
        best = candidates[seconds.index(min(seconds))]
        meshes = ", ".join(describe_mesh(one.mesh) for one in candidates)
        more = 100 * (best.best.cost / cheapest.best.cost - 1)
        note = f"simulated were the best plans of the meshes {meshes}: the shortest step is that on"
        note += f" {describe_mesh(best.mesh)}" + ("" if best is cheapest else f", which costs {more:.2g} % more")
        return best, self.of(best), (note,)

"""A point of the search: a plan, and how it was solved, so that it can be solved again with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..graph.graph import Model
from ..graph.layout import Mesh, Placement
from ..graph.layout_typing import Configuration
from ..graph.plan import Exposure, Plan
from .choices.restriction import Keeping, Restriction
from .wanted import Wanted


@dataclass(frozen=True)
class Restricted:
    """The restriction of a point's plan besides pins: how all weights are stored, the configurations of operators by
    path, in all iterations, or the coordinates of a mesh axis on which values are made.
    """

    told: str
    keeping: Keeping | None = None
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    placed: Mapping[str, Placement] = field(default_factory=dict)

    def allowed(self, model: Model, wanted: Wanted) -> Callable[[Mesh], Restriction]:
        """The restrictions by mesh, on top of those in `wanted`."""

        def on(mesh: Mesh) -> Restriction:
            given = wanted.allowed(model, mesh, wanted.pins)
            configurations = {**self.configurations, **given.configurations}
            return replace(given, keeping=self.keeping, configurations=configurations, placed=self.placed)

        return on


FREE = Restricted("")
"""No restriction besides pins."""


@dataclass(frozen=True, eq=False)
class Point:
    """A plan with its passes, solved in the context `wanted`, at the prices of an `exposure`, within a restriction.
    Where memory is the limit, `wanted` has a price of memory, and `free` is the context without one.
    """

    plan: Plan
    wanted: Wanted
    exposure: Exposure
    restricted: Restricted = FREE
    free: Wanted | None = None

    @property
    def fits(self) -> bool:
        """Whether the plan fits the memory."""
        return not self.plan.warnings

    @property
    def told(self) -> Plan:
        """The plan, with a note on its restriction."""
        kept = self.restricted.told
        return replace(self.plan, notes=(*self.plan.notes, kept)) if kept else self.plan

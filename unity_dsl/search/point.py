"""A point of the search: a plan, and how it was solved, so that it can be solved again with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..graph.graph import Model
from ..graph.layout import Mesh, Placement
from ..graph.layout_typing import Configuration
from ..graph.plan import Exposure, Plan
from .choices.restriction import Keeping, Restriction
from .search_context import SearchContext


@dataclass(frozen=True)
class Restricted:
    """The restriction of a point's plan besides pins: how all weights are stored, the configurations of operators by
    path, in all iterations, or the coordinates of a mesh axis on which values are made.
    """

    told: str
    keeping: Keeping | None = None
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    placed: Mapping[str, Placement] = field(default_factory=dict)

    def allowed(self, model: Model, context: SearchContext) -> Callable[[Mesh], Restriction]:
        """The restrictions by mesh, on top of those in `context`."""

        def on(mesh: Mesh) -> Restriction:
            given = context.allowed(model, mesh, context.pins)
            configurations = {**self.configurations, **given.configurations}
            return replace(given, keeping=self.keeping, configurations=configurations, placed=self.placed)

        return on


FREE = Restricted("")
"""No restriction besides pins."""


@dataclass(frozen=True, eq=False)
class Point:
    """A plan with its passes, solved in a `context`, at the prices of an `exposure`, within a restriction.
    Where memory is the limit, `context` has a price of memory, and `free` is the context without one.
    """

    plan: Plan
    context: SearchContext
    exposure: Exposure
    restricted: Restricted = FREE
    free: SearchContext | None = None

    @property
    def fits(self) -> bool:
        """Whether the plan fits the memory."""
        return not self.plan.warnings

    @property
    def told(self) -> Plan:
        """The plan, with a note on its restriction."""
        kept = self.restricted.told
        return replace(self.plan, notes=(*self.plan.notes, kept)) if kept else self.plan

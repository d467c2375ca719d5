"""Strategy `tofu`: every tensor split over all devices, by recursion (Wang, Huang and Li, EuroSys 2019).

Every operator is partitioned over the same number of devices along one of its axes, of its output or of a sum
(partition-n-reduce). The recursion takes one mesh axis after the other, the slowest first, and keeps the earlier
choices. Each step minimises communication alone, by an exact programme over the graph, where the authors coarsen it to
a chain. Bytes are weighted by their transfer time. Weights are stored in slices over all devices. The number of devices
must be a power of two.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.layout import Mesh
from ...graph.layout_typing import Along, Configuration, TypedOperator
from ..exact_search.bounded_search import optimise
from ..model_variants.rewritten_model import Variant
from .communication import communication_costs, with_costs
from .kept_storage import SlicedAlong
from .operator_sites import Allows, Assignments, Site, allowed_domains, chosen_at, sites_of
from .strategy import Chosen, Space, no_plan


def tofu(space: Space) -> Chosen:
    """Every operator and tensor split over all devices, one mesh axis after the other, by least communication."""
    mesh = space.meshes[0]
    if any(size & (size - 1) for size in mesh.degrees):
        raise no_plan("tofu", f"{mesh.size} devices are not a power of two")
    before: dict[str, Configuration] = {}
    for count in range(min(1, len(mesh.axes)), len(mesh.axes) + 1):
        held = SlicedAlong(range(count))
        problem = space.problem(space.model, Mesh(mesh.axes[:count]), held=held)
        domains = allowed_domains(problem, _splits(before))
        best = optimise(with_costs(problem.part, communication_costs(space, problem)), domains)
        if best.plan is None:
            raise no_plan("tofu", "no splits of all operators go together")
        choice = chosen_at(problem, best.plan)
        before = {site.path: site.options.typed[choice[site.path]].configuration for site in sites_of(problem)}
    plan, cost = Assignments(problem, domains).best(choice)
    if plan is None:
        raise no_plan("tofu", "no splits of all operators go together")
    return Chosen(Variant(space.model), problem, plan, cost, held)


def _splits(before: Mapping[str, Configuration]) -> Allows:
    """Allows configurations that divide an axis along every mesh axis, with the earlier choices `before` kept."""

    def allows(site: Site, typed: TypedOperator) -> bool:
        chosen = before.get(site.path, ())
        split = all(isinstance(role, Along) for role in typed.configuration)
        return split and typed.configuration[: len(chosen)] == chosen

    return allows

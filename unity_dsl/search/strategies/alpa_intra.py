"""Strategy `alpa_intra`: the intra-operator pass of Alpa (Zheng et al., OSDI 2022, section 4), an integer linear
programme.

On a mesh of at most two axes, an operator chooses an assignment of mesh axes to its dimensions. The programme minimises
only communication: collectives within operators and resharding between them. Computation is assumed to be equal for all
choices. Matrix products have every mesh axis dividing one of their dimensions if possible. Afterwards, gradients are
reduce-scattered and weights all-gathered, instead of all-reducing gradients, if that costs less (ZeRO as a by-product).
For a number of devices the mesh with the cheapest plan is taken, as the outer pass does by profiling. Pipeline stages
are not in the space.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.layout_typing import TypedOperator, Uniformly
from ...written_figures import duration
from ..model_variants.rewritten_model import Variant
from .communication import communication_costs
from .kept_storage import KeptAsRead
from .layout_programme import solve_programme
from .operator_sites import Assignments, Site, allowed_domains
from .strategy import Chosen, Space, cheapest_fitting, no_plan

SECONDS = 600.0
"""Time limit of the authors' solver, for one mesh."""


def alpa_intra(space: Space) -> Chosen:
    """The integer linear programme of Alpa's intra-operator pass: least communication, on a mesh of two axes."""
    every = list(_plans(space))
    if not every:
        raise no_plan("alpa_intra", "the integer linear programme has no solution, or none in time")
    return cheapest_fitting(space, every)


def _plans(space: Space) -> Iterator[Chosen]:
    for mesh in space.meshes:
        kept = space.problem(space.model, mesh, held=KeptAsRead())
        domains = allowed_domains(kept, _divided)
        solution = solve_programme(kept, domains, SECONDS, communication_costs(space, kept))
        if solution is None:
            continue
        problem = space.problem(space.model, mesh)
        plan, cost = Assignments(problem, allowed_domains(problem, _divided)).best(solution.choice)
        if plan is not None:
            proved = "" if solution.proved else ", not proved to be the least"
            note = f"integer linear programme: {duration(solution.cost)} of communication{proved}"
            yield Chosen(Variant(space.model), problem, plan, cost, notes=(note,))


def _divided(site: Site, typed: TypedOperator) -> bool:
    """Whether a product is divided along every mesh axis; other operators are not restricted."""
    if not _is_product(site):
        return True
    return not any(isinstance(role, Uniformly) for role in typed.configuration)


def _is_product(site: Site) -> bool:
    """Whether an operator sums products of two operands over an axis that is not in its result."""
    instance = site.node.instance
    made = {axis for output in instance.outputs for axis in output.axes}
    floats = [operand for operand in instance.inputs if operand.integer_range is None and operand.dims]
    return bool(made) and sum(bool(set(operand.axes) - made) for operand in floats) > 1

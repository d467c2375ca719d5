"""The extraction, among the models that rules make, and the layouts of least cost near plans of the model as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.plan import Plan
from .layout_problem.starting_domains import near_domain
from .meshes.mesh_search import is_large
from .meshes.near_search import BestOnMesh, Task, choices_of
from .model_variants.layouts_of_a_plan import GAIN
from .search_context import SearchContext

if TYPE_CHECKING:
    from .joint.extracted_model import Algebra
    from .joint.joint_search import JointOptimum


def joint_layouts(
    given: Plan, algebra: Algebra, known: BestOnMesh | None, context: SearchContext
) -> JointOptimum | None:
    """The extraction and layouts of least cost on the mesh of a plan, if they cost less than the plan; `known` is what
    was found there. None where rules make nothing of its model.
    """
    from .constants import JOINT_WHOLE
    from .joint.joint_search import near_problem, search_joint
    from .joint.plan_layouts import in_layouts, layouts_of

    if not algebra.groups and not algebra.changed:
        return None
    task = Task(given.model, context.priced, lambda mesh: context.allowed(given.model, mesh, context.pins))
    choices = choices_of(given.mesh, [] if known is None else [known])
    own = known is not None and known.problem.meaning.graph is given.model.graph
    problem = near_problem(task, given.mesh, algebra, choices, not (own and known is not None and is_large(known)))
    layouts, axes = layouts_of(given.graph), range(len(given.mesh.axes))
    near = [
        near_domain(problem, choices, along).intersected(in_layouts(problem, algebra, layouts, along))
        for along in ((), *((axis,) for axis in axes))
    ]
    return search_joint(problem, algebra, context.cost(given) * (1 - GAIN), near, JOINT_WHOLE)

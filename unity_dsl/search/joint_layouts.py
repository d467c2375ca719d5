"""What rules make of a model, and the extraction and layouts of least cost next to plans of the model as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..graph.plan import Plan
from .layout_pins import pinned_paths
from .layout_problem.starting_domains import near_domain
from .meshes.mesh_search import is_large
from .meshes.near_search import Found, Task, held_by
from .model_variants.layouts_of_a_plan import GAIN
from .wanted import Wanted

if TYPE_CHECKING:
    from .joint.extracted_model import Algebra, Algebras
    from .joint.joint_search import JointOptimum


class JointLayouts:
    """Finds them on the mesh of a plan, once for each plan: in advance for one that is likely to be chosen."""

    def __init__(self, algebras: Algebras, wanted: Wanted) -> None:
        self.algebras, self.wanted = algebras, wanted
        self._known: dict[int, tuple[Plan, JointOptimum | None]] = {}

    def algebra(self, model: Model) -> Algebra:
        return self.algebras.of(model, self.wanted.machine, frozenset(pinned_paths(self.wanted.pins, model)))

    def prepare(self, model: Model) -> None:
        """Finds what rules make of a model, which will be asked for."""
        self.algebra(model)

    def next_to(self, given: Plan, known: Found | None) -> JointOptimum | None:
        """Of least cost, if that is less than what the given plan costs, which is `known` on its mesh; None where rules
        make nothing of the model.
        """
        key = id(given.graph)
        if key not in self._known:
            self._known[key] = given, self._search(given, known)
        return self._known[key][1]

    def _search(self, given: Plan, known: Found | None) -> JointOptimum | None:
        from .joint.joint_search import WHOLE, near_problem, search_joint
        from .joint.plan_layouts import in_layouts, layouts_of

        wanted, algebra = self.wanted, self.algebra(given.model)
        if not algebra.groups and not algebra.changed:
            return None
        task = Task(given.model, wanted.priced, lambda mesh: wanted.allowed(given.model, mesh, wanted.pins))
        held = held_by(given.mesh, [] if known is None else [known])
        own = known is not None and known.problem.meaning.graph is given.model.graph
        problem = near_problem(task, given.mesh, algebra, held, not (own and known is not None and is_large(known)))
        layouts, axes = layouts_of(given.graph), range(len(given.mesh.axes))
        near = [
            near_domain(problem, held, along).intersected(in_layouts(problem, algebra, layouts, along))
            for along in ((), *((axis,) for axis in axes))
        ]
        return search_joint(problem, algebra, wanted.cost(given) * (1 - GAIN), near, WHOLE)

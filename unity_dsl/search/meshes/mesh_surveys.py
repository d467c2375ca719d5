"""The problems of several meshes with their lower bounds, some of which several processes compute in advance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from ...graph.layout import Mesh
from ...rules.process_map import shared_map
from ...syntax.diagnostic import InputError
from ..exact_search.bounded_search import Survey, survey
from ..folded_solver.lower_bounds import Bound
from ..folded_solver.problem_part import everything
from ..folded_solver.reduced_cost_filtering import Bounded
from ..layout_problem.model_problem import Problem
from ..layout_problem.variable_meaning import Impossible
from ..search_end import check_end
from .near_search import Task


@dataclass
class Surveys:
    """Problems of a task by mesh, each with its survey; for meshes that another process looked at, only their bounds.
    `refused` are the reasons why other meshes have no problem.
    """

    task: Task
    refused: dict[Mesh, Impossible | InputError] = field(default_factory=dict)
    _found: dict[Mesh, tuple[Problem, Survey]] = field(default_factory=dict)
    _least: dict[Mesh, float] = field(default_factory=dict)
    _bounds: dict[Mesh, Bound] = field(default_factory=dict)

    def of(self, mesh: Mesh) -> tuple[Problem, Survey] | None:
        """The problem of a mesh with its bound, or solved where that is as quick; None where it is refused."""
        if mesh not in self._found and mesh not in self.refused:
            try:
                problem = self.task.problem(mesh)
            except (Impossible, InputError) as reason:
                self.refused[mesh] = reason
                return None
            part = problem.part
            self._found[mesh] = problem, survey(part, everything(part), self._bounds.pop(mesh, None))
        return self._found.get(mesh)

    def least(self, mesh: Mesh) -> float:
        """A lower bound on all plans of a mesh, infinite where it is refused."""
        if mesh not in self._least:
            found = self.of(mesh)
            self._least[mesh] = inf if found is None else found[1].bound
        return self._least[mesh]

    def look_at(self, meshes: Iterable[Mesh], processes: int) -> None:
        """Computes the bounds of meshes in several processes, including this one. Does nothing if there is only one."""
        if processes < 2:
            return
        left = [mesh for mesh in meshes if mesh not in self._found and mesh not in self._least]

        def look(mesh: Mesh) -> tuple[float, Bound | None]:
            least, found = self.least(mesh), self.of(mesh)
            known = None if found is None else found[1].found
            return least, known.bound if isinstance(known, Bounded) else None

        for mesh, (least, bound) in zip(left, shared_map(look, left, processes, check_end), strict=True):
            self._least[mesh] = least
            if bound is not None and mesh not in self._found:
                self._bounds[mesh] = bound

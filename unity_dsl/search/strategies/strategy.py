"""The definition of a strategy: its restriction of the search space, its allowed meshes, and its algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...graph.plan import PlannedGraph
from ...index.library import Library
from ...machine.machine import Machine
from ...syntax.diagnostic import InputError, fail
from ...syntax.parse_rules import RuleDecl
from ..choices.restriction import Restriction
from ..folded_solver.exact_minimum import Solved
from ..layout_problem.held_price import HeldPrice
from ..layout_problem.model_problem import Problem
from ..layout_problem.plan_assembly import assemble
from ..model_variants.rewritten_model import Variant

Restrict = Callable[[Model, Mesh, Library], Restriction]


class Problems(Protocol):
    """Builds the problem of a model on a mesh, with pins applied. Raises InputError if an operator or value has no
    option.
    """

    def __call__(
        self, model: Model, mesh: Mesh, restriction: Restriction = ..., held: HeldPrice | None = ...
    ) -> Problem: ...


@dataclass(frozen=True)
class Space:
    """The input of an algorithm: the models that the proved `rules` produce, the `meshes`, and the problems. Problems
    have the same configurations, layouts and prices as for every other strategy.

    `fits` says whether a planned model fits the memory of a device, with weights re-gathered if that frees memory.
    """

    model: Model
    meshes: Sequence[Mesh]
    machine: Machine
    library: Library
    rules: Sequence[RuleDecl]
    problem: Problems
    fits: Callable[[Model, PlannedGraph, Mesh], bool]

    def of(self, model: Model) -> Space:
        """The same space for another model."""
        return replace(self, model=model)


@dataclass(frozen=True)
class Chosen:
    """The choice of an algorithm: a model that rules produced, its problem, and a plan of the problem with its cost.

    `held` is the additional price that the problem was built with; `notes` are reported with the plan.
    """

    variant: Variant
    problem: Problem
    plan: Solved
    cost: float
    held: HeldPrice | None = None
    notes: tuple[str, ...] = ()

    @property
    def mesh(self) -> Mesh:
        return self.problem.spaces.mesh

    @property
    def graph(self) -> PlannedGraph:
        return assemble(self.problem, self.plan, self.mesh, self.variant.model)


Algorithm = Callable[[Space], Chosen]
Meshes = Callable[[Machine, int], tuple[Mesh, ...]]


def everything_allowed(model: Model, mesh: Mesh, library: Library) -> Restriction:
    """No restriction: the algorithm itself chooses."""
    return Restriction()


@dataclass(frozen=True)
class Strategy:
    """A strategy. `restrict` gives the restricted space on a mesh. Without an `algorithm` the cheapest plan in it is
    taken. A strategy with `algebra` is given all proved rules.

    `meshes` gives the meshes that its authors allow for a number of devices; None means the mesh of the prime factors.
    """

    about: str
    restrict: Restrict = everything_allowed
    algorithm: Algorithm | None = None
    meshes: Meshes | None = None
    algebra: bool = False


def no_plan(name: str, why: str) -> InputError:
    """The error E318 for an algorithm that found no plan."""
    return fail("E318", f"`{name}` found no plan: {why}")


def cheapest_fitting(space: Space, every: Sequence[Chosen]) -> Chosen:
    """The cheapest of the plans that fit the memory, or of all plans if none fits."""
    fitting = [one for one in every if space.fits(one.variant.model, one.graph, one.mesh)]
    return min(fitting or every, key=lambda one: one.cost)

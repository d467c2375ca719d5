"""What a strategy is: what it leaves of the space, the meshes that its authors allow, and how it chooses."""

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
    """Builds the problem of a model on a mesh, with what is pinned. Raises InputError where something has no choice."""

    def __call__(
        self, model: Model, mesh: Mesh, restriction: Restriction = ..., held: HeldPrice | None = ...
    ) -> Problem: ...


@dataclass(frozen=True)
class Space:
    """What an algorithm chooses from: the models that proved `rules` make, `meshes`, and the configurations, layouts
    and prices of their problems, which are those of every other strategy.

    `fits` says whether a planned model fits the memory of a device, weights being gathered again where that frees any.
    """

    model: Model
    meshes: Sequence[Mesh]
    machine: Machine
    library: Library
    rules: Sequence[RuleDecl]
    problem: Problems
    fits: Callable[[Model, PlannedGraph, Mesh], bool]

    def of(self, model: Model) -> Space:
        """The same of another model."""
        return replace(self, model=model)


@dataclass(frozen=True)
class Chosen:
    """What an algorithm chose: a model that rules made, and of its problem a plan of that cost.

    `held` is what the problem charged besides; `notes` are told of the plan.
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
    """No restriction: the algorithm chooses by itself."""
    return Restriction()


@dataclass(frozen=True)
class Strategy:
    """`restrict` says what is left of the space on a mesh. Without an `algorithm` the cheapest plan of that is taken;
    one that has `algebra` is given all proved rules.

    `meshes` are those that its authors allow for a number of devices; None is the one of the prime factors.
    """

    about: str
    restrict: Restrict = everything_allowed
    algorithm: Algorithm | None = None
    meshes: Meshes | None = None
    algebra: bool = False


def no_plan(name: str, why: str) -> InputError:
    """The diagnostic of an algorithm that found no plan."""
    return fail("E318", f"`{name}` found no plan: {why}")


def cheapest_fitting(space: Space, every: Sequence[Chosen]) -> Chosen:
    """The cheapest of some plans that fit the memory, or of all where none does."""
    fitting = [one for one in every if space.fits(one.variant.model, one.graph, one.mesh)]
    return min(fitting or every, key=lambda one: one.cost)

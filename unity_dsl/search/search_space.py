"""The space of plans that a search covers, and the options for solving a model in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..graph.layout import Layout, Mesh
from ..graph.plan import BatchDivision, Exposure, Plan
from ..graph.typed_configurations import Theorems
from ..index.library import Library
from ..machine.machine import Machine
from ..rules.shipped_rules import ShippedRules
from ..syntax.parse_rules import RuleDecl
from .layout_pins import Pin
from .meshes.near_search import BestOnMesh
from .strategies import AUTO, Strategy
from .strategy_space import algebras_for

if TYPE_CHECKING:
    from .joint.extracted_model import Algebras


@dataclass(frozen=True)
class SearchSpace:
    """The plans of a strategy on a machine that keep the `pins`. A pin is a glob of weights and values, with one kind
    for all mesh axes, or one kind per axis for meshes with as many axes.

    The `rules`, which are proved, make other models of the same meaning, as those of `algebras` do. `fusions`, proved
    as well, fuse operators of the plan if the strategy does not choose among models. Operators have the configurations
    that `theorems` proves. Values, by their path, are neither stored nor produced in the layouts that are `excluded`,
    which are of one mesh. A plan of another system is `imported` as a strategy, and `strategy` is its name. With
    `offloads`, what memory asks to recompute may be offloaded instead.
    """

    machine: Machine
    library: Library
    theorems: Theorems
    strategy: str = AUTO
    pins: Mapping[str, Pin] = field(default_factory=dict)
    rules: Sequence[RuleDecl] = ()
    fusions: Sequence[RuleDecl] = ()
    algebras: Algebras | None = None
    imported: Strategy | None = None
    excluded: Mapping[str, frozenset[Layout]] = field(default_factory=dict)
    offloads: bool = False

    def exposing(self, exposure: Exposure) -> SearchSpace:
        """The same space at prices that weight work by its exposed fractions."""
        return replace(self, machine=self.machine.exposing(exposure))

    def algebras_for(self, model: Model) -> Algebras | None:
        """The models that rules make of a model, if the strategy chooses among them."""
        if self.strategy != AUTO or model.loss is None:
            return None
        return self.algebras or algebras_for(model, self.strategy, ShippedRules((), self.library), self.rules)


@dataclass(frozen=True)
class Solving:
    """Options for solving a model. The backward pass recomputes the segments `recompute`, given by path, except for the
    last `kept_iterations` of each; if these are None, except for as many as there is room for. If `recompute` is None,
    segments are recomputed if the plan fits the memory only so, or fits it in fewer seconds.

    The search starts near the plans `known` by mesh from an earlier solution, and adds its own. If there are any, only
    the memory limit leads to other meshes. Operators are those of the plan `chosen` before, of this model or of one of
    other sizes. Plans within the memory are searched if the cheapest of all is `of_use`. With a `division` of the
    batch, the model is that of a micro-batch, and gradients of other micro-batches are held too. Unless plans are known
    to fit, their memory `counts`.
    """

    recompute: Collection[str] | None = ()
    kept_iterations: Mapping[str, int] | None = field(default_factory=dict)
    known: dict[Mesh, BestOnMesh] | None = None
    chosen: Plan | None = None
    of_use: Callable[[Plan], bool] = lambda cheapest: True
    division: BatchDivision | None = None
    counts: bool = True


FREELY = Solving()
"""Nothing recomputed, nothing known."""

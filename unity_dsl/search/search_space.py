"""What plans are searched for, on what machine and by what rules; and how a model is solved there."""

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
from .meshes.near_search import Found
from .strategies import AUTO, Strategy
from .strategy_space import algebras_for

if TYPE_CHECKING:
    from .joint.extracted_model import Algebras


@dataclass(frozen=True)
class SearchSpace:
    """The plans of a strategy on a machine, with the pins kept: globs of weights and values with a kind for all mesh
    axes, or one for each, of meshes with as many.

    The `rules`, which are proved, make other models of the same meaning, as those of `algebras` do; `fusions`, proved
    as well, fuse operators of the plan of a strategy that does not choose among models. Operators have the
    configurations that `theorems` proves. Values, by their path, are neither stored nor produced in the layouts that
    are `excluded`, which are of one mesh. A plan of another system is `imported` as a strategy, and `strategy` its
    name. What memory asks to recompute may be offloaded instead if it is `offloads`.
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
        """The same at prices that count so much of what may be hidden."""
        return replace(self, machine=self.machine.exposing(exposure))

    def algebras_for(self, model: Model) -> Algebras | None:
        """What rules make of a model, if the strategy chooses among that."""
        if self.strategy != AUTO or model.loss is None:
            return None
        return self.algebras or algebras_for(model, self.strategy, ShippedRules((), self.library), self.rules)


@dataclass(frozen=True)
class Solving:
    """How a model is solved. The backward pass runs the segments `recompute` again, by their paths, but for so many
    last iterations as are kept, if None as many as there is room for; if `recompute` is None, those for which the plan
    fits the memory, or fits it in fewer seconds.

    It starts near the plans `known` of an earlier solution, by their meshes, and adds its own; where there are any,
    only the limit of memory leads to other meshes than theirs. Operators are those of the plan `chosen` before, of this
    model or of one of other sizes. Plans within the memory are searched where the cheapest of all is `of_use`. The
    model is that of a micro-batch in a `division` of the batch, if there is one, and gradients of others are held too.
    What plans hold is counted, unless it is known to fit.
    """

    recompute: Collection[str] | None = ()
    kept_iterations: Mapping[str, int] | None = field(default_factory=dict)
    known: dict[Mesh, Found] | None = None
    chosen: Plan | None = None
    of_use: Callable[[Plan], bool] = lambda cheapest: True
    division: BatchDivision | None = None
    counts: bool = True


FREELY = Solving()
"""Nothing recomputed, nothing known."""

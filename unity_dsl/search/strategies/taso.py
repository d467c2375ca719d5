"""Strategy `taso`: substitutions for one device first, then data parallelism (Jia et al., SOSP 2019).

Cost-based backtracking over the proved rules minimises the sum of the costs of operators on one device. Its limits are
a threshold of 1.0, 1,000 changed models, and at most twice the operators. Layout within memory is not searched, as in
the authors' code.
"""

from __future__ import annotations

from dataclasses import replace

from ...written_figures import duration
from ..exact_search.bounded_search import optimise
from ..folded_solver.problem_part import everything
from ..model_variants.rewritten_model import Variant
from ..model_variants.variant_enumeration import SingleDevice
from ..search_end import ended_by
from .backtracking import Limits, backtrack
from .data_parallel import data_parallel
from .flexflow import flexflow
from .strategy import Chosen, Space, no_plan

LIMITS = Limits(threshold=1.0, budget=1_000)


def taso(space: Space) -> Chosen:
    """The model that costs least on one device by TASO's backtracking, then data parallel."""
    return in_data_parallel(space, *substituted(space, LIMITS), "taso")


def taso_then_flexflow(space: Space) -> Chosen:
    """The model that costs least on one device by TASO's backtracking, then FlexFlow's random walk."""
    variant, note = substituted(space, LIMITS)
    chosen = flexflow(space.of(variant.model))
    return replace(chosen, variant=variant, notes=(note, *chosen.notes))


def substituted(space: Space, limits: Limits) -> tuple[Variant, str]:
    """The best model on one device that backtracking finds, with a note about it."""
    alone = SingleDevice(space.machine, space.library)
    variant, whole = backtrack(Variant(space.model), space.rules, space.library, alone.seconds, limits)
    return variant, told(variant, alone.seconds(space.model), alone.seconds(variant.model), whole)


def told(variant: Variant, before: float, after: float, whole: bool) -> str:
    """A note on the seconds that substitutions save on one device."""
    ended = "" if whole else "; the search ended at its limits"
    count = len(variant.rules)
    return f"{count} substitution{'s' if count != 1 else ''}, on one device {duration(before - after)} less{ended}"


def in_data_parallel(space: Space, variant: Variant, note: str, name: str) -> Chosen:
    """The data-parallel plan of a model. Raises E309 as `data_parallel` does, E318 if the changed model has no such
    plan.
    """
    mesh = space.meshes[0]
    restriction = data_parallel(variant.model, mesh, space.library)
    with ended_by(None):
        problem = space.problem(variant.model, mesh, restriction)
        best = optimise(problem.part, everything(problem.part))
    if best.plan is None:
        raise no_plan(name, "the model that substitutions make has no plan of data parallelism")
    return Chosen(variant, problem, best.plan, best.cost, notes=(note,))

"""The plan that a search starts from: data parallelism, weights whole or in slices, whichever fits the memory.

It takes a few processor seconds, even for models whose search takes minutes. The result of the search is compared with
it, and it is the result where the search ends before it has found anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from ..machine.machine import Machine
from ..machine.mesh import build_mesh
from ..syntax.diagnostic import InputError
from .exact_search.bounded_search import optimise
from .folded_solver.problem_part import everything
from .model_variants.rewritten_model import Variant
from .strategies.data_parallel import batch_size, data_parallel
from .strategies.strategy import Chosen, Space, Strategy, no_plan
from .strategies.zero import in_slices


def first_plan(plan_of: Callable[[int], Plan], micro_batches: int | None, memory: float) -> Plan | None:
    """The plan that `plan_of` gives for a number of micro-batches. For None it is that of the whole batch; where that
    does not fit the `memory` in bytes, that of the fewest micro-batches that may. None where data parallelism does not
    fit the model, its pins or its mesh.
    """
    plan = None
    try:
        plan = plan_of(micro_batches or 1)
        if micro_batches is None and plan.warnings and plan.model.loss is not None:
            divided = plan_of(_fewest_micro_batches(plan, memory))
            return plan if divided.warnings else divided
    except InputError:  # The search tells why such a model has no plan.
        pass
    return plan


def _fewest_micro_batches(plan: Plan, memory: float) -> int:
    """The first power of two at which activations, divided by it, fit beside what is stored; 2 where none would."""
    held = plan.cost.memory
    room = memory - (held.total - held.activations)
    count = 2
    while 0 < room < held.activations / count:
        count *= 2
    return count


def starting_meshes(model: Model, meshes: Sequence[Mesh], machine: Machine) -> Sequence[Mesh]:
    """The mesh of a first plan. If several are given, it has one axis of as many devices as the batch can be divided
    over, and the other devices form an axis behind slower links.
    """
    if len(meshes) == 1:
        return meshes
    devices = meshes[0].size
    batch = gcd(batch_size(model), devices)
    shape = (devices,) if batch in {1, devices} else (devices // batch, batch)
    return (build_mesh(machine, devices, shape),)


WHOLE, SLICES = "weights whole", "weights in slices"


def _start(space: Space, kept: Sequence[str] = (WHOLE, SLICES)) -> Chosen:
    """Data parallelism over as many devices as divide the batch, with weights stored in the first of these ways that
    fits.
    """
    (mesh,), model = space.meshes, space.model
    axes: list[int] = []
    for axis in reversed(range(len(mesh.axes))):
        if batch_size(model) % mesh.degree((*axes, axis)) == 0:
            axes.append(axis)
    batch, chosen = data_parallel(model, mesh, space.library, axes), None
    for name in kept:
        problem = space.problem(model, mesh, batch if name == WHOLE else in_slices(batch, model, mesh))
        best = optimise(problem.part, everything(problem.part))
        if best.plan is not None:
            told = f"data parallelism over {mesh.degree(axes)} devices, {name}"
            chosen = Chosen(Variant(model), problem, best.plan, best.cost, notes=(told,))
            if space.fits(model, chosen.graph, mesh):
                return chosen
    if chosen is None:
        raise no_plan("data parallelism", "the model has no such plan")
    return chosen


STARTING = Strategy("the plan that a search starts from", algorithm=_start)
BOTH_WAYS = [Strategy(kept, algorithm=partial(_start, kept=(kept,))) for kept in (WHOLE, SLICES)]
"""Data parallelism with weights whole and in slices, as `data_parallel` and `zero` have them."""

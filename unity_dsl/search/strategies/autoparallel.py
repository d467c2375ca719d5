"""Strategy `autoparallel`: the integer linear programme of autoparallel (Meta, 2025; no paper: the algorithm is that of
optimize_sharding.py in github.com/meta-pytorch/autoparallel).

On a mesh of one or two axes a placement of every operator is chosen that minimises the sum of three costs: computation,
collectives between placements, and storing parameters. Each argument of each operator pays for its own collectives.
Parameters are stored in slices if that pays, so FSDP is a possible result. Repeated layers share their variables. Users
of autoparallel choose the mesh; here it is the mesh of the cheapest plan that fits the memory. Parameters have no
bounds of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.layout import Mesh
from ...machine.machine import Machine
from ...machine.mesh import all_meshes
from ...written_figures import duration
from ..folded_solver.problem_part import everything
from ..model_variants.rewritten_model import Variant
from .layout_programme import solve_programme
from .operator_sites import Assignments
from .strategy import Chosen, Space, cheapest_fitting, no_plan

SECONDS = 600.0
"""Time limit for one mesh. The best solution so far is taken even if it is not proved optimal by then."""


def autoparallel(space: Space) -> Chosen:
    """An integer linear programme over the placements of all operators, on a mesh of two axes."""
    every = list(_plans(space))
    if not every:
        raise no_plan("autoparallel", "the integer linear programme has no solution, or none in time")
    return cheapest_fitting(space, every)


def two_axes(machine: Machine, devices: int) -> tuple[Mesh, ...]:
    """The meshes of at most two axes. Raises E302."""
    return tuple(mesh for mesh in all_meshes(machine, devices) if len(mesh.axes) <= 2)


def _plans(space: Space) -> Iterator[Chosen]:
    for mesh in space.meshes:
        problem = space.problem(space.model, mesh)
        domains = everything(problem.part)
        solution = solve_programme(problem, domains, SECONDS)
        if solution is None:
            continue
        plan, cost = Assignments(problem, domains).best(solution.choice)
        if plan is not None:
            proved = "" if solution.proved else ", not proved to be the least"
            note = f"integer linear programme: {duration(solution.cost)}{proved}"
            yield Chosen(Variant(space.model), problem, plan, cost, notes=(note,))

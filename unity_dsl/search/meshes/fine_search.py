"""Local searches on fine meshes, in the neighbourhood of coarser plans, then from mesh to mesh where these are poor.

A coarse plan may tell little of the meshes that split it: 24 devices along one axis cannot cut a batch of 8, which 8 of
8 x 3 can. So the search goes on from the best mesh to its neighbours, as long as that finds cheaper plans. Axes that
are no neighbours may do what a coarse axis does: 8 devices of 2 x 8 x 4 what 8 of 8 x 8 do, and 2 x 4 what the others
do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from ...graph.layout import Mesh
from ...machine.mesh import has_moved_factor, regrouped_axes, reordered_axes
from ...rules.process_map import shared_map
from ..constants import (
    DESCENDED,
    DESCENTS,
    FINE_COMPARED,
    FINE_COMPARED_MANY,
    HOPELESS,
    MISLED,
    NOTHING,
    PROMISING,
    REGROUPED,
    SHARED,
    SMALL,
)
from ..layout_problem.starting_domains import Held
from ..search_end import check_end
from .fine_meshes import Fine, coarse_count, least_of, processes_when
from .near_search import Found, Near, Task, has_many, held_by, near_by, near_plan


@dataclass(frozen=True)
class _Local:
    """A local search on a mesh from what is held, for a plan that costs less than `below`. A plan that is held, if one
    is, is `known` to cost less than so much: what costs less than that is looked for first, as it is less.
    """

    on: Fine
    held: Held
    below: float
    known: float = inf
    reach: int = 1


def search_near(task: Task, every: Sequence[Fine], below: float) -> None:
    """Finds the best plan in the neighbourhood of coarser ones, on as many of the fine meshes that split a good mesh as
    are compared, and on others whose axes make up coarse ones. Where coarse plans are much dearer, it goes on to the
    neighbours of the best mesh. Several processes do it where it takes long; what they find does not depend on how many
    there are.
    """
    many = any(has_many(found.problem) for one in every for found in one.above)
    split = [one for one in every if least_of(one.above)[0] <= below * HOPELESS]
    compared = split[: FINE_COMPARED_MANY if many else FINE_COMPARED]
    processes = 1 if len(every) < 2 else processes_when(sum(coarse_count(one.above) for one in compared), SHARED)
    _search(task, [_compared(one, below * PROMISING) for one in compared], processes)
    if not many:
        _search(task, list(islice(_regrouped(every, below), REGROUPED)), processes)
    for _ in () if many else range(DESCENTS):
        best = min(every, key=Fine.promise, default=None)
        if best is None or best.cost >= below * MISLED:
            return
        before = best.cost
        _search(task, [local for one in every for local in _moved(one, best)], processes)
        if min(one.cost for one in every) > before * (1 - DESCENDED):
            return


def _search(task: Task, those: Sequence[_Local], processes: int) -> None:
    """Makes what is found known on its mesh, where it is cheaper than what is."""

    def search(local: _Local) -> Near | None:
        for below in sorted({min(local.known, local.below), local.below}):
            found = near_plan(task, local.on.mesh, local.held, below, rounds=1, reach=local.reach)
            if found is not None:
                return near_by(found)
        return None

    for local, near in zip(those, shared_map(search, those, processes, check_end), strict=True):
        if near is not None and near.cost <= local.on.cost:
            local.on.near = near


def _compared(one: Fine, below: float) -> _Local:
    """In the neighbourhood of coarser plans, which cost no more here."""
    return _Local(one, held_by(one.mesh, one.above), below, one.least_above * (1 + NOTHING))


def _regrouped(every: Sequence[Fine], below: float) -> Iterator[_Local]:
    """In the neighbourhood of good coarse plans, which may cost more here: on meshes that split bad ones only."""
    best = min([below, *(one.cost for one in every)])
    coarse = {found.mesh: found for one in every for found in one.above if found.best.cost <= best * HOPELESS}
    for one in every:
        if one.near is None and one.effort <= SMALL:
            held = held_apart(one.mesh, coarse.values())
            if held.chosen:
                yield _Local(one, held, best)


def held_apart(mesh: Mesh, coarse: Iterable[Found]) -> Held:
    """What coarse plans do on a mesh of which axes that are no neighbours make up theirs."""
    held = Held()
    for found in (found for found in coarse if len(found.mesh.axes) < len(mesh.axes)):
        for part_of in regrouped_axes(mesh, found.mesh):
            held.join(held_by(found.mesh, [found]).reordered(part_of))
    return held


def _moved(one: Fine, best: Fine) -> list[_Local]:
    """The plan of the best mesh, as far as a worse neighbour has it. Operators that cannot do there what they do
    here have all their choices.
    """
    assert best.near is not None, "it has a plan"
    if one.cost <= best.cost * PROMISING:
        return []
    orders = _orders(one.mesh, best.mesh)
    return [_Local(one, best.near.held.reordered(order), best.cost * PROMISING, reach=0) for order in orders]


def _orders(mesh: Mesh, other: Mesh) -> list[tuple[int, ...]]:
    """For each axis of a neighbour of a mesh, the axis there whose choices it takes over: one of the same degree where
    the axes are in another order, and itself where a factor has moved from one axis to another. Empty if the meshes are
    no neighbours.
    """
    turned = reordered_axes(mesh, other)
    same = tuple(range(len(mesh.axes))) if has_moved_factor(mesh, other) else None
    return [order for order in (turned, same) if order is not None]

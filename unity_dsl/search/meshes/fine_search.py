"""Local searches on fine meshes near coarse plans, then from mesh to mesh where coarse plans predict little.

A coarse plan may tell little of the meshes that split it: 24 devices along one axis cannot divide a batch of 8, but the
8 devices of 8 x 3 can. The search then goes on from the best mesh to its neighbours, as long as that finds cheaper
plans. A coarse axis may also correspond to axes that are not adjacent. On 2 x 8 x 4, the axis of 8 does what one axis
of 8 x 8 does, and 2 and 4 together do what the other does.
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
    FINE_BEATS_COARSE,
    FINE_COMPARED,
    FINE_COMPARED_MANY,
    NOTHING,
    PARALLEL_FROM,
    PROMISING,
    PRUNED,
    REGROUPED,
    SEARCHED_TWICE,
)
from ..layout_problem.starting_domains import KnownChoices
from ..search_end import check_end
from .fine_meshes import Fine, coarse_count, least_of, processes_when
from .near_search import BestOnMesh, Near, Task, choices_of, has_many, near_by, near_plan


@dataclass(frozen=True)
class _Local:
    """A local search on a mesh from known `choices`, for a plan that costs less than `below`. If a plan with these
    choices is `known` to cost less than some amount, the search first looks only below that, which is less work.
    """

    on: Fine
    choices: KnownChoices
    below: float
    known: float = inf
    reach: int = 1


def search_near(task: Task, every: Sequence[Fine], below: float) -> None:
    """Finds the best plans in the neighbourhood of coarser ones: on the first fine meshes that split a good mesh, and
    on others whose axes make up coarse ones. If coarse plans are much dearer, it goes on to the neighbours of the best
    mesh. Several processes do so where it takes long; the results do not depend on their number.
    """
    many = any(has_many(found.problem) for one in every for found in one.above)
    split = [one for one in every if least_of(one.above)[0] <= below * PRUNED]
    compared = split[: FINE_COMPARED_MANY if many else FINE_COMPARED]
    processes = 1 if len(every) < 2 else processes_when(sum(coarse_count(one.above) for one in compared), PARALLEL_FROM)
    _search(task, [_compared(one, below * PROMISING) for one in compared], processes)
    if not many:
        _search(task, list(islice(_regrouped(every, below), REGROUPED)), processes)
    for _ in () if many else range(DESCENTS):
        best = min(every, key=Fine.promise, default=None)
        if best is None or best.cost >= below * FINE_BEATS_COARSE:
            return
        before = best.cost
        _search(task, [local for one in every for local in _moved(one, best)], processes)
        if min(one.cost for one in every) > before * (1 - DESCENDED):
            return


def _search(task: Task, those: Sequence[_Local], processes: int) -> None:
    """Runs local searches, and keeps each result on its mesh if it costs no more than what is known there."""

    def search(local: _Local) -> Near | None:
        for below in sorted({min(local.known, local.below), local.below}):
            found = near_plan(task, local.on.mesh, local.choices, below, rounds=1, reach=local.reach)
            if found is not None:
                return near_by(found)
        return None

    for local, near in zip(those, shared_map(search, those, processes, check_end), strict=True):
        if near is not None and near.cost <= local.on.cost:
            local.on.near = near


def _compared(one: Fine, below: float) -> _Local:
    """A search in the neighbourhood of coarser plans, which cost no more here."""
    return _Local(one, choices_of(one.mesh, one.above), below, one.least_above * (1 + NOTHING))


def _regrouped(every: Sequence[Fine], below: float) -> Iterator[_Local]:
    """Searches in the neighbourhood of good coarse plans, which may cost more here: on small meshes that split bad ones
    only.
    """
    best = min([below, *(one.cost for one in every)])
    coarse = {found.mesh: found for one in every for found in one.above if found.best.cost <= best * PRUNED}
    for one in every:
        if one.near is None and one.effort <= SEARCHED_TWICE:
            choices = choices_apart(one.mesh, coarse.values())
            if choices.chosen:
                yield _Local(one, choices, best)


def choices_apart(mesh: Mesh, coarse: Iterable[BestOnMesh]) -> KnownChoices:
    """The choices of coarse plans on a mesh where axes that are not adjacent make up the coarse axes."""
    choices = KnownChoices()
    for found in (found for found in coarse if len(found.mesh.axes) < len(mesh.axes)):
        for part_of in regrouped_axes(mesh, found.mesh):
            choices.join(choices_of(found.mesh, [found]).reordered(part_of))
    return choices


def _moved(one: Fine, best: Fine) -> list[_Local]:
    """Searches from the plan of the best mesh, carried over to a worse neighbour. Operators that cannot do there what
    they do here have all their choices.
    """
    assert best.near is not None, "it has a plan"
    if one.cost <= best.cost * PROMISING:
        return []
    orders = _orders(one.mesh, best.mesh)
    return [_Local(one, best.near.choices.reordered(order), best.cost * PROMISING, reach=0) for order in orders]


def _orders(mesh: Mesh, other: Mesh) -> list[tuple[int, ...]]:
    """For each axis of a mesh, the axis of a neighbouring mesh whose choices it takes over: one of the same degree if
    the axes are reordered, and the same axis if a factor has moved. Empty if the meshes are no neighbours.
    """
    turned = reordered_axes(mesh, other)
    same = tuple(range(len(mesh.axes))) if has_moved_factor(mesh, other) else None
    return [order for order in (turned, same) if order is not None]

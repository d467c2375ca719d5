"""Local searches on fine meshes: next to the plans of coarser ones, then next to the best plan of a mesh like it.

A coarse plan may tell little of the meshes that split it: 24 devices along one axis cannot cut a batch of 8, which 8 of
8 x 3 can. So the search goes on from mesh to mesh, as long as that finds cheaper plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf

from ...graph.layout import Mesh
from ...machine.mesh import has_moved_factor, reordered_axes
from ...rules.process_map import lasting_processes
from ..constants import (
    DESCENDED,
    DESCENTS,
    FINE_COMPARED,
    FINE_COMPARED_MANY,
    FURTHER,
    FURTHER_ROUNDS,
    HOPELESS,
    LARGE,
    LOCAL_ROUNDS,
    MISLED,
    NOTHING,
    PROMISING,
    REGROUPED,
    SHARED,
    SMALL,
    WIDER,
)
from ..search_end import check_end
from .fine_meshes import (
    Fine,
    Local,
    coarse_count,
    compared_search,
    further_search,
    least_of,
    moved_search,
    processes_when,
    regrouped_search,
)
from .near_search import Near, Task, has_many, near_by, near_plan

Searched = Callable[[Iterable[tuple[Fine, Local]]], None]
"""Makes what local searches of meshes find known there, where it is cheaper than what is."""


def search_near(task: Task, every: Sequence[Fine], below: float) -> None:
    """Searches every fine mesh that splits a good one next to the plans there, goes on from the best to those beside it
    as long as that finds cheaper plans, and from the best of all on their meshes. Several processes do it where it
    takes long; what they find does not depend on how many there are.
    """
    many = any(has_many(found.problem) for one in every for found in one.above)
    split = [one for one in every if least_of(one.above)[0] <= below * HOPELESS]
    compared = split[: FINE_COMPARED_MANY if many else FINE_COMPARED]
    processes = 1 if len(every) < 2 else processes_when(sum(coarse_count(one.above) for one in compared), SHARED)

    def search(local: Local) -> Near | None:
        for below in sorted({min(local.known, local.below), local.below}):
            found = near_plan(task, local.mesh, local.held, below, rounds=local.rounds, reach=local.reach)
            if found is not None:
                return near_by(found)
        return None

    with lasting_processes(search, processes, check_end) as searched:

        def each(those: Iterable[tuple[Fine, Local]]) -> None:
            asked = list(those)
            found = searched([(one.mesh, local) for one, local in asked])
            for (one, _), near in zip(asked, found, strict=True):
                if near is not None and near.cost <= one.cost:
                    one.near = near

        each((one, compared_search(one, below * PROMISING)) for one in compared)
        misled = 0.0 if many else below * MISLED
        _move(every, misled, each)
        if not many and _regroup(every, below, each):
            _move(every, misled, each)
        best = min((one.cost for one in every), default=inf)
        good = [one for one in every if one.near is not None and one.cost <= best * PROMISING]
        good.sort(key=Fine.promise)
        gained = [one for one in good[:FURTHER] if not one.is_crowded and one.has_gained(NOTHING)]
        each((one, further_search(one, FURTHER_ROUNDS, 1)) for one in gained)
        large = [] if many else [one for one in good if one.effort > LARGE][:WIDER]
        each((one, further_search(one, LOCAL_ROUNDS, 2)) for one in large if not one.is_crowded)


def _move(every: Sequence[Fine], misled: float, each: Searched) -> None:
    """Takes the best plan to meshes that were not compared and have its axes in another order. Where it costs less than
    `misled`, a descent over meshes: to all worse ones beside the best, as long as one of them has a better plan.
    """
    for _ in range(DESCENTS):
        best = min(every, key=Fine.promise, default=None)
        if best is None or best.near is None:
            return
        before = best.near.cost
        descends = before < misled
        others = [one for one in every if one.near is None or (descends and one.cost > before * PROMISING)]
        each(
            (one, moved_search(one, best, order)) for one in others for order in _orders(one.mesh, best.mesh, descends)
        )
        if not descends or min(one.cost for one in every) > before * (1 - DESCENDED):
            return


def _regroup(every: Sequence[Fine], below: float, each: Searched) -> bool:
    """Takes good coarse plans to meshes that split bad ones only, where axes that are no neighbours do what a coarse
    axis does: 8 devices of 2 x 8 x 4 what 8 of 8 x 8 do, and 2 x 4 around them what the others do. Whether that is
    better than all that is known.
    """
    best = min([below, *(one.cost for one in every)])
    coarse = {found.mesh: found for one in every for found in one.above if found.best.cost <= best * HOPELESS}
    left = [one for one in every if one.near is None and one.effort <= SMALL]
    searches = ((one, regrouped_search(one, coarse.values(), best)) for one in left)
    asked = list(islice(((one, local) for one, local in searches if local is not None), REGROUPED))
    each(asked)
    return any(one.near is not None for one, _ in asked)


def _orders(mesh: Mesh, other: Mesh, moved: bool) -> list[tuple[int, ...]]:
    """For each axis of a mesh beside another one that which does there what it is to do: one of the same degree where
    the axes are in another order, and itself where a factor has moved from one axis to another, if that counts. None
    where the mesh is not beside it.
    """
    turned = reordered_axes(mesh, other)
    same = tuple(range(len(mesh.axes))) if moved and has_moved_factor(mesh, other) else None
    return [order for order in (turned, same) if order is not None]

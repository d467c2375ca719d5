"""The tasks of series of slices, which bodies read and make one by one: views of a tensor, and a stacked tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import Series
from .collective_tasks import add_copy
from .conversion_tasks import Variables
from .local_tensors import Cotangents, Local, Recorded


def unbound(around: Variables, series: Series, whole: Local, count: int) -> list[Local]:
    """Views of a tensor's slices. Their gradients are stacked when all have arrived."""
    program, parts = around.program, [Local(whole.bytes // count, whole.storage, whole.moves) for _ in range(count)]
    if whole.moves:
        place = around.path + series.whole.name

        def stack(outgoing: Cotangents) -> Cotangents:
            given = [storage for storage in outgoing if storage is not None]
            return [add_copy(program.tasks, "stack", place, whole.bytes, program.prices.machine, given)]

        program.backward.record(Recorded((whole,), tuple(parts), (), stack))
    return parts


def stacked(around: Variables, series: Series, parts: Sequence[Local]) -> Local:
    """A new tensor that stacks slices."""
    program, count, place = around.program, sum(part.bytes for part in parts), around.path + series.whole.name
    given = [part.storage for part in parts]
    whole = Local(
        count,
        add_copy(program.tasks, "stack", place, count, program.prices.machine, given),
        any(part.moves for part in parts),
    )
    program.tasks.hold([whole.storage])
    around.name([whole.storage])
    program.tasks.drop(given)
    if whole.moves:

        def unbind(outgoing: Cotangents) -> Cotangents:
            (arrived,) = outgoing
            return [arrived for part in parts if part.moves]

        moving = tuple(part for part in parts if part.moves)
        program.backward.record(Recorded(moving, (whole,), (), unbind))
    return whole

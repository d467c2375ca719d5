"""Which weights a function gathers together, when it starts these gathers, and where it waits for them.

While an iteration runs, the weights of the next one are prefetched. The last iteration prefetches those of operators
after the loop. The gathers of the model's own operators start before the first operator, and each operator waits for
its own weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..graph.gathered_weights import GatheredWeight, Steps
from ..graph.plan import PlannedNode, PlannedSegment
from .ir import AwaitGathers, Convert, Loop, StartGathers, Tensor
from .values import Values

Loops = Callable[[PlannedSegment], Loop]
"""A segment with its bodies."""


def add_gathers(function: Values, steps: Sequence[PlannedNode], following: Steps, loop: Loops) -> None:
    """Gathers the weights that operators read. In the model's own function, all gathers that have not started before
    start here, as do the first gathers of a loop that follows.
    """
    own = not function.path and not function.detached
    placed, announced = any(step.placement for step in steps), function.announced
    entering = [loop(step) for step in function.weights.entered(following)] if own else []
    starts, begun = list[Convert](), list[AwaitGathers]()
    for gathers in _gathers(function, steps):
        if announced and gathers[0].parameter:
            function.announced = ()
            begun.append(AwaitGathers(announced, announced))
        elif own and gathers[0].parameter and not placed:
            starts += _apart(function, steps, gathers, at_once=not entering)
        else:
            function.add_awaited(AwaitGathers(gathers))
        if begun and not own:
            function.add_awaited(begun.pop())
    if starts or entering:
        function.instructions.append(StartGathers(tuple(starts), tuple(entering)))
    for awaited in begun:
        function.add_awaited(awaited)


def announce(function: Values, following: Steps) -> tuple[Convert, ...]:
    """The weights with gradients in buckets that operators after a loop gather. The last iteration of the loop
    prefetches them.
    """
    function.announced = next((gathers for gathers in _gathers(function, following) if gathers[0].parameter), ())
    return function.announced


def _gathers(function: Values, steps: Iterable[PlannedNode | PlannedSegment]) -> list[tuple[Convert, ...]]:
    """The weights that operators among these steps read gathered, in two groups: those whose gradients are summed in
    buckets, and the others.
    """
    if function.detached:
        return []
    return [
        tuple(_gather(function, w) for w in weights) for weights in function.weights.together(function.planned, steps)
    ]


def _gather(function: Values, weight: GatheredWeight) -> Convert:
    held, value = function.held[weight.value.name], weight.value
    stored = held.stored or held.tensors[held.produced]
    made, conversion = Tensor(value, weight.gathered, value.dtype), weight.conversion
    return Convert(stored, made, weight.stored, conversion, conversion.ends_in_sum)


def _apart(
    function: Values, steps: Sequence[PlannedNode], gathers: tuple[Convert, ...], *, at_once: bool
) -> tuple[Convert, ...]:
    """The gathers that start before the first operator, all together; each operator waits for its own. None start if
    the first operator reads all of them and may gather them itself (`at_once`).
    """
    wanted = {gather.value.name for gather in gathers}
    read = (sum(value.name in wanted for value in step.node.arguments) for step in steps)
    counts = [count for count in read if count]
    first = gathers[0].value in steps[0].node.arguments
    starts = () if first and at_once and len(counts) == 1 else gathers
    begin = 0
    for count in counts:
        awaited = AwaitGathers(gathers[begin : begin + count], starts)
        function.ungathered.update((gather.value.name, awaited) for gather in awaited.gathers)
        begin += count
    return starts

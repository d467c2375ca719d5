"""How large the buckets are in which a plan sums gradients over devices: by simulated steps, a few of them.

Large buckets are few collectives, each of which waits for the last gradient in it; of small ones more is done when the
backward pass ends, and every collective has latencies and a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..graph.layout_conversion import BUCKET_MIB
from ..graph.plan import Plan
from .overlapping import GAIN

EXPOSED = 10 * GAIN
"""Of the simulated time: where less of the sums is exposed, no other size saves `GAIN`, of all plans looked at."""
DOUBLED = 6
"""Times that a size is doubled at most."""

Tried = tuple[float, int]
"""The seconds of a simulated step, and the number of its sums of gradients."""


def shortest_size(first: int, simulated: Callable[[int], Tried], kinds: int) -> int:
    """Of the sizes in MiB that are tried the one with the fewest seconds, the first of equals. The first size is
    halved, down to 0, as long as that saves `GAIN`, or leaves the buckets as they are. Where it saves nothing the size
    is doubled, as long as there are more sums than `kinds` of them.
    """
    known = {first: simulated(first)}

    def walk(sizes: Iterable[int], fewest: int) -> int:
        best, sums = first, known[first][1]
        for size in sizes:
            if sums <= fewest:
                break
            before = sums
            seconds, sums = known[size] = simulated(size)
            if seconds < (1 - GAIN) * known[best][0]:
                best = size
            elif sums != before:
                break
        return min(known, key=lambda size: known[size][0]) if best != first else first

    smaller = walk([first >> times for times in range(1, first.bit_length() + 1)], 0)
    return smaller if smaller != first else walk([first << times for times in range(1, DOUBLED + 1)], kinds)


def describe_buckets(plan: Plan, part: float) -> str:
    """What is told of a plan with buckets of its own size, whose step takes this part of the time that it takes with
    those of the usual one.
    """
    return f"{bucket_words(plan)}, instead of {BUCKET_MIB} MiB ({part:.3f} x step time)"


def bucket_words(plan: Plan) -> str:
    """How gradients are summed, where the size of buckets is not the usual one; else empty."""
    if plan.passes.bucket_mib == BUCKET_MIB:
        return ""
    if plan.passes.bucket_mib == 0:
        return "no bucketing of gradients"
    return f"gradient buckets of {plan.passes.bucket_mib} MiB"

"""What of a plan may run at the same time: repeats in turns, gradients of weights while cotangents travel, parts of
products beside what they read and make.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.chunked_products import chunks_of_plan
from ..graph.interleaved_repeats import independent_repeats, side_by_side, turns_behind
from ..graph.plan import Plan
from ..index.library import Library

GAIN = 0.001
"""Of the simulated time: what runs at the same time must save more."""

CHUNKS = (8, 2)
"""Parts in which results are sent, the first that make a step shorter: of eight the last one, which nothing hides, is
an eighth; two are the fewest launches, and the largest products.
"""


def in_turns(plan: Plan) -> Plan:
    """The plan with all repeats in turns that do not need each other; as it is where there are none."""
    sets = independent_repeats(plan)
    return side_by_side(plan, sets) if sets else plan


def staggers(plan: Plan) -> Sequence[int]:
    """Those of a plan with repeats in turns that are tried: every second one begins a turn later, or each a turn after
    the one behind it, of three or of all.
    """
    most = max(map(len, plan.passes.interleaved), default=1)
    return sorted({2, 3, most} & {*range(2, most + 1)})


def describe_turns(plan: Plan, part: float) -> str:
    """What is told of a plan with repeats in turns, whose step takes this part of the time that it takes without."""
    named = "; ".join(", ".join(f"`{name}`" for name in names) for names in plan.passes.interleaved)
    return f"interleaved execution of {named}: one computes while another communicates ({part:.2f} x step time)"


def describe_stagger(plan: Plan, part: float) -> str:
    """What is told of a plan with staggered repeats, whose step takes this part of the time that it takes without."""
    behind = "; ".join(
        ", ".join(map(str, turns_behind(len(names), plan.passes.stagger))) for names in plan.passes.interleaved
    )
    return f"skewed start of these repeats, by {behind} iterations ({part:.3f} x step time)"


def describe_delays(plan: Plan, part: float) -> str:
    """What is told of a plan with delayed gradients, whose step takes this part of the time that it takes without."""
    return f"weight gradients are deferred to overlap communication ({part:.3f} x step time)"


def describe_chunks(plan: Plan, part: float, library: Library) -> str:
    """What is told of a plan with products in chunks, whose step takes this part of the time that it takes without."""
    return f"decomposed matmul: {chunked_words(plan, library)} ({part:.3f} x step time)"


def chunked_words(plan: Plan, library: Library) -> str:
    """Which products of a plan run in chunks, and how; empty where none does."""
    reading, sent = dict[str, None](), dict[str, None]()
    for path, found in chunks_of_plan(plan, library, plan.passes.chunks) if plan.passes.chunks > 1 else ():
        (sent if found.reads is None else reading)[f"`{path}{found.product.step.node.name}`"] = None
    told = [
        *([f"{', '.join(reading)}: blocks of what is gathered are multiplied as they arrive"] if reading else []),
        *([f"{', '.join(sent)}: a part of {plan.passes.chunks} is summed while the next is computed"] if sent else []),
    ]
    return "; ".join(told)

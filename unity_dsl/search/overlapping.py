"""What of a plan may run at the same time: repeats in turns, gradients of weights while cotangents travel."""

from __future__ import annotations

from ..graph.interleaved_repeats import independent_repeats, side_by_side
from ..graph.plan import Plan

GAIN = 0.001
"""Of the simulated time: what runs at the same time must save more."""


def in_turns(plan: Plan) -> Plan:
    """The plan with all repeats in turns that do not need each other; as it is where there are none."""
    sets = independent_repeats(plan)
    return side_by_side(plan, sets) if sets else plan


def describe_turns(plan: Plan, part: float) -> str:
    """What is told of a plan with repeats in turns, whose step takes this part of the time that it takes without."""
    named = "; ".join(", ".join(f"`{name}`" for name in names) for names in plan.interleaved)
    told = f"iterations of {named} run in turns: one computes while values of another travel;"
    return f"{told} so a step is simulated to take {part:.2f} of the time"


def describe_delays(plan: Plan, part: float) -> str:
    """What is told of a plan with delayed gradients, whose step takes this part of the time that it takes without."""
    told = "gradients of weights are computed while cotangents travel, where there are any;"
    return f"{told} so a step is simulated to take {part:.3f} of the time"

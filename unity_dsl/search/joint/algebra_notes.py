"""Notes of a plan about the rules that made its model: what they did, and where a bound was met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...graph.plan import Plan
from .extracted_model import Algebra
from .joint_search import JointOptimum


def describe_algebra(
    algebra: Algebra, found: JointOptimum | None, best: Plan, searched: Sequence[str]
) -> Iterator[str]:
    """What a reader of a plan has to know; `searched` was told of the search of the model that rules made."""
    if found is None:
        yield "no rule fits the model"
        return
    count = algebra.extractions
    times = Counter(used.rule for used in best.rules)
    named = ", ".join(f"`{rule}`" + (f" {number} times" if number > 1 else "") for rule, number in times.items())
    did = f"rules applied: {named}" if best.rules else "no rule makes the model cheaper"
    yield f"{did}; {count} models that rules make were compared with their layouts, on the mesh of the plan"
    if not found.exact:
        gap = 100 * (1 - found.bound / best.cost.seconds)
        yield (
            f"not proved optimal: none of these is more than {gap:.2g} % cheaper"
            if found.bound > 0
            else ("not proved optimal: no bound was found for all of these")
        )
    yield from algebra.limits

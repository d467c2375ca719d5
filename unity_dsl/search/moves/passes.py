"""Passes of a plan, switched one at a time: interleaved execution, skewed start, deferred weight gradients, decomposed
matmul, bucket size.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ...graph.chunked_products import chunks_of_plan
from ...graph.deferred_gradients import defers_gradients
from ...graph.interleaved_repeats import independent_repeats, side_by_side
from ...graph.layout_conversion import BUCKET_MIB
from ...graph.plan import Plan
from ...simulation.exposure import exposed_backwards, exposed_sums, exposed_values
from ...simulation.timeline import Timeline
from ..constants import DOUBLED, GAIN, PARTS, WORTH
from ..evaluate import Evaluator
from ..search_end import check_end

Switched = tuple[float, Plan]
"""A lower bound on the step with another setting of one pass, and the plan with that setting."""


def climbed(plan: Plan, evaluator: Evaluator, below: float = inf) -> Plan:
    """The plan with the settings of passes that hill climbing finds, the most promising first. Settings that cannot
    reach a step of less than `below` seconds are left out. Raises SearchEnded.
    """
    tried = {plan.passes}
    while True:
        seconds = evaluator.seconds(plan)
        most = (1 - WORTH) * min(seconds, below)
        for bound, other in sorted(_switched(plan, evaluator), key=lambda one: one[0]):
            if other.passes in tried or bound >= most:
                continue
            check_end()
            tried.add(other.passes)
            other = _other_buckets(plan, other, evaluator)
            tried.add(other.passes)
            if evaluator.seconds(other) < (1 - GAIN) * seconds and (plan.warnings or evaluator.fits(other)):
                plan = other
                break
        else:
            return plan


def inherited(plan: Plan, like: Plan) -> Plan:
    """The plan with the overlap passes of another one, as far as they apply to it."""
    passes = like.passes
    other = plan.with_passes(
        deferred_gradients=passes.deferred_gradients, chunks=passes.chunks, bucket_mib=passes.bucket_mib
    )
    if passes.interleaved:
        other = interleaving(other)
        other = other.with_passes(skew=passes.skew if other.passes.interleaved == passes.interleaved else 1)
    return other


def interleaving(plan: Plan) -> Plan:
    """The plan with interleaved execution of all repeats that do not depend on each other; unchanged where there are
    none.
    """
    sets = independent_repeats(plan)
    return side_by_side(plan, sets) if sets else plan


def _switched(plan: Plan, evaluator: Evaluator) -> Iterator[Switched]:
    timeline, passes = evaluator.timeline(plan), plan.passes
    seconds, values = timeline.seconds, exposed_values(timeline)
    if values > GAIN:
        yield from _of_values(plan, evaluator, timeline, values)
    if not passes.interleaved and (other := interleaving(plan)) is not plan:
        yield seconds - timeline.exposed(), other
    size, least = passes.bucket_mib, seconds * (1 - exposed_sums(timeline))
    if size > 0:
        yield least, plan.with_passes(bucket_mib=min(size, BUCKET_MIB) // 2)
    if size < BUCKET_MIB << DOUBLED:
        yield least, plan.with_passes(bucket_mib=max(size, BUCKET_MIB) * 2)


def _of_values(plan: Plan, evaluator: Evaluator, timeline: Timeline, values: float) -> Iterator[Switched]:
    """Settings of passes that overlap conversions of values."""
    seconds, passes = timeline.seconds, plan.passes
    if not passes.deferred_gradients:
        back = exposed_backwards(timeline)
        if back > GAIN and defers_gradients(plan, evaluator.library):
            yield seconds * (1 - back), plan.with_passes(deferred_gradients=True)
    elif passes.interleaved:
        yield seconds * (1 - values), plan.with_passes(deferred_gradients=False)
    if passes.interleaved:
        most = max(map(len, passes.interleaved))
        for skew in sorted({1, 2, 3, most} & {*range(1, most + 1)} - {passes.skew}):
            yield seconds * (1 - values), plan.with_passes(skew=skew)
    if passes.chunks == 1:
        products = list(chunks_of_plan(plan, evaluator.library, min(PARTS)))
        paths = {path + product.value.name for path, product in products}
        part = exposed_values(timeline, paths=paths) if paths else 0.0
        if part > GAIN:
            sums = any(product.reads is None for _, product in products)
            for count in PARTS if sums else PARTS[:1]:  # makes no difference to products of what is gathered
                yield seconds * (1 - part), plan.with_passes(chunks=count)


def _other_buckets(plan: Plan, other: Plan, evaluator: Evaluator) -> Plan:
    """The plan with a bucket size that changes the step: if a size does not, the next one in the same direction."""
    before, size = plan.passes.bucket_mib, other.passes.bucket_mib
    while size not in (before, 0) and size < BUCKET_MIB << DOUBLED:
        if abs(evaluator.seconds(other) / evaluator.seconds(plan) - 1) > GAIN:
            break
        size = size // 2 if size < before else size * 2
        other = other.with_passes(bucket_mib=size)
    return other

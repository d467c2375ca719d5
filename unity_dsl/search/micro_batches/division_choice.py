"""Chooses in how many micro-batches a step runs its batch: as few as memory asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from ...graph.plan import Plan
from ...machine.byte_count import describe_bytes
from ...machine.machine import Machine
from ...syntax.diagnostic import InputError
from ..memory_limit.stored_bytes import StoredBytes
from ..search_end import SearchEnded, check_end, why_ended

NEAR = 0.01
"""Of a step's seconds: where a plan takes so little longer than the cheapest of all, no others are tried."""

_ASKED, _NONE, _UNTRIED = "memory asks for micro-batches", "no number of micro-batches", "micro-batches were"
_USELESS = "micro-batches would not help"
_TOLD = (_ASKED, _NONE, _UNTRIED, _USELESS)


def cheapest_division(plan_of: Callable[[int, float], Plan], machine: Machine, weights: StoredBytes) -> Plan:
    """The plan that takes the least of those that fit the machine's memory, for a batch run whole or as 2, 4, 8, …
    micro-batches; `plan_of` searches for a number of them, within the memory only where the cheapest plan of that
    number takes less than so many seconds. All keep the `weights`.

    More than one are tried where the cheapest plan of the whole batch does not fit, and as long as the batch can be
    divided and a plan may become cheaper by it: not once a plan fits that is the cheapest for its number, or takes next
    to nothing longer than the cheapest of all, or one before takes as little, with a limit or without. Numbers are left
    out with which none fits, as the plan of fewer micro-batches that holds the least tells. Where none fits at all, the
    plan of the whole batch.
    """
    whole = plan_of(1, inf)
    if whole.unlimited_seconds is None or whole.model.loss is None:
        return whole
    stored = weights.least_on_any(whole.mesh.size)
    if stored > machine.memory_bytes:
        share = describe_bytes(stored)
        return _noted(whole, f"{_USELESS}: weights and the optimizer take {share} a device by themselves")
    tried, why = [whole], ""
    while not _found(tried):
        count = _next_number(tried[-1], stored, machine)
        try:
            check_end()
            tried.append(plan_of(count, min((plan.cost.seconds for plan in _fitting(tried)), default=inf)))
        except InputError as error:
            why = f"{count} cannot be: {error.diagnostic.message}"
            break
        except SearchEnded:
            why = "the search was ended"
            break
    best = min(_fitting(tried), key=lambda plan: plan.cost.seconds, default=whole)
    return replace(_noted(best, _describe(tried, why)), ended=best.ended or why_ended())


def _fitting(tried: Sequence[Plan]) -> list[Plan]:
    return [plan for plan in tried if not plan.warnings]


def _found(tried: Sequence[Plan]) -> bool:
    """Whether more micro-batches would not make a step cheaper."""
    *before, last = tried
    if last.warnings:
        return bool(_fitting(before))
    unlimited = tried[0].unlimited_seconds
    assert unlimited is not None, "memory is the limit"
    slower = any(plan.cost.seconds <= last.cost.seconds for plan in _fitting(before))
    return last.unlimited_seconds is None or slower or last.cost.seconds <= (1 + NEAR) * unlimited


def _next_number(plan: Plan, stored: float, machine: Machine) -> int:
    """The next larger power of two of micro-batches with which a plan may fit.

    With k times as many a plan holds at least a k-th of what it holds besides the `stored` bytes, which stay: if the
    least of all plans hold T bytes, that is stored + (T - stored) / k.
    """
    count = 2 * plan.micro_batches
    if plan.least_bytes is not None:
        besides = (plan.least_bytes - stored) * plan.micro_batches
        while stored + besides / count > machine.memory_bytes:
            count *= 2
    return count


def _describe(tried: Sequence[Plan], why: str) -> str:
    if len(tried) == 1:
        return f"{_UNTRIED} not tried: {why or 'a whole batch takes next to nothing longer within the memory'}"
    least = min((plan.cost.seconds for plan in _fitting(tried)), default=inf)
    told = [f"{plan.micro_batches} {_outcome(plan, least)}" for plan in tried]
    found = f"{_ASKED}; of those tried" if least < inf else f"{_NONE} was found to fit:"
    return f"{found} {', '.join(told)}" + (f"; {why}" if why else "")


def _outcome(plan: Plan, least: float) -> str:
    """What a number of micro-batches takes, where the plan of `least` seconds fits."""
    if not plan.warnings:
        return f"takes {_duration(plan.cost.seconds)}"
    unlimited = plan.unlimited_seconds
    if unlimited is not None and unlimited >= least:
        return f"would take {_duration(unlimited)} without a limit"
    return "does not fit"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def division_notes(plan: Plan) -> tuple[str, ...]:
    """The notes of a plan that tell how its number of micro-batches was chosen."""
    return tuple(note for note in plan.notes if note.startswith(_TOLD))


def _noted(plan: Plan, note: str) -> Plan:
    """The plan with a note, which is told with its warnings as well."""
    warnings = tuple(replace(found, help=f"{found.help}; {note}") for found in plan.warnings)
    return replace(plan, notes=(*plan.notes, note), warnings=warnings)

"""Chooses the number of micro-batches in which a step runs its batch: as few as memory asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from ...graph.plan import Advice, Exposure, Plan
from ...machine.byte_count import describe_bytes
from ...machine.machine import Machine
from ...syntax.diagnostic import InputError
from ...written_figures import duration
from ..constants import CLOSE_DIVISION, NEAR_FREE
from ..memory_limit.stored_bytes import StoredBytes
from ..search_end import SearchEnded, check_end, why_ended

if TYPE_CHECKING:
    from ..improve import Search, Start, Started


_ASKED, _NONE, _UNTRIED = "memory asks for micro-batches", "no number of micro-batches", "micro-batches were"
_USELESS = "micro-batches would not help"
_TOLD = (_ASKED, _NONE, _UNTRIED, _USELESS)


def in_cheapest_division(search: Search, weights: StoredBytes) -> Start:
    """A start of a search in the number of micro-batches that `cheapest_division` finds."""

    def start(exposure: Exposure, move: str) -> Started:
        return _started(search, weights, exposure, move)

    return start


def _started(search: Search, weights: StoredBytes, exposure: Exposure, move: str) -> Started:
    known: dict[int, Started] = {}
    tried = set[int]()

    def plan_of(count: int, below: float) -> Plan:
        known[count] = search.solver.start(count, exposure, below)
        return known[count][0].plan

    def seconds(plan: Plan) -> float:
        point, others = known[plan.micro_batches]
        told = f"{move}, {plan.micro_batches} micro-batches" if plan.micro_batches > 1 else move
        known[plan.micro_batches] = search.tried(point, told) or point, others
        tried.add(plan.micro_batches)
        return search.seconds(known[plan.micro_batches][0])

    def kept_bytes(plan: Plan) -> float:
        return search.evaluator.budget(plan).held_if_kept(plan).total

    best = cheapest_division(plan_of, search.solver.space.machine, weights, seconds, kept_bytes)
    point, others = known[best.micro_batches]
    if best.micro_batches not in tried:
        point = search.tried(point, move) or point
    search.division_notes = search.division_notes or division_notes(best)
    plan = replace(point.plan, warnings=best.warnings, unlimited=best.unlimited)
    return search.amended(point, replace(point, plan=plan)), others


def cheapest_division(
    plan_of: Callable[[int, float], Plan],
    machine: Machine,
    weights: StoredBytes,
    seconds: Callable[[Plan], float] = lambda plan: plan.cost.seconds,
    kept_bytes: Callable[[Plan], float] = lambda plan: plan.cost.memory.total,
) -> Plan:
    """The plan that takes the fewest `seconds` of those that fit the machine's memory, for a batch run whole or as 2,
    4, 8, … micro-batches. `plan_of` searches for a plan with a number of micro-batches; it searches within the memory
    only where the cheapest plan of that number takes less than so many seconds. All plans keep the `weights`.
    `kept_bytes` are those of a plan if it recomputed nothing.

    More than one micro-batch is tried where the cheapest plan of the whole batch does not fit, as long as the batch can
    be divided and a plan may become cheaper by it. No further number is tried once a plan fits that is the cheapest for
    its number, or takes next to nothing longer than the cheapest of all. The same holds once an earlier plan takes as
    little, with a limit or without. Numbers are left out with which none fits, as the plan of fewer micro-batches that
    holds the least tells. After a plan that recomputes iterations, the numbers up to the one that needs no
    recomputation are left out as well. Each micro-batch more takes the same time, and makes room for as many more
    iterations, so a number between is not better than both. If none fits at all, the plan is that of the whole batch.
    """
    whole = plan_of(1, inf)
    if whole.unlimited_seconds is None or whole.model.loss is None:
        return whole
    stored = weights.least_on_any(whole.mesh.size)
    if stored > machine.memory_bytes:
        share = describe_bytes(stored)
        return _noted(whole, f"{_USELESS}: weights and the optimizer take {share} a device by themselves")
    tried, why, taken = [whole], "", dict[int, float]()

    def time(plan: Plan) -> float:
        if plan.micro_batches not in taken:
            # A cost counts what a step overlaps, so costs are compared with costs, too.
            known = (max(one.cost.seconds, taken[one.micro_batches]) for one in tried if one.micro_batches in taken)
            far = plan.cost.seconds > CLOSE_DIVISION * min(known, default=inf)
            taken[plan.micro_batches] = plan.cost.seconds if far else seconds(plan)
        return taken[plan.micro_batches]

    while not _found(tried, time):
        below = min(map(time, _fitting(tried)), default=inf)
        further = _first_possible(plan_of, _next_numbers(tried[-1], stored, machine, kept_bytes), below)
        if isinstance(further, str):
            why = further
            break
        tried.append(further)
    best = min(_fitting(tried), key=time, default=whole) if len(tried) > 1 else whole
    best = replace(best, unlimited=whole.unlimited, ended=best.ended or why_ended())
    return _noted(best, _describe(tried, why, time))


def _first_possible(plan_of: Callable[[int, float], Plan], numbers: Iterable[int], below: float) -> Plan | str:
    """The plan of the first number of micro-batches that the batch can be divided into, or why there is none."""
    why = ""
    for count in numbers:
        try:
            check_end()
            return plan_of(count, below)
        except InputError as error:
            why = why or f"{count} cannot be: {error.diagnostic.message}"
        except SearchEnded:
            return "the search was ended"
    return why


def _fitting(tried: Sequence[Plan]) -> list[Plan]:
    return [plan for plan in tried if not plan.warnings]


def _found(tried: Sequence[Plan], time: Callable[[Plan], float]) -> bool:
    """Whether more micro-batches would not make a step cheaper."""
    *before, last = tried
    if last.warnings:
        return bool(_fitting(before))
    unlimited = tried[0].unlimited_seconds
    assert unlimited is not None, "memory is the limit"
    if last.unlimited_seconds is None or last.cost.seconds <= (1 + NEAR_FREE) * unlimited:
        return True
    return any(time(plan) <= time(last) for plan in _fitting(before))


def _next_numbers(plan: Plan, stored: float, machine: Machine, kept_bytes: Callable[[Plan], float]) -> Iterator[int]:
    """The next larger power of two of micro-batches with which a plan may fit. After a plan that fits and recomputes
    iterations, it is the number with which nothing would be recomputed, then those below it.

    With k times as many, a plan holds at least a k-th of what it holds besides the `stored` bytes, which stay. If all
    plans hold at least T bytes, that is stored + (T - stored) / k.
    """
    first = count = 2 * plan.micro_batches
    held = plan.least_bytes if plan.warnings else kept_bytes(plan) if plan.passes.recomputed else None
    if held is not None:
        besides = (held - stored) * plan.micro_batches
        while stored + besides / count > machine.memory_bytes:
            count *= 2
    while count > first and not plan.warnings:
        yield count
        count //= 2
    yield count


def _describe(tried: Sequence[Plan], why: str, time: Callable[[Plan], float]) -> str:
    if len(tried) == 1:
        return f"{_UNTRIED} not tried: {why or 'a whole batch takes next to nothing longer within the memory'}"
    least = min(map(time, _fitting(tried)), default=inf)
    before = [bool(_fitting(tried[:number])) for number in range(len(tried))]
    told = [
        f"{plan.micro_batches} {_outcome(plan, least, known, time)}" for plan, known in zip(tried, before, strict=True)
    ]
    found = f"{_ASKED}; of those tried" if least < inf else f"{_NONE} was found to fit:"
    return f"{found} {', '.join(told)}" + (f"; {why}" if why else "")


def _outcome(plan: Plan, least: float, known: bool, time: Callable[[Plan], float]) -> str:
    """The words for a number of micro-batches, where the plan of `least` seconds fits. A plan that fits may have been
    `known` before.
    """
    if not plan.warnings:
        return f"takes {duration(time(plan))}"
    unlimited = plan.unlimited_seconds
    if unlimited is not None and unlimited >= least:
        return f"would take {duration(unlimited)} without a limit"
    return "would take longer to fit" if known and plan.least_bytes is None else "does not fit"


def division_notes(plan: Plan) -> tuple[str, ...]:
    """The notes of a plan that tell how its number of micro-batches was chosen."""
    return tuple(note for note in plan.notes if note.startswith(_TOLD))


def _noted(plan: Plan, note: str) -> Plan:
    """The plan with a note, which its warnings repeat."""
    warnings = tuple(replace(found, help=f"{found.help}; {note}") for found in plan.warnings)
    return replace(plan, notes=(*plan.notes, Advice(note)), warnings=warnings)

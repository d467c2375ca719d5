"""The incumbent of a search: the best plan that is known, by its simulated step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from ..graph.plan import Plan, Proof
from ..syntax.diagnostic import fail
from ..written_figures import percent
from .constants import GAIN
from .search_end import SearchAbandoned, SearchEnd, SearchEnded
from .search_progress import tell_incumbent


@dataclass
class Incumbent:
    """Keeps the best of the plans that are offered: those that fit the memory come first, then the shortest step."""

    plan: Plan | None = None

    def offer(self, plan: Plan, told: str = "") -> None:
        """Offers a plan with its simulated step. If it is the best so far, it is reported with the words `told`."""
        if self.plan is None or _order(plan) < _order(self.plan):
            self.plan = plan
            beyond = ["more than the memory holds"] if plan.warnings else []
            tell_incumbent(plan.seconds, ", ".join([*([told] if told else []), *beyond]))

    def beats(self, plan: Plan) -> bool:
        """Whether the incumbent fits and a plan does not, or its step is shorter by a thousandth or more."""
        if self.plan is None or bool(self.plan.warnings) > bool(plan.warnings):
            return False
        return bool(self.plan.warnings) < bool(plan.warnings) or self.plan.seconds < (1 - GAIN) * plan.seconds


def _order(plan: Plan) -> tuple[bool, float]:
    return bool(plan.warnings), plan.seconds


def found_in_time(search: Callable[[], Plan], incumbent: Incumbent, end: SearchEnd) -> Plan:
    """The plan of a search, or the incumbent if that is better, or if the search does not end in time. Raises E320
    where the search is ended before there is any plan.
    """
    try:
        with end.of_search(), end.abandoning() if incumbent.plan is not None else nullcontext():
            plan = search()
    except (SearchEnded, SearchAbandoned):
        ended = end.reason()
        if incumbent.plan is None:
            help = "a plan takes seconds to find, of large models more"
            raise fail("E320", f"the search was ended by {ended} before it had found a plan", help=help) from None
        return replace(incumbent.plan, ended=ended)
    if incumbent.plan is None or not incumbent.beats(plan):
        return plan
    return _beside(incumbent.plan, plan)


def _beside(best: Plan, found: Plan) -> Plan:
    """The best plan, with what is known of the one that the search found."""
    seconds, ended = found.unlimited_seconds, found.ended
    best = replace(best, ended=ended, unlimited=found.unlimited, unlimited_seconds=seconds)
    proof = next((note for note in found.notes if isinstance(note, Proof)), None)
    if found.warnings or proof is None:
        return best
    longer = percent(100 * (found.seconds / best.seconds - 1))
    note = Proof(f"another plan is {proof}, and takes {longer} longer in the simulation")
    return replace(best, notes=(note, *best.notes))

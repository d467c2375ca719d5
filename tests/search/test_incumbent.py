"""The best plan known during a search, and when it becomes the result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Plan
from unity_dsl.search.incumbent import Incumbent, found_in_time
from unity_dsl.search.search_end import SearchEnd

MLP = Request(Path(__file__).parents[2] / "examples" / "mlp.udl", preset="small", machine="dgx-h100", devices=2)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return replace(compile_model(MLP).plan, simulated=1.0)


@pytest.fixture(scope="module")
def too_large() -> Plan:
    return compile_model(replace(MLP, memory=1)).plan


def test_the_result_is_no_longer_than_the_incumbent(plan: Plan, too_large: Plan) -> None:
    """It is longer by 0.1 % at most. A plan that fits is preferred to one that does not, whatever their steps take."""
    beyond = replace(plan, warnings=too_large.warnings)
    assert beyond.warnings and not plan.warnings
    for offered, found, taken in (
        (plan, replace(plan, simulated=1.0009), "found"),
        (plan, replace(plan, simulated=1.0011), "offered"),
        (plan, replace(beyond, simulated=0.5), "offered"),
        (replace(beyond, simulated=0.5), plan, "found"),
        (beyond, replace(beyond, simulated=1.0011), "offered"),
    ):
        incumbent = Incumbent()
        incumbent.offer(offered)
        result = found_in_time(partial(replace, found), incumbent, SearchEnd())
        known = {"found": found, "offered": offered}[taken]
        assert (result.seconds, bool(result.warnings)) == (known.seconds, bool(known.warnings))


def test_of_plans_that_are_offered_the_best_is_kept(plan: Plan, too_large: Plan) -> None:
    incumbent, beyond = Incumbent(), replace(plan, warnings=too_large.warnings)
    for seconds, offered, best in ((0.5, beyond, 0.5), (3.0, plan, 3.0), (0.1, beyond, 3.0), (4.0, plan, 3.0)):
        incumbent.offer(replace(offered, simulated=seconds))
        assert incumbent.plan is not None and incumbent.plan.seconds == best


@pytest.mark.parametrize("devices", [2, 4])
def test_a_compilation_keeps_the_best_plan_that_it_has_simulated(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are offered in this process, from the first plan on."""
    offered, offer = list[Plan](), Incumbent.offer

    def noting(self: Incumbent, plan: Plan, told: str = "") -> None:
        offered.append(plan)
        offer(self, plan, told)

    monkeypatch.setattr(Incumbent, "offer", noting)
    found = compile_model(replace(MLP, devices=devices)).plan
    assert len(offered) > 1 and any("data parallelism over" in note for note in offered[0].notes)
    assert found.seconds <= 1.001 * min(plan.seconds for plan in offered) * (1 + 1e-9)

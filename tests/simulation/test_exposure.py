"""The exposed fractions of launches, gradient sums and weight gathers in a step, against a step counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.plan import Exposure
from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.exposure import (
    exposed_backwards,
    exposed_gathers,
    exposed_sums,
    exposed_values,
    exposure_of,
)
from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.task import Phase, Purpose, Task, TaskGraph


def collective(seconds: float, after: tuple[int, ...], purpose: Purpose) -> Task:
    return Task("sum", "w", Phase.BACKWARD, seconds, after, "data", launches=0, purpose=purpose)


def kernel(seconds: float, after: tuple[int, ...] = (), launches: int = 1) -> Task:
    return Task("linear", "y", Phase.BACKWARD, seconds, after, launches=launches)


def test_a_step_counted_by_hand() -> None:
    """A launch takes 1 s. Kernels run from 1 to 5, from 5 to 6, and from 9 on, behind the gather that starts when the
    sum ends at 8. The sum of gradients from 5 to 8 is overlapped for one second, the gather from 8 to 9 not at all. The
    device waits for the first of three launches only, 1 s of the 11.
    """
    tasks = (
        kernel(4.0),
        collective(3.0, (0,), Purpose.GRADIENTS),
        kernel(1.0),
        collective(1.0, (0,), Purpose.WEIGHTS),
        kernel(2.0, (3,)),
    )
    timeline = simulate(TaskGraph(tasks), Hardware(1.0))
    found = exposure_of(timeline, Exposure())
    assert (found.launches, found.sums, found.gathers) == pytest.approx((1 / 3, 2 / 3, 1.0))
    assert exposed_sums(timeline) == pytest.approx(2 / 11)
    assert exposed_gathers(timeline) == pytest.approx(1 / 11)
    assert found.devices == pytest.approx(10 / 11)


def test_values_of_some_paths() -> None:
    """`h` of two iterations is sent for 2 s each and `y` for 3 s, one after the other. A kernel overlaps 1 s of `h`."""
    travelling = [replace(collective(2.0, (), Purpose.VALUES), place=f"layer.{number}.h") for number in range(2)]
    other = replace(collective(3.0, (), Purpose.VALUES), place="y", phase=Phase.FORWARD)
    timeline = simulate(TaskGraph((kernel(1.0, launches=0), *travelling, other)), Hardware(0.0))
    assert exposed_values(timeline) == pytest.approx(6 / 7)
    assert exposed_values(timeline, paths=["layer.h"]) == pytest.approx(3 / 7)
    assert exposed_values(timeline, (Phase.FORWARD,), ["layer.h"]) == 0
    assert exposed_values(timeline, paths=["layer.0.h", "h"]) == 0


def test_devices_that_wait_for_their_hosts() -> None:
    """Three launches of 1 s, and kernels of 0.1 s. The last kernel starts at 3 s; all before it is behind launches."""
    found = exposure_of(simulate(TaskGraph((kernel(0.1),) * 3), Hardware(1.0)), Exposure())
    assert (found.launches, found.devices) == pytest.approx((1.0, 0.1 / 3.1))


def test_a_host_that_is_behind_at_first() -> None:
    """Kernels of 0.1, 0.1, 5 and 1 s. From the third on, which runs from 3 to 8 s, the host is ahead."""
    tasks = (kernel(0.1), kernel(0.1), kernel(5.0), kernel(1.0))
    found = exposure_of(simulate(TaskGraph(tasks), Hardware(1.0)), Exposure())
    assert (found.launches, found.devices) == pytest.approx((3 / 4, 6 / 9))


def test_where_the_host_computes_launches_are_exposed() -> None:
    found = exposure_of(simulate(TaskGraph((kernel(1.0), kernel(1.0))), Hardware(1.0, host_computes=True)), Exposure())
    assert found == Exposure()


def test_of_what_a_step_does_not_have_nothing_is_known() -> None:
    found = exposure_of(simulate(TaskGraph((kernel(1.0),)), Hardware(0.0)), Exposure(0.1, 0.2, 0.3))
    assert (found.sums, found.gathers) == (0.2, 0.3)


def test_what_travels_backwards_counted_by_hand() -> None:
    """Kernels run from 0 to 2 s, behind a collective from 5 to 6 s, and during one of the two seconds of the next
    collective.
    """
    tasks = (
        kernel(2.0),
        collective(3.0, (0,), Purpose.VALUES),
        kernel(1.0, (1,)),
        collective(2.0, (2,), Purpose.VALUES),
        kernel(1.0),
        kernel(1.0, (3,)),
    )
    timeline = simulate(TaskGraph(tasks), Hardware(0.0))
    assert timeline.seconds == 9.0
    assert exposed_backwards(timeline) == pytest.approx((3.0 + 1.0) / 9.0)
    forward = [replace(task, phase=Phase.FORWARD) for task in tasks]
    assert exposed_backwards(simulate(TaskGraph(forward), Hardware(0.0))) == 0.0

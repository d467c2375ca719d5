"""The simulator against one with exact times, against cases worked out by hand, and against laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulation.reference_simulator import ReferenceSimulator
from tests.simulation.task_graphs import hardware, task_graphs
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.hardware import Hardware, hardware_of
from unity_dsl.simulation.lower_bound import LowerBound, lower_bound
from unity_dsl.simulation.task import COMPUTE, Phase, Task, TaskGraph, Traffic
from unity_dsl.simulation.timeline import HOST, Timeline

IDEAL = Hardware(0.0)
EXACT = pytest.approx


def kernel(seconds: float, *after: int, launches: int = 0, device: int = 0) -> Task:
    return Task("kernel", "", Phase.FORWARD, seconds, after, launches=launches, device=device)


def collective(channel: str, latency: float, sending: float, *after: int, level: int = 0, launches: int = 0) -> Task:
    traffic = (Traffic(level, sending),)
    return Task(
        "all_reduce", "", Phase.FORWARD, latency + sending, after, channel, launches=launches, traffic=traffic, sent=8.0
    )


def run(tasks: list[Task], on: Hardware = IDEAL) -> Timeline:
    return simulate(TaskGraph(tasks), on)


# ------------------------------------------------------------------------------------------ reference


@settings(max_examples=300, print_blob=True)
@given(task_graphs(), hardware)
def test_times_are_those_of_exact_steps(graph: TaskGraph, on: Hardware) -> None:
    timeline, expected = simulate(graph, on), ReferenceSimulator(graph, on).run()
    for found, exact in (
        (timeline.start, expected.start),
        (timeline.end, expected.end),
        (timeline.issued, expected.issued),
    ):
        np.testing.assert_allclose(found, [float(exact[i]) for i in range(len(graph.tasks))], rtol=0, atol=1e-9)


# ------------------------------------------------------------------------------------------ by hand


def test_collectives_of_two_groups_share_a_link() -> None:
    """Until 1 the first has the link alone, until 5 both have half, then the second has it alone. Latency is not
    stretched.
    """
    timeline = run([collective("a", 0.0, 3.0), collective("b", 1.0, 4.0)])
    np.testing.assert_array_equal(timeline.start, [0.0, 0.0])
    np.testing.assert_array_equal(timeline.end, [5.0, 7.0])
    assert timeline.exposed() == timeline.seconds == 7.0


def test_collectives_of_two_levels_do_not_share() -> None:
    assert run([collective("a", 0.0, 3.0), collective("b", 1.0, 4.0, level=1)]).end.tolist() == [3.0, 5.0]


def test_collectives_of_one_group_run_in_order() -> None:
    assert run([collective("a", 1.0, 3.0), collective("a", 1.0, 4.0)]).end.tolist() == [4.0, 9.0]


def test_a_collective_that_crosses_nodes_uses_both_levels_at_once() -> None:
    """Level 0 is shared from 1.5 until the other has had its 1 s at 3.5. Level 1 takes until 6, and ends the
    collective.
    """
    crossing = replace(collective("a", 0.0, 0.0), seconds=6.0, traffic=(Traffic(0, 2.0), Traffic(1, 4.5)))
    assert run([crossing, collective("b", 1.5, 1.0)]).end.tolist() == [6.0, 3.5]
    busier = replace(crossing, traffic=(Traffic(0, 4.0), Traffic(1, 4.5)))
    assert run([busier, collective("b", 1.5, 1.0)]).end.tolist() == [6.5, 3.5]
    third = collective("c", 4.0, 1.0, level=1)
    assert run([crossing, collective("b", 1.5, 1.0), third]).end.tolist() == [7.0, 3.5, 6.0]


def test_a_gather_ahead_of_its_use_hides() -> None:
    """The second layer's gather overlaps with the first layer's kernel. The third's runs until the second's kernel
    ends.
    """
    gather = [collective("a", 1.0, 1.0), collective("a", 1.0, 2.0), collective("a", 1.0, 4.0)]
    tasks = [gather[0], gather[1], kernel(4.0, 0), gather[2], kernel(4.0, 1), kernel(1.0, 3)]
    timeline = run(tasks)
    assert timeline.end.tolist() == [2.0, 5.0, 6.0, 10.0, 10.0, 11.0]
    assert timeline.exposed() == 2.0
    tasks[3] = collective("a", 2.0, 4.0)
    assert run(tasks).exposed() == 3.0


def test_a_chain_of_small_kernels_waits_for_the_host() -> None:
    """Five launches of 6 us, kernels of 1 us: the last starts at 30 us, and nothing but launches is on the path."""
    timeline = run([kernel(1e-6, launches=1) for _ in range(5)], Hardware(6e-6))
    assert timeline.seconds == EXACT(31e-6)
    assert timeline.busy[0, HOST] == EXACT(30e-6)
    assert timeline.critical_path == (4,)


def test_the_host_runs_ahead_of_long_kernels() -> None:
    timeline = run([kernel(1e-3, launches=2) for _ in range(5)], Hardware(6e-6))
    assert timeline.seconds == EXACT(12e-6 + 5e-3)
    assert timeline.critical_path == (0, 1, 2, 3, 4)


def test_launches_add_to_compute_on_a_cpu() -> None:
    """Two kernels and the launch of a collective, of 1 s each, before the third kernel."""
    tasks = [kernel(2.0, launches=2), collective("a", 1.0, 3.0, 0, launches=1), kernel(2.0, launches=1)]
    timeline = run(tasks, Hardware(1.0, host_computes=True))
    assert timeline.start.tolist() == [0.0, 5.0, 5.0]
    assert timeline.end.tolist() == [4.0, 9.0, 8.0]
    assert timeline.exposed() == 1.0


def test_what_a_step_is_spent_on() -> None:
    """A kernel, a partly exposed collective and the optimizer, with no time between launch and start."""
    update = replace(kernel(2.0, 0, 1), name="optimizer")
    timeline = run([kernel(3.0), collective("a", 4.0, 1.0), update], Hardware(0.0))
    spent = timeline.spent()
    assert (spent.compute, spent.update, spent.exposed) == (3.0, 2.0, timeline.exposed())
    assert spent.idle == EXACT(timeline.seconds - 5.0 - timeline.exposed())
    waiting = run([kernel(1e-6, launches=1) for _ in range(5)], Hardware(6e-6)).spent()
    assert (waiting.compute, waiting.exposed) == (EXACT(5e-6), 0.0) and waiting.idle == EXACT(26e-6)


def test_a_kernel_that_waits_stops_the_one_thread_of_a_cpu() -> None:
    """The second collective is issued after the kernel that waits for the first: nothing overlaps."""
    tasks = [collective("a", 0.0, 5.0, launches=1), kernel(2.0, 0), collective("b", 0.0, 4.0, launches=1)]
    assert run(tasks, Hardware(1.0, host_computes=True)).end.tolist() == [6.0, 8.0, 13.0]
    assert run(tasks, Hardware(1.0)).end.tolist() == [10.0, 12.0, 10.0]


def test_a_collective_slows_kernels_down() -> None:
    """For 4 s the kernel runs at a quarter of its speed; then 5 s of work are left."""
    tasks = [collective("a", 1.0, 3.0), kernel(6.0)]
    assert run(tasks, Hardware(0.0, slowdown=0.75)).end.tolist() == [4.0, 9.0]
    assert run(tasks, Hardware(0.0, slowdown=1.0)).end.tolist() == [4.0, 10.0]


def test_devices_have_links_and_hosts_of_their_own() -> None:
    tasks = [collective("a", 0.0, 3.0, launches=1), replace(collective("a", 0.0, 4.0, launches=1), device=1)]
    assert run(tasks, Hardware(1.0)).end.tolist() == [4.0, 5.0]


def test_what_a_step_sends() -> None:
    timeline = run([collective("a", 0.0, 1.0), kernel(1.0), collective("b", 0.0, 1.0)])
    assert timeline.sent == {"all_reduce": 16.0}


def test_an_empty_step_takes_no_time() -> None:
    timeline = run([])
    assert (timeline.seconds, timeline.exposed(), timeline.critical_path) == (0.0, 0.0, ())
    assert lower_bound(timeline.graph, IDEAL) == LowerBound(0.0, 0.0, 0.0)


def test_tasks_are_listed_behind_those_they_wait_for() -> None:
    with pytest.raises(ValueError, match="task 0"):
        run([kernel(1.0, 1), kernel(1.0)])


@pytest.mark.parametrize(("name", "is_cpu"), [("local", True), ("dgx-h100", False)])
def test_hardware_of_a_machine(name: str, is_cpu: bool) -> None:
    machine = load_machine(name)
    found = hardware_of(machine)
    assert (found.launch_seconds, found.host_computes) == (machine.launch_seconds, is_cpu)
    assert found.slowdown == machine.collectives.overlap_slowdown == (0.75 if is_cpu else 0.1)


# ------------------------------------------------------------------------------------------ laws


@settings(max_examples=150, print_blob=True)
@given(task_graphs(), hardware)
def test_no_step_is_shorter_than_its_bound(graph: TaskGraph, on: Hardware) -> None:
    assert simulate(graph, on).seconds >= lower_bound(graph, on).seconds - 1e-9


def test_the_bound_is_reached() -> None:
    """By kernels in a row, a chain over channels, and a link that is never idle. Also by communication before and after
    kernels that nothing can overlap with, and by two channels, one of which waits for the other.
    """
    row = TaskGraph([kernel(2.0), kernel(3.0), collective("a", 1.0, 1.0)])
    assert lower_bound(row, IDEAL) == LowerBound(5.0, 3.0, 1.0)
    chain = TaskGraph([kernel(2.0), collective("a", 1.0, 1.0, 0), kernel(3.0, 1)])
    assert lower_bound(chain, IDEAL) == LowerBound(7.0, 7.0, 1.0)
    link = TaskGraph([collective("a", 0.0, 2.0), collective("b", 0.0, 3.0)])
    assert lower_bound(link, IDEAL) == LowerBound(3.0, 3.0, 5.0)
    between = TaskGraph([collective("a", 2.0, 0.0), kernel(3.0, 0), kernel(4.0, 0), collective("a", 1.0, 0.0, 1, 2)])
    assert lower_bound(between, IDEAL) == LowerBound(10.0, 7.0, 0.0)
    second = [collective("b", 3.0, 0.0, 2), collective("b", 3.0, 0.0, 2)]
    series = TaskGraph([collective("a", 3.0, 0.0), collective("a", 3.0, 0.0), kernel(1.0, 0, 1), *second])
    assert lower_bound(series, IDEAL) == LowerBound(13.0, 7.0, 0.0)
    for graph in (row, chain, link, between, series):
        assert simulate(graph, IDEAL).seconds == lower_bound(graph, IDEAL).seconds


def test_what_a_task_reads_is_launched_and_done_before_it() -> None:
    """The host reaches the last kernel, which takes 4 s, after 5 s. If this kernel came first, it would be done after 5
    s.
    """
    tasks = [kernel(1.0, launches=2), kernel(1.0, launches=2), replace(kernel(4.0, launches=1), reads=(0, 1))]
    assert lower_bound(TaskGraph(tasks), Hardware(1.0)).seconds == 9.0
    assert lower_bound(TaskGraph(tasks), Hardware(1.0, host_computes=True)).seconds == 11.0
    assert lower_bound(TaskGraph([replace(task, reads=()) for task in tasks]), Hardware(1.0)).seconds == 7.0


@settings(max_examples=60, deadline=None, print_blob=True)
@given(task_graphs(most_tasks=5), hardware)
def test_no_order_of_tasks_is_shorter_than_their_bound(graph: TaskGraph, on: Hardware) -> None:
    """For all orders in which each task is listed behind those that it waits for."""
    bound, tasks = lower_bound(graph, on).seconds, graph.tasks
    for order in permutations(range(len(tasks))):
        place = {number: position for position, number in enumerate(order)}
        if all(place[other] < place[number] for number, task in enumerate(tasks) for other in task.after):
            listed = [replace(tasks[i], after=tuple(place[other] for other in tasks[i].after)) for i in order]
            assert simulate(TaskGraph(listed), on).seconds >= bound - 1e-9


@settings(max_examples=150, print_blob=True)
@given(task_graphs(most_levels=1), hardware)
def test_a_link_is_idle_only_when_nobody_uses_it(graph: TaskGraph, on: Hardware) -> None:
    """The time during which a link is in use equals the seconds of traffic through it."""
    timeline = simulate(graph, on)
    used: dict[tuple[int, int], list[tuple[float, float]]] = {}
    work: Counter[tuple[int, int]] = Counter()
    for i, task in enumerate(graph.tasks):
        for part in task.traffic:
            latency = max(task.seconds - part.seconds, 0.0)
            used.setdefault((task.device, part.level), []).append((timeline.start[i] + latency, timeline.end[i]))
            work[task.device, part.level] += part.seconds  # type: ignore[assignment]  # Counter counts whole numbers
    for link, spans in used.items():
        reached, idle = 0.0, 0.0
        for begin, end in sorted(spans):
            idle += max(begin - reached, 0.0)
            reached = max(reached, end)
        assert reached - idle == EXACT(work[link], abs=1e-9)


@settings(max_examples=150, print_blob=True)
@given(task_graphs(), hardware)
def test_the_critical_path_has_no_gaps_but_launches(graph: TaskGraph, on: Hardware) -> None:
    timeline = simulate(graph, on)
    path = timeline.critical_path
    if not graph.tasks:
        return
    assert timeline.end[path[-1]] == timeline.seconds
    first_task = graph.tasks[path[0]]
    assert timeline.start[path[0]] == timeline.issued[path[0]]
    if on.host_computes:
        for earlier, task in enumerate(graph.tasks[: path[0]]):
            takes_time = timeline.end[earlier] > timeline.start[earlier]
            assert task.channel != COMPUTE or task.device != first_task.device or not takes_time
    for first, second in pairwise(path):
        issued_later = on.host_computes and timeline.start[second] == timeline.issued[second] > timeline.end[first]
        assert timeline.start[second] == timeline.end[first] or issued_later


@settings(max_examples=150, print_blob=True)
@given(task_graphs(), hardware)
def test_exposed_communication_is_counted_between_events(graph: TaskGraph, on: Hardware) -> None:
    timeline = simulate(graph, on)
    moments = sorted({*timeline.start.tolist(), *timeline.end.tolist()})
    for device in (0, 1):
        expected = 0.0
        for begin, end in pairwise(moments):
            runs = [
                task.channel == COMPUTE
                for i, task in enumerate(graph.tasks)
                if task.device == device and timeline.start[i] <= begin and timeline.end[i] >= end
            ]
            expected += end - begin if runs and not any(runs) else 0.0
        assert timeline.exposed(device) == EXACT(expected, abs=1e-9)


@settings(max_examples=150, print_blob=True)
@given(task_graphs(), hardware)
def test_memory_over_time(graph: TaskGraph, on: Hardware) -> None:
    """Memory after every event, its peak, and at the end the initial memory plus what is not freed."""
    timeline = simulate(graph, on)
    for device in (0, 1):
        use = timeline.memory(device)
        events = []
        for i, task in enumerate(graph.tasks):
            if task.device == device:
                events += [(timeline.start[i], i, 0, task.allocated), (timeline.end[i], i, 1, -task.freed)]
        held, expected = graph.held, [(0.0, graph.held)]
        for time, _, _, change in sorted(events):
            held += change
            expected.append((time, held))
        assert list(zip(use.times.tolist(), use.held.tolist(), strict=True)) == expected
        assert use.peak == max(held for _, held in expected)
        assert (use.peak_time, use.peak) in expected
        for i in use.at_peak:
            assert graph.tasks[i].device == device
            assert timeline.start[i] <= use.peak_time <= timeline.end[i]
        balance = sum(task.allocated - task.freed for task in graph.tasks if task.device == device)
        assert use.held[-1] == graph.held + balance


def test_who_stands_at_the_peak() -> None:
    """The peak has a collective's buffer and the second kernel's result; the first kernel's operand is freed."""
    tasks = [
        replace(kernel(2.0), allocated=4.0, freed=3.0),
        replace(collective("a", 0.0, 4.0), allocated=2.0),
        replace(kernel(1.0), allocated=5.0),
        replace(kernel(1.0), freed=8.0),
    ]
    use = simulate(TaskGraph(tasks, 10.0), IDEAL).memory()
    assert (use.peak, use.peak_time, use.at_peak) == (18.0, 2.0, (1, 2))
    assert use.held[-1] == 10.0

"""Tasks that the simulator processes per second of processor time: `python bench/simulator.py`.

Machines differ in speed and load. Each result therefore includes, as a reference, the entries that a heap pushes and
pops per second, measured in alternation with the simulator, and the ratio of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from statistics import median
from time import process_time

from measure import write_results

from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.lower_bound import lower_bound
from unity_dsl.simulation.task import Phase, Task, TaskGraph, Traffic
from unity_dsl.simulation.timeline import Timeline

SIZES = (10_000, 100_000, 1_000_000)
HARDWARE = {"gpu": Hardware(6e-6), "cpu": Hardware(6e-6, host_computes=True, slowdown=0.5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()

    results = {}
    for kind, hardware in HARDWARE.items():
        for size in SIZES:
            row = measure(step(size), hardware, options.repetitions)
            results[f"{size} tasks, {kind}"] = row
            print(f"{size:>9,} tasks, {kind}: " + ", ".join(f"{name} {value:,}" for name, value in row.items()))
    write_results("simulator", f"python bench/simulator.py --repetitions {options.repetitions}", results)


def step(size: int) -> TaskGraph:
    """A graph of layers, each with an all-gather of the next layer's weights, five kernels, an all-reduce that the next
    layer waits for, and a reduce-scatter of gradients in another group, on two levels. Three of eight tasks are
    collectives.
    """
    random = Random(size)
    tasks: list[Task] = []

    def add(name: str, seconds: float, after: tuple[int, ...], channel: str = "compute", levels: int = 1) -> int:
        seconds *= random.uniform(0.5, 2.0)
        traffic = tuple(Traffic(level, 0.8 * seconds) for level in range(levels)) if channel != "compute" else ()
        task = Task(name, f"layer.{len(tasks) // 8}", Phase.FORWARD, seconds, after, channel, traffic=traffic)
        tasks.append(task)
        return len(tasks) - 1

    gathered, reduced = add("all_gather", 5e-5, (), "data"), 0
    while len(tasks) < size:
        ahead = add("all_gather", 5e-5, (gathered,), "data")
        first = add("linear", 3e-5, (gathered, reduced))
        for _ in range(4):
            last = add("linear", 3e-5, ())
        reduced = add("all_reduce", 3e-5, (last,), "tensor")
        add("reduce_scatter", 5e-5, (first,), "gradients", 2)
        gathered = ahead
    return TaskGraph(tuple(tasks[:size]))


def measure(graph: TaskGraph, hardware: Hardware, repetitions: int) -> dict[str, float | int]:
    """Median tasks per second of the simulation alone, and of the simulation with all properties of its timeline;
    the heap's entries per second and the ratio to them.
    """
    alone, with_all, heap = [], [], []
    for _ in range(repetitions):
        alone.append(len(graph.tasks) / seconds(lambda: simulate(graph, hardware)))
        with_all.append(len(graph.tasks) / seconds(lambda: ask_all(simulate(graph, hardware))))
        heap.append(HEAP_ENTRIES / seconds(fill_and_empty_heap))
    return {
        "tasks_per_second": round(median(alone)),
        "with_memory_path_and_bound": round(median(with_all)),
        "heap_entries_per_second": round(median(heap)),
        "ratio_to_heap": round(median(a / h for a, h in zip(alone, heap, strict=True)), 3),
    }


def seconds(work: Callable[[], object]) -> float:
    begun = process_time()
    work()
    return process_time() - begun


def ask_all(timeline: Timeline) -> tuple[object, ...]:
    bound = lower_bound(timeline.graph, timeline.hardware)
    return timeline.busy, timeline.sent, timeline.exposed(), timeline.memory(), timeline.critical_path, bound


HEAP_ENTRIES = 200_000


def fill_and_empty_heap() -> None:
    random = Random(0)
    heap: list[tuple[float, int]] = []
    for i in range(HEAP_ENTRIES):
        heappush(heap, (random.random(), i))
    for _ in range(HEAP_ENTRIES):
        heappop(heap)


if __name__ == "__main__":
    main()

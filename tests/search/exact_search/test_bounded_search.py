"""Optima of random problems against trying everything: any prices, sharing, repeats, captured values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from tests.sampling import SAMPLE, of_the_day
from unity_dsl.search.cost_network import bucket_elimination as elimination
from unity_dsl.search.exact_search import bounded_search as module
from unity_dsl.search.exact_search.bounded_search import Near, optimise, search, survey
from unity_dsl.search.folded_solver import exact_minimum as exact
from unity_dsl.search.folded_solver.exact_minimum import Solved, Solver
from unity_dsl.search.folded_solver.problem_part import Domains, Part, Port, Repeat, Tensor, everything, no_limits
from unity_dsl.search.folded_solver.reduced_cost_filtering import bounded

from ..closed_prices import closed

LAYOUTS = 4


def random_tensor(
    rng: np.random.Generator, produced: Port, reads: list[Port], ends: bool, impossible: float = 0.0
) -> Tensor:
    """A random tensor. Each conversion is infeasible with probability `impossible`."""
    direct = rng.integers(1, 20, (LAYOUTS, LAYOUTS)).astype(float)
    if impossible:
        direct[rng.random(direct.shape) < impossible] = np.inf
    np.fill_diagonal(direct, 0.0)
    fixed = (int(rng.integers(LAYOUTS)),) if ends and rng.random() < 0.4 else ()
    return Tensor("t", produced, tuple(reads), closed(direct), fixed)


def random_part(
    rng: np.random.Generator, count: int, *, body: bool = False, repeat: Part | None = None, impossible: float = 0.0
) -> Part:
    """A random chain of variables, each reading tensors of earlier ones. A body enters at the first two and exits at
    the last. Results of a repeat may be limited to some layouts.
    """
    costs = [rng.integers(0, 15, rng.integers(1, 4)).astype(float) for _ in range(count)]
    if body:
        costs[:2] = [np.zeros(LAYOUTS), np.zeros(LAYOUTS)]
    ports = [Port(v, rng.integers(0, LAYOUTS, len(cost)), LAYOUTS) for v, cost in enumerate(costs)]
    if body:
        ports[:2] = [Port(v, np.arange(LAYOUTS), LAYOUTS) for v in (0, 1)]
    reads: list[list[Port]] = [[] for _ in range(count)]
    for reader in range(2 if body else 1, count):
        for source in rng.integers(0, reader, rng.integers(1, 4)):
            asked = rng.integers(0, LAYOUTS, len(costs[reader]))
            reads[source].append(Port(reader, asked, LAYOUTS))
    repeats: tuple[Repeat, ...] = ()
    if repeat is not None:
        left = np.sort(rng.choice(LAYOUTS, rng.integers(1, LAYOUTS + 1), replace=False))
        costs.append(np.zeros(len(left)))
        ports.append(Port(count, left, LAYOUTS))
        reads.append([])
        repeats = (Repeat("r", int(rng.integers(1, 5)), repeat, (ports[0],), (ports[-1],), (ports[1],)),)
    ends = zip(ports, reads, strict=True)
    tensors = [random_tensor(rng, port, read, not body, impossible) for port, read in ends]
    names = tuple(f"v{i}" for i in range(len(costs)))
    borders = ((ports[0],), (ports[-1],), (ports[1],)) if body else ((), (), ())
    return Part(tuple(costs), names, tuple(tensors), repeats, *borders)


def sets_held(root: int, most: int, count: int = LAYOUTS) -> Iterator[tuple[int, ...]]:
    others = [layout for layout in range(count) if layout != root]
    for size in range(most + 1):
        yield from combinations(others, size)


def tensor_cost(tensor: Tensor, values: tuple[int, ...], most: int) -> float:
    root = int(tensor.produced.layouts[values[tensor.produced.variable]])
    needed = {int(read.layouts[values[read.variable]]) for read in tensor.reads} | set(tensor.fixed)
    best = np.inf
    for held in sets_held(root, most, len(tensor.prices)):
        if needed <= {root, *held}:
            best = min(best, span(tensor, root, held))
    return best


def span(tensor: Tensor, root: int, held: tuple[int, ...]) -> float:
    """The least cost of making the held layouts one after another."""
    best = np.inf if held else 0.0
    for last in held:
        rest = tuple(layout for layout in held if layout != last)
        best = min(best, span(tensor, root, rest) + min(tensor.prices[source, last] for source in (root, *rest)))
    return best


def own_cost(part: Part, values: tuple[int, ...], most: int) -> float:
    cost = sum(float(costs[value]) for costs, value in zip(part.costs, values, strict=True))
    return cost + sum(tensor_cost(tensor, values, most) for tensor in part.tensors)


def assignments(part: Part) -> Iterator[tuple[int, ...]]:
    return product(*(range(len(cost)) for cost in part.costs))


def layouts_at(ports: tuple[Port, ...], values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(port.layouts[values[port.variable]]) for port in ports)


def least(part: Part, most: int, steadily: bool = False) -> float:
    """The least cost by trying everything; a body is solved once per pair of layouts at its ends."""
    tables = [repeat_table(repeat, most, steadily) for repeat in part.repeats]
    best = np.inf
    for values in assignments(part):
        cost = own_cost(part, values, most)
        for repeat, table in zip(part.repeats, tables, strict=True):
            ends = tuple(layouts_at(p, values) for p in (repeat.initial, repeat.results, repeat.captured))
            cost += table.get(ends, np.inf)
        best = min(best, cost)
    return best


def repeat_table(repeat: Repeat, most: int, steadily: bool) -> dict[tuple[tuple[int, ...], ...], float]:
    body = repeat.body
    once: dict[tuple[tuple[int, ...], ...], float] = {}
    for values in assignments(body):
        ends = tuple(layouts_at(ports, values) for ports in (body.entries, body.exits, body.captured))
        once[ends] = min(once.get(ends, np.inf), own_cost(body, values, most))
    if steadily:
        return {ends: cost * repeat.count for ends, cost in once.items() if ends[0] == ends[1]}
    total = once
    for _ in range(repeat.count - 1):
        longer: dict[tuple[tuple[int, ...], ...], float] = {}
        for (first, middle, taken), cost in total.items():
            for (entry, exit_, also), more in once.items():
                if entry == middle and also == taken:
                    ends = first, exit_, taken
                    longer[ends] = min(longer.get(ends, np.inf), cost + more)
        total = longer
    return total


def solved_cost(part: Part, solved: Solved) -> float:
    """The cost of a plan with its iterations, whose ends must fit together."""
    cost = own_cost(part, solved.values, 2)
    for repeat, iterations in zip(part.repeats, solved.repeats, strict=True):
        assert len(iterations) == repeat.count
        state = layouts_at(repeat.initial, solved.values)
        for iteration in iterations:
            assert layouts_at(repeat.body.entries, iteration.values) == state
            assert layouts_at(repeat.body.captured, iteration.values) == layouts_at(repeat.captured, solved.values)
            cost += solved_cost(repeat.body, iteration)
            state = layouts_at(repeat.body.exits, iteration.values)
        assert state == layouts_at(repeat.results, solved.values)
    return cost


def some_domain(rng: np.random.Generator, part: Part) -> Domains:
    """Some values of each variable, at least one."""
    masks = []
    for cost in part.costs:
        mask = rng.random(len(cost)) < 0.6
        mask[rng.integers(len(cost))] = True
        masks.append(mask)
    return Domains(masks, [some_domain(rng, repeat.body) for repeat in part.repeats])


def check(part: Part, rng: np.random.Generator) -> bool:
    """Checks that the optimum, solved at once or by bounds, is what trying everything finds. Returns whether more than
    two held layouts would have been cheaper.
    """
    expected = least(part, 2)
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.7:
            patch.setattr(module, "AT_ONCE", 0)
        check_optimum(part, rng, expected)
    return expected < np.inf and least(part, LAYOUTS) < expected - 1e-9


def nearby(part: Part, rng: np.random.Generator) -> Near:
    return lambda _: [some_domain(rng, part)]


def check_optimum(part: Part, rng: np.random.Generator, expected: float) -> None:
    found = optimise(part, everything(part), nearby(part, rng))
    if found.plan is None:
        assert expected == np.inf
        return
    assert found.exact
    assert found.cost == pytest.approx(expected)
    assert found.bound <= found.cost * (1 + 1e-9)
    assert solved_cost(part, found.plan) == pytest.approx(expected)
    assert optimise(part, everything(part), below=expected * (1 - 1e-6)).plan is None
    assert survey(part, everything(part)).bound <= expected + 1e-6
    rough = optimise(part, everything(part), below=expected * (1 + rng.random()) + 1)
    assert rough.exact
    assert rough.cost == pytest.approx(expected)
    assert rough.bound <= expected + 1e-6
    assert rough.plan is not None
    assert solved_cost(part, rough.plan) == pytest.approx(expected)


def test_shared_conversions() -> None:
    bites, seeds = 0, of_the_day(range(150), 50)
    print(f"UNITY_SAMPLE={SAMPLE}: {seeds}")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        bites += check(random_part(rng, int(rng.integers(1, 6))), rng)
    print(f"in {bites} of {len(seeds)} the bound of two further layouts bites")
    assert bites > 0


def test_repeats_and_captured_values() -> None:
    seeds = of_the_day(range(60), 30)
    print(f"UNITY_SAMPLE={SAMPLE}: {seeds}")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        body = random_part(rng, int(rng.integers(3, 6)), body=True)
        check(random_part(rng, int(rng.integers(2, 5)), repeat=body), rng)


def test_repeats_with_conversions_that_there_are_not() -> None:
    """An iteration may leave a layout from which none of the layouts that all iterations can keep is reachable."""
    possible, seeds = 0, of_the_day(range(160), 80)
    print(f"UNITY_SAMPLE={SAMPLE}: {seeds}")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        body = random_part(rng, int(rng.integers(3, 6)), body=True, impossible=0.5)
        part = random_part(rng, int(rng.integers(2, 5)), repeat=body, impossible=0.2)
        expected = least(part, 2)
        possible += expected < np.inf
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "AT_ONCE", 0)
            check_optimum(part, rng, expected)
    assert possible > len(seeds) // 4


def test_iterations_that_all_do_the_same() -> None:
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        body = random_part(rng, int(rng.integers(3, 6)), body=True)
        part = random_part(rng, int(rng.integers(2, 4)), repeat=body)
        solver = Solver(part, everything(part), no_limits(part), steadily=True)
        expected = least(part, 2, steadily=True)
        assert float(solver.table) == pytest.approx(expected)
        if expected < np.inf:
            solved = solver.solution()
            assert solved_cost(part, solved) == pytest.approx(expected)
            assert len(set(solved.repeats[0])) == 1
            found += 1
    assert found > 10


def test_powers_that_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search then finds iterations that are all equal, and never calls them optimal without proof."""
    monkeypatch.setattr(exact, "LARGEST_POWER", 0)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        body = random_part(rng, int(rng.integers(3, 6)), body=True)
        part = random_part(rng, int(rng.integers(2, 4)), repeat=body)
        expected = least(part, 2)
        found = optimise(part, everything(part))
        assert found.bound <= expected + 1e-6
        assert found.cost >= expected - 1e-6
        assert not found.exact or found.cost == pytest.approx(expected)
        if found.plan is not None:
            assert solved_cost(part, found.plan) == pytest.approx(found.cost)


def test_tables_that_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is then the best of what could be tried, and is never called optimal without proof."""
    monkeypatch.setattr(elimination, "LARGEST_TABLE", 8)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        part = random_part(rng, 5)
        found = optimise(part, everything(part), nearby(part, rng))
        if found.plan is None:
            continue
        expected = least(part, 2)
        assert found.bound <= expected + 1e-6
        assert found.cost >= expected - 1e-6
        assert not found.exact or found.cost == pytest.approx(expected)
        assert solved_cost(part, found.plan) == pytest.approx(found.cost)


def test_a_bound_far_below_every_plan() -> None:
    """If the bound is millions of times larger than the best cost, rounding keeps the end of the gap from equalling
    that cost.
    """
    for seed in range(40):
        rng = np.random.default_rng(seed)
        part = random_part(rng, int(rng.integers(2, 6)))
        scaled = replace(part, costs=tuple(cost * 1e-5 + 1e-5 / 3 for cost in part.costs), tensors=())
        known = survey(scaled, everything(scaled))
        far = bounded(known.searched.part, known.searched.domains)
        far = replace(far, bound=replace(far.bound, least=-3e6 * (1 + rng.random())))
        found = search(replace(known, found=far))
        assert found.exact and found.cost == pytest.approx(least(scaled, 2)), seed

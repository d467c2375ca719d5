"""Which gathered weights are re-gathered: the cheapest set that leaves enough memory, against all subsets."""

from __future__ import annotations

from itertools import combinations
from random import Random

from unity_dsl.search.accounting.weighed_plan import cheapest_of


def test_the_cheapest_weights_that_leave_enough() -> None:
    for seed in range(200):
        rng = Random(seed)
        names = [f"w{number}" for number in range(rng.randint(1, 7))]
        seconds = {name: rng.choice((1.0, 2.0, rng.uniform(0, 3))) for name in names}
        freed = {name: rng.choice((1.0, 2.0, 4.0, rng.uniform(0.5, 5))) for name in names}
        needed = rng.uniform(0.1, 1.1) * sum(freed.values())
        every = [some for count in range(len(names) + 1) for some in combinations(names, count)]
        enough = [some for some in every if sum(freed[name] for name in some) >= needed]
        found = cheapest_of(seconds, freed, needed)
        if not enough:
            assert found == frozenset(names), f"seed {seed}"
            continue
        assert sum(freed[name] for name in found) >= needed * (1 - 1e-12), f"seed {seed}"
        least = min(sum(seconds[name] for name in some) for some in enough)
        assert abs(sum(seconds[name] for name in found) - least) < 1e-9, f"seed {seed}"

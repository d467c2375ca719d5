"""Connected components against a search from every vertex, on random graphs."""

from __future__ import annotations

from random import Random

from unity_dsl.search.choices.components import Components

SEED = 20261125


def test_random_graphs_have_the_components_that_a_search_finds() -> None:
    rng = Random(SEED)
    for _ in range(100):
        vertices = [f"v{number}" for number in range(rng.randint(1, 12))]
        edges = [(rng.choice(vertices), rng.choice(vertices)) for _ in range(rng.randint(0, 12))]
        components = Components()
        forest = [edge for edge in edges if components.join(*edge)]
        for start in vertices:
            reached = {start}
            for _ in vertices:
                reached |= {other for edge in edges if reached & {*edge} for other in edge}
            own = {other for other in vertices if components.of(other) == components.of(start)}
            assert own == reached, f"seed {SEED}: {edges}"
        parts = {components.of(vertex) for vertex in vertices}
        assert len(forest) == len(vertices) - len(parts), f"seed {SEED}: {edges}"

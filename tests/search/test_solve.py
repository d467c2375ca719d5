"""The search against brute force over everything, and against itself on the model written out."""

from __future__ import annotations

from random import Random

import pytest

from unity_dsl.graph.build import build_model
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.index.library import Library, load_library
from unity_dsl.search.solve import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .brute_force import BruteForce, TooMany
from .random_models import random_machine, random_model

TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def model_of(text: str, library: Library) -> Model:
    return build_model(parse_model(Source("model.udl", text)), library)


def compare(
    seeds: range, steps: int, mesh: Mesh, sizes: tuple[int, ...], library: Library, wanted: int
) -> tuple[int, int]:
    """Cases tried, and cases where holding more than two further layouts of a value would be cheaper."""
    tried = bites = 0
    for seed in seeds:
        rng = Random(seed)
        model = model_of(random_model(rng, steps, sizes), library)
        machine = random_machine(rng)
        brute = BruteForce(model, mesh, machine, library)
        try:
            at_most_two = brute.least(2)
        except TooMany:
            continue
        plan = search(model, mesh, machine, library)
        assert plan.cost.seconds == pytest.approx(at_most_two, rel=1e-6), f"seed {seed}"
        assert any("optimal" in note and "not proved" not in note for note in plan.notes)
        tried += 1
        any_number = brute.least(None) if mesh is TWO else at_most_two
        assert any_number <= at_most_two * (1 + 1e-9)
        bites += any_number < at_most_two * (1 - 1e-6)
        if tried == wanted:
            break
    return tried, bites

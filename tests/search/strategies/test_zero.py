"""ZeRO: every trained weight in slices, the batch divided, and everything else as in data parallelism."""

from __future__ import annotations

import pytest

from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.diagnostic import InputError

from ..conftest import FOUR, Build
from .conftest import TRANSFORMER
from .test_expert import weights


def test_weights_are_in_slices_and_operators_have_the_batch(library: Library, build: Build) -> None:
    machine = load_machine("dgx-a100")
    plan = search(build(TRANSFORMER), FOUR, machine, library, "zero")
    other = search(build(TRANSFORMER), FOUR, machine, library, "data_parallel")
    assert set(weights(plan.graph).values()) == {"S0,S0", "S1,S1"}  # the dimension 3 of the fused weight is not divided
    assert set(weights(other.graph).values()) == {"I,I"}
    for one, two in zip(plan.graph.nodes(), other.graph.nodes(), strict=True):
        assert one.typed.configuration == two.typed.configuration
    assert plan.cost.memory.parameters == pytest.approx(other.cost.memory.parameters / 4)


def test_it_needs_a_batch_that_divides(library: Library, build: Build) -> None:
    with pytest.raises(InputError) as raised:
        search(build(TRANSFORMER.replace("b = 8", "b = 6")), FOUR, load_machine("dgx-a100"), library, "zero")
    assert raised.value.diagnostic.code == "E309"

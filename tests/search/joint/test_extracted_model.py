"""Models extracted from e-graphs compute what the model computes: in float64 with NumPy, from the declarations."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.fuzz.models import random_model
from tests.prove.cases import library
from tests.rules.models import evaluated
from tests.rules.side_models import build
from unity_dsl.graph.graph import Model
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.shipped_rules import ShippedRules, shipped_sources
from unity_dsl.search.joint.extracted_model import Algebra, Algebras, extracted

from ...sampling import of_the_day

ALGEBRAS = Algebras(ShippedRules(shipped_sources(), library()))
TRIED = 12
"""Number of extractions that are evaluated per model."""


def drawn(algebra: Algebra, rng: Random) -> dict[str, tuple[int, ...]]:
    return {
        prefix: tuple(rng.randrange(group.extractions) for group in graph.groups)
        for prefix, graph in algebra.graphs.items()
    }


def same(model: Model, made: Model, seed: int) -> None:
    left, right = evaluated(model, seed), evaluated(made, seed)
    pairs = [(left.loss, right.loss), *((left.outputs[name], right.outputs[name]) for name in left.outputs)]
    for array, other in pairs:
        valued = ~np.isnan(array)
        np.testing.assert_allclose(np.asarray(other)[valued], np.asarray(array)[valued], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", of_the_day(range(300), 20))
def test_extracted_models_compute_the_same(seed: int) -> None:
    rng = Random(seed)
    algebra = ALGEBRAS.of(build(random_model(rng)), load_machine("dgx-h100"))
    while algebra.extractions == 1:
        algebra = ALGEBRAS.of(build(random_model(rng)), load_machine("dgx-h100"))
    model = algebra.model
    for _ in range(min(TRIED, algebra.extractions)):
        variant = extracted(algebra, drawn(algebra, rng))
        if variant is not None:
            assert {name for name, _ in variant.model.weights()} == {name for name, _ in model.weights()}
            same(model, variant.model, seed)


def test_extraction_0_is_the_model() -> None:
    text = """model m[n = 1]
  input x: f32[4, 4]
  input target: f32[4, 4]
  weight w: f32[4, 4] ~ normal(0.1)
  weight b: f32[4] ~ normal(0.1)
  repeat 3 as layer
    weight v: f32[4, 4] ~ normal(0.1)
    weight c: f32[4] ~ normal(0.1)
    x = relu(linear(x, v) + c)
  loss mse(linear(x, w) + b, target)
"""
    model = build(text)
    algebra = ALGEBRAS.of(model, load_machine("dgx-h100"))
    assert len(algebra.groups) >= 2, "one in the repeat, one after it"
    own = extracted(algebra, {prefix: (0,) * len(graph.groups) for prefix, graph in algebra.graphs.items()})
    assert own is not None
    assert own.rules == ()
    assert [node.name for node in own.model.graph.nodes()] == [node.name for node in model.graph.nodes()]

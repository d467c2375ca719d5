"""Declared facts without a proof are tried on samples: the shipped declarations pass, wrong ones fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unity_dsl.index.declarations.sample_trials import SAMPLES, contradiction
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.instantiation.representative import small_instances
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import Name

SHIPPED = ("top_k", "sort", "expert_places")


def test_these_are_all_that_return_integers(library: Library) -> None:
    found = {name for name, decl in library.operators.items() if decl.outputs[0].integer_range is not None}
    assert found == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_sample_contradicts_a_shipped_declaration(name: str, library: Library) -> None:
    assert contradiction(library.operators[name], library, 5 * SAMPLES) is None


@pytest.mark.parametrize("name", SHIPPED)
def test_samples_are_of_many_sizes_and_the_same_on_every_run(name: str, library: Library) -> None:
    first, second = (
        [made.sizes for made in small_instances(library.operators[name], np.random.default_rng(0), SAMPLES)]
        for _ in range(2)
    )
    assert first == second and len(first) == SAMPLES
    assert len({tuple(sizes.items()) for sizes in first}) > 10


def test_an_axis_that_is_declared_wrongly_is_found(library: Library) -> None:
    """The order along the last axis depends on the whole axis."""
    wrong = replace(library.operators["sort"], declared=(Name("c"),))
    found = contradiction(wrong, library, SAMPLES)
    assert found is not None and found.axis == "c"


def test_equal_elements_stay_in_order(library: Library) -> None:
    x = np.array([[1.0, 2.0, 2.0, 1.0, 2.0], [0.0, -0.0, 0.0, -0.0, 0.0]])
    best = instantiate(library.operators["top_k"], [Shape((2, 5))], {"count": 4})
    assert evaluate(best, [x], library)[0].tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]
    order = instantiate(library.operators["sort"], [Shape((2, 5))], {})
    assert evaluate(order, [x], library)[0].tolist() == [[0, 3, 1, 2, 4], [0, 1, 2, 3, 4]]


def test_a_result_outside_its_range_is_an_error(library: Library) -> None:
    places = instantiate(library.operators["expert_places"], [Shape((1, 3, 1), 2)], {})
    narrow = replace(places, equations=tuple(
        replace(e, target=replace(e.target, integer_range=2)) if e.target.name == "p" else e for e in places.equations
    ))  # fmt: skip
    with pytest.raises(ValueError, match="outside"):
        evaluate(narrow, [np.zeros((1, 3, 1), dtype=int)], library)

"""Evaluation at some positions against the evaluation of whole tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.rounding_bounds import Bounded, exact
from unity_dsl.index.evaluation.sampled import Places, Sampling
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library

CASES: Mapping[str, tuple[list[Shape], Mapping[str, int]]] = {
    "matmul": ([Shape((3, 4, 5)), Shape((3, 5, 6))], {}),
    "conv2d": ([Shape((2, 4, 7, 6)), Shape((6, 2, 3, 3))], {"groups": 2, "stride": 2, "pad_h": 1, "pad_w": 1}),
    "max_pool2d": ([Shape((2, 3, 7, 7))], {"size": 3, "stride": 2, "pad_h": 1, "pad_w": 1}),
    "softmax": ([Shape((3, 9))], {}),
    "layer_norm": ([Shape((4, 6)), Shape((6,)), Shape((6,))], {}),
    "embedding": ([Shape((5,), 7), Shape((7, 3))], {}),
    "concat": ([Shape((2, 3)), Shape((4, 3))], {"dim": 0}),
    "mse": ([Shape((3, 4)), Shape((3, 4))], {}),
    "causal_mask": ([Shape((4, 5))], {}),
    "expert_places": ([Shape((2, 3, 2), 4)], {}),
}


def values_of(instance: Instance) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        operand.name: random.standard_normal(instance.shape(operand))
        if operand.integer_range is None
        else random.integers(0, operand.integer_range, instance.shape(operand))
        for operand in instance.inputs
    }


@pytest.mark.parametrize("name", CASES)
def test_each_position_is_that_of_the_whole_result(name: str, library: Library) -> None:
    shapes, attributes = CASES[name]
    instance = instantiate(library.operators[name], shapes, attributes)
    values = values_of(instance)
    (whole, *_) = evaluate(instance, list(values.values()), library)

    def elements(operand: str, places: Places) -> Bounded:
        return exact(values[operand].ravel()[places])

    found = Sampling(instance, elements, library, lambda count: None).at(
        instance.outputs[0].name, np.arange(whole.size)
    )
    np.testing.assert_allclose(found.value, whole.ravel(), rtol=1e-12, atol=1e-12)
    finite = np.isfinite(whole.ravel())
    assert np.all(np.abs(found.value[finite] - whole.ravel()[finite]) <= found.error[finite] + 1e-15)


def test_a_position_needs_a_row_and_a_column(library: Library) -> None:
    """One element of a product of 10^5 x 10^4 by 10^4 x 10^5 is computed from 10^4 pairs, without the tensors."""
    instance = instantiate(library.operators["matmul"], [Shape((10**5, 10**4)), Shape((10**4, 10**5))], {})
    asked: dict[str, int] = {}
    counted: list[int] = []

    def elements(operand: str, places: Places) -> Bounded:
        asked[operand] = len(places)
        return exact(np.ones(len(places)))

    found = Sampling(instance, elements, library, counted.append).at("z", np.array([123_456_789]))
    assert found.value.tolist() == [10_000] and asked == {"x": 10_000, "y": 10_000} and sum(counted) == 10_000

"""The evaluator's operators against the reference evaluation in float64, at small shapes of every declaration."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import isfinite
from random import Random
from zlib import crc32

import numpy as np
import pytest

from tests.sampling import of_the_day
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.representative import small_instances

from ..cases import library
from .operator import Budget, Operation
from .shapes import NoMeaning, frame
from .test_values import as_float
from .values import UNKNOWN, literal

AT_A_POLE = {"greatest_log_with_a_spike", "spike_less_greatest_log"}
"""Operators with a maximum of logarithms. NumPy's maximum passes over log(0); the evaluator then has no value."""
PLACES = 24
"""Elements of a result that are compared a day. One element of a transposed convolution sums over the whole image."""
OPERATORS = [decl for decl in library().operators.values() if not decl.extern and decl.name not in AT_A_POLE]


@pytest.mark.parametrize("decl", OPERATORS, ids=lambda decl: decl.name)
def test_elements_are_those_of_the_reference(decl) -> None:  # type: ignore[no-untyped-def]
    seed = crc32(decl.name.encode())
    random = Random(seed)
    compared = tried = 0
    for instance in small_instances(decl, np.random.default_rng(seed), 3):
        if not instance.native:
            continue  # a call with a pattern, which the tests of rules cover
        tried += 1
        shapes = [instance.shape(operand) for operand in instance.inputs]
        ranges = [operand.integer_range for operand in instance.inputs]
        arrays = [
            np.array([random.randint(-16, 16) / 8 if bound is None else random.randrange(bound) for _ in range(size)])
            for size, bound in ((int(np.prod(shape)), bound) for shape, bound in zip(shapes, ranges, strict=True))
        ]
        arrays = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)]
        for training in (True, False):
            statements = decl.statements if training or not decl.evaluation else decl.evaluation
            attributes = {name: literal(value) for name, value in instance.attributes.items()}
            framed = frame(decl, shapes, ranges, attributes, {}, None)  # type: ignore[arg-type]
            inputs = [lambda place, array=array: literal(array[place].item()) for array in arrays]
            run = Operation(decl, statements, framed, inputs, library(), Budget(10**7), lambda _: Fraction(1, 4))
            expected = evaluate(instance, arrays, library(), training=training, uniform=lambda _, at: at * 0 + 0.25)
            for number, array in enumerate(expected):
                assert framed.ranges[number] == instance.outputs[number].integer_range
                for place in of_the_day([*product(*map(range, array.shape))], PLACES):
                    found = run.output(number, place)
                    if isfinite(array[place]) and found is not UNKNOWN:
                        compared += 1
                        assert as_float(found) == pytest.approx(array[place], rel=1e-9, abs=1e-9), f"seed {seed}"
    assert compared or not tried


def test_a_read_outside_has_no_meaning() -> None:
    decl = library().operators["slice"]
    with pytest.raises(NoMeaning):
        frame(decl, [(3,)], [None], {"dim": 0, "start": 2, "stop": 5}, {}, None)

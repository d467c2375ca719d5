"""Signatures applied to batches of operands: the values equal the reference evaluation of each operand alone."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.resources import folder
from unity_dsl.rules.enumeration.application import Application, Values, applications
from unity_dsl.rules.enumeration.candidates import number_expr
from unity_dsl.rules.enumeration.fingerprints import random_operand, sizes_for
from unity_dsl.rules.enumeration.signature import read_signature
from unity_dsl.rules.enumeration.signature_table import load_table

LIBRARY = load_library()
TABLE = load_table(folder("rules") / "signatures.toml")
SIGNATURES = sorted({text for theme in TABLE.themes for text in (*theme.signatures, *theme.special)})
SEED = 5


def at_its_own_types(text: str) -> tuple[Application, Values]:
    signature = read_signature(text, LIBRARY)
    sizes = sizes_for(signature.operands, signature.degrees)
    images = {name: 5 for name in ("h", "w") if name in sizes}
    values = Values(LIBRARY, {**sizes, **images}, {"c": 1.375})
    (application, *_) = applications(signature, signature.operands, (number_expr("c"),), signature.degrees)
    return application, values


@pytest.mark.parametrize("text", SIGNATURES)
def test_many_operands_at_once_have_the_values_of_each_alone(text: str) -> None:
    application, values = at_its_own_types(text)
    random = np.random.default_rng(SEED)
    operands = [
        random_operand(random, values.shape(kind), kind.bound and values.size(kind.bound.total))
        for kind in application.operands
    ]
    made = values.results(application, operands)
    for (evaluation, number), found in zip(values.evaluations(application), made, strict=True):
        for place in range(len(found)):
            expected = evaluate(evaluation.instance, [array[place] for array in operands], LIBRARY)[number]
            np.testing.assert_allclose(found[place], expected, rtol=1e-12, atol=1e-12, err_msg=f"seed {SEED}: {text}")


@pytest.mark.parametrize(
    "given",
    ["(x: [n, i, k + 2 * o, w], k: [c, i, h + k, s]) x, k", "(x: [n, i, r + 2 * h, w], k: [c, i, h + r, s]) x, k"],
)
def test_sizes_have_letters_of_their_own(given: str) -> None:
    """A signature's letters are bound to sizes that may contain any letters, even equally named ones."""
    signature = read_signature("(x: [n, i, h + r - 1, w + s - 1], k: [o, i, r, s]) conv2d(x, k)", LIBRARY)
    operands = read_signature(given.replace(" x, k", " conv2d(x, k)"), LIBRARY).operands
    sizes = {"n": 2, "i": 3, "h": 2, "r": 3, "w": 7, "s": 2, "o": 3, "c": 2, "k": 4}
    (application, *_) = applications(signature, operands, (), frozenset())
    random = np.random.default_rng(SEED)
    values = Values(LIBRARY, sizes, {})
    given_values = [random_operand(random, values.shape(kind), None) for kind in operands]
    (found,) = values.results(application, given_values)
    assert found.shape[1:] == values.shape(application.types[0]), given

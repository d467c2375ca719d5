"""Every shipped operator on one device, by its native call and by its equations: values and gradients.

The first reference is torch, independent and differentiated by autograd in float64. The second is NumPy's evaluation of
the declaration and of its adjoints, at sizes that the declaration admits. There is no list of names here: every
declared operator is tested, and one without a reference fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.representative import small_instances

from ..index.gradients.test_adjoint import ALL
from ..index.operand_cases import Case
from ..index.simple_cases import KINKED
from ..index.test_ops import listed
from .test_operator_text import run, text_of

LIBRARY = load_library()
STOPPED = {"stop", "start_state", "is_above"}
"""Operators that stop gradients, for which the reference has zeros."""
SEEDS = range(2)
INSTANCES = 3


def texts(instance: Instance) -> Iterator[list[str]]:
    """The text with the native call, if there is one, and the text with the equations."""
    typed = type_operator(instance, (), Mesh(()), LIBRARY)
    assert isinstance(typed, TypedOperator)
    assert typed.native == (instance.native and instance.operator.torch is not None)
    for native in {typed.native, instance.operator.extern and typed.native}:
        yield text_of(instance, replace(typed, native=native), LIBRARY)


def fresh(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]


def draw(position: torch.Tensor, *_: object) -> np.ndarray:
    """The random numbers of the references, with seed, step and site 0."""
    return np.asarray(uniform(position.numpy()))


def cotangents_of(results: Sequence[torch.Tensor], carried: Sequence[bool]) -> list[torch.Tensor]:
    """Random output gradients; zero for results without a gradient."""
    source = torch.Generator().manual_seed(1)
    drawn = [torch.randn(result.shape, generator=source, dtype=torch.float64) for result in results]
    return [d if carries else torch.zeros_like(d) for d, carries in zip(drawn, carried, strict=True)]


def gradients(
    results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], carried: Sequence[bool]
) -> list[torch.Tensor | None]:
    """Gradients of the inputs, for random gradients of the results that carry one; None for integers."""
    both = zip(results, cotangents_of(results, carried), carried, strict=True)
    pairs = [(result, cotangent) for result, cotangent, carries in both if carries]
    floats = [x for x in inputs if x.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    moved, cotangents = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(moved, floats, cotangents, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in inputs]


def carriers(found: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], name: str = "") -> list[bool]:
    """Which results carry a gradient. A native call may return further results without one, which are only saved."""
    carried = [result.requires_grad for result in found]
    assert carried[0] == (reference[0].requires_grad and name not in STOPPED)
    return carried


def assert_equal(found: Sequence[Any], expected: Sequence[Any], lines: Sequence[str], tolerance: float) -> None:
    """Compares values or gradients. An unused operand's gradient may be missing or zero."""
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        if mine is None or other is None:
            left = [x for x in (mine, other) if x is not None]
            assert not any(x.abs().max() for x in left if x.numel()), "\n".join(lines)
        else:
            torch.testing.assert_close(
                mine,
                other.to(mine.dtype),
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
                msg=lambda text: "\n".join([text, *lines]),
            )


# ---------------------------------------------------------------------------------------------- against torch


def cases(name: str) -> Iterator[Case]:
    assert name in ALL, f"{name} needs a reference: a case in tests/index"
    for seed in SEEDS:
        case = ALL[name](np.random.default_rng(seed))
        yield case
        if name in KINKED:
            yield replace(case, inputs=[torch.round(x) for x in case.inputs])


@pytest.mark.parametrize("name", LIBRARY.operators)
def test_both_texts_are_what_torch_computes(name: str) -> None:
    for case in cases(name):
        given = fresh(case.inputs)
        expected = listed(case.reference(*given))
        for lines in texts(case.instance(LIBRARY.operators[name])):
            inputs = fresh(case.inputs)
            found = run(lines, inputs, len(expected), True, draw)
            assert_equal(found, expected, lines, 1e-12)
            carried = carriers(found, expected, name)
            given = fresh(case.inputs)
            wanted = gradients(listed(case.reference(*given)), given, carried)
            assert_equal(gradients(found, inputs, carried), wanted, lines, 1e-10)


# ---------------------------------------------------------------------------------------------- against the declaration


def operands(instance: Instance, random: np.random.Generator, positive: bool) -> list[torch.Tensor]:
    """Random operands; with `positive` their numbers are between 0 and 1, where every function has a value."""
    found = []
    for operand in instance.inputs:
        shape = instance.shape(operand)
        if operand.integer_range is not None:
            array = random.integers(0, operand.integer_range, shape)
        else:
            array = random.uniform(0.1, 0.9, shape) if positive else random.standard_normal(shape)
        found.append(torch.from_numpy(np.asarray(array)))
    return found


def valued(name: str, random: np.random.Generator) -> Iterator[tuple[Instance, list[torch.Tensor]]]:
    """Instances, and numbers between 0 and 1 for which the declaration has a value everywhere.

    A mask may leave no element over, and does so where it can hold only 0.
    """
    some = False
    for instance in small_instances(LIBRARY.operators[name], random, INSTANCES):
        for _ in range(20):
            found = operands(instance, random, positive=True)
            if not any(x.isnan().any() for x in evaluated(instance, found)):
                some = True
                yield instance, found
                break
    assert some, f"no operands were found for which {name} has a value"


def evaluated(instance: Instance, inputs: Sequence[torch.Tensor], training: bool = True) -> list[torch.Tensor]:
    arrays = [x.detach().numpy() for x in inputs]
    with np.errstate(all="ignore"):
        found = evaluate(instance, arrays, LIBRARY, training=training)
    return [torch.from_numpy(np.asarray(array)) for array in found]


@pytest.mark.parametrize("positive", [True, False], ids=["positive", "any"])
@pytest.mark.parametrize("name", LIBRARY.operators)
def test_both_texts_are_what_the_declaration_says(name: str, positive: bool) -> None:
    random = np.random.default_rng(3)
    instances = list(small_instances(LIBRARY.operators[name], random, INSTANCES))
    assert instances, f"no small sizes meet the conditions of {name}"
    drawn = ((instance, operands(instance, random, positive)) for instance in instances)
    for instance, inputs in valued(name, random) if positive else drawn:
        for training in (True, False):
            expected = evaluated(instance, inputs, training)
            for lines in texts(instance):
                found = run(lines, inputs, len(expected), training, draw)
                assert [x.dtype.is_floating_point for x in found] == [x.dtype.is_floating_point for x in expected]
                # A native call may have a value where the declaration has none.
                known = [torch.where(x.isnan(), x, mine) for x, mine in zip(expected, found, strict=True)]
                assert_equal(known, expected, lines, 1e-11)


@pytest.mark.parametrize("name", [name for name, operator in LIBRARY.operators.items() if not operator.extern])
def test_both_texts_have_the_gradient_of_the_adjoints(name: str) -> None:
    """Inputs are numbers between 0 and 1, none of them at a kink."""
    random = np.random.default_rng(4)
    for instance, given in valued(name, random):
        if instance.whole or not any(x.is_floating_point() for x in given):
            continue
        for lines in texts(instance):
            inputs = fresh(given)
            found = run(lines, inputs, len(instance.outputs), True, draw)
            carried = carriers(found, found)
            cotangents = cotangents_of(found, carried)
            expected = [
                evaluated(adjoint(instance, LIBRARY, wrt), [*given, *cotangents])[0] if x.is_floating_point() else None
                for wrt, x in enumerate(given)
            ]
            assert_equal(gradients(found, inputs, carried), expected, lines, 1e-9)

"""Text of the simple operators: by the native call and by the equations, what torch computes, gradients included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.typing import TypedOperator, type_operator
from unity_dsl.index.library import Library, load_library

from ..index.operand_cases import Case
from ..index.simple_cases import KINKED, SIMPLE_CASES, WITHOUT_NATIVE_CALL
from .test_local import run, text_of


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def cases(name: str) -> Iterator[Case]:
    for seed in range(3):
        case = SIMPLE_CASES[name](np.random.default_rng(seed))
        yield case
        if name in KINKED:
            yield replace(case, inputs=[torch.round(x) for x in case.inputs])


def texts(name: str, case: Case, library: Library) -> Iterator[list[str]]:
    """The native call, if there is one, and the equations."""
    instance = case.instance(library.operators[name])
    typed = type_operator(instance, (), Mesh(()), library)
    assert isinstance(typed, TypedOperator)
    assert typed.native == (name not in WITHOUT_NATIVE_CALL)
    for native in {typed.native, False}:
        yield text_of(instance, replace(typed, native=native), library)


def fresh(case: Case, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [x.to(dtype, copy=True).requires_grad_() if x.is_floating_point() else x for x in case.inputs]


@pytest.mark.parametrize("name", SIMPLE_CASES)
def test_both_texts_are_what_torch_computes(name: str, library: Library) -> None:
    for case in cases(name):
        given = fresh(case)
        expected = case.reference(*given)
        cotangent = torch.from_numpy(np.random.default_rng(1).standard_normal(tuple(expected.shape)))
        expected.backward(cotangent)
        for lines in texts(name, case, library):
            inputs = fresh(case)
            (found,) = run(lines, inputs, 1, True)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg="\n".join(lines))
            found.backward(cotangent)
            for mine, other in zip(inputs, given, strict=True):
                torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-12, msg="\n".join(lines))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_of_certainties_is_torch_s_and_has_a_gradient(dtype: torch.dtype, library: Library) -> None:
    case = Case([torch.tensor([0.0, 0, 1, 1, 0.5]), torch.tensor([0.0, 1, 0, 1, 1])], F.binary_cross_entropy)
    for lines in texts("binary_cross_entropy", case, library):
        inputs = fresh(case, dtype)
        (found,) = run(lines, inputs, 1, True)
        torch.testing.assert_close(found, F.binary_cross_entropy(*inputs))
        found.backward()
        gradient = inputs[0].grad
        assert gradient is not None
        torch.testing.assert_close(gradient, torch.tensor([1, 0, 0, -1, -2], dtype=dtype) / 5)

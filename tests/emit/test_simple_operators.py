"""Conditions under which the text of simple operators must be exactly torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ..index.operand_cases import Case
from .test_operator_text import run
from .test_operators import LIBRARY, texts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_of_certainties_is_torch_s_and_has_a_gradient(dtype: torch.dtype) -> None:
    case = Case([torch.tensor([0.0, 0, 1, 1, 0.5]), torch.tensor([0.0, 1, 0, 1, 1])], F.binary_cross_entropy)
    for lines in texts(case.instance(LIBRARY.operators["binary_cross_entropy"])):
        inputs = [x.to(dtype, copy=True).requires_grad_() for x in case.inputs]
        (found,) = run(lines, inputs, 1, True)
        torch.testing.assert_close(found, F.binary_cross_entropy(*inputs))
        found.backward()
        gradient = inputs[0].grad
        assert gradient is not None
        torch.testing.assert_close(gradient, torch.tensor([1, 0, 0, -1, -2], dtype=dtype) / 5)

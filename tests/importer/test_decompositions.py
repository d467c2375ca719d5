"""Operators that are decomposed into others, against torch's own, forward and backward, and modules that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.importer.complex_pairs import Pair
from unity_dsl.importer.decompositions import OWN
from unity_dsl.importer.model_import import import_module

from . import odd_modules

ATEN: Any = torch.ops.aten
CASES: list[tuple[Any, list[tuple[int, ...]], list[Any]]] = [
    (ATEN.diagonal.default, [(5, 5)], []),
    (ATEN.diagonal.default, [(3, 4, 2, 4)], [0, 1, 3]),
    (ATEN.bilinear.default, [(2, 3, 4), (2, 3, 5), (6, 4, 5), (6,)], []),
    (ATEN.avg_pool2d.default, [(2, 3, 7, 8)], [[2, 3]]),
    (ATEN.avg_pool2d.default, [(2, 3, 7, 8)], [[3, 1], [1, 1]]),
    (ATEN.avg_pool3d.default, [(2, 3, 5, 6, 7)], [[2], [2]]),
    (ATEN.avg_pool3d.default, [(2, 1, 9, 2, 2)], [[5, 1, 1], [1]]),
    (ATEN.conv3d.default, [(2, 4, 5, 6, 7), (6, 2, 3, 3, 2), (6,)], [[2, 1, 2], [1, 0, 1], [1, 2, 1], 2]),
    (ATEN.conv3d.default, [(2, 4, 5, 6, 7), (6, 4, 2, 3, 3)], [None, [1], [0], [2]]),
    (ATEN.conv_transpose3d.input, [(2, 4, 2, 3, 2), (4, 3, 2, 1, 3), (3,)], [[2, 1, 3]]),
    (ATEN.max_pool3d.default, [(2, 3, 6, 7, 8)], [[3], [2], [1]]),
    (ATEN.max_pool3d.default, [(2, 3, 6, 7, 8)], [[2, 3, 2]]),
    (ATEN.unfold.default, [(3, 4, 11)], [2, 4, 3]),
    (ATEN.cdist.default, [(2, 3, 4), (2, 5, 4)], []),
    (ATEN.prod.dim_int, [(3, 4, 5)], [1, True]),
    (ATEN.prod.default, [(3, 4)], []),
    (ATEN.cumprod.default, [(3, 6)], [-1]),
    (ATEN.linalg_vector_norm.default, [(3, 6)], [3.0, [1]]),
    (ATEN.linalg_vector_norm.default, [(3, 6)], [float("inf"), None]),
    (ATEN.linalg_norm.default, [(3, 6)], [None, [1], True]),
    (ATEN.clamp.Tensor, [(4, 6), (6,), (4, 1)], []),
    (ATEN.max.default, [(4, 6)], []),
    (ATEN.min.default, [(4, 6)], []),
    (ATEN.logcumsumexp.default, [(3, 6, 2)], [1]),
    (ATEN.ceil.default, [(4, 6)], []),
    (ATEN.trunc.default, [(4, 6)], []),
    (ATEN.frac.default, [(4, 6)], []),
    (ATEN.remainder.Scalar, [(4, 6)], [0.7]),
    (ATEN.remainder.Tensor, [(4, 6), (6,)], []),
    (ATEN.fmod.Scalar, [(4, 6)], [0.7]),
    (ATEN.fmod.Tensor, [(4, 6), (6,)], []),
    (ATEN.erfc.default, [(4, 6)], []),
    (ATEN.threshold.default, [(4, 6)], [0.1, -2.0]),
    (ATEN.celu.default, [(4, 6)], [0.5]),
    (ATEN.asinh.default, [(4, 6)], []),
    (ATEN.tan.default, [(4, 6)], []),
    (ATEN.var_mean.dim, [(4, 6, 3)], [[0, 2], False, True]),
    (ATEN.var_mean.correction, [(4, 6, 3)], [[1]]),
    (ATEN._native_batch_norm_legit.no_stats, [(5, 3, 4), (3,), (3,)], [True, 0.1, 1e-5]),
    (ATEN._native_batch_norm_legit.no_stats, [(5, 3)], [None, None, True, 0.1, 1e-5]),
]


@pytest.mark.parametrize(("operator", "shapes", "others"), CASES, ids=lambda part: str(part)[:40])
def test_what_is_written_out_is_the_same(operator: Any, shapes: list[tuple[int, ...]], others: list[Any]) -> None:
    torch.manual_seed(3)
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def results(function: Callable[..., Any]) -> list[Tensor]:
        """The results, and the gradients of the first result."""
        found = function(*given, *others)
        made, *more = found if isinstance(found, tuple) else (found,)
        weights = torch.linspace(-1, 1, made.numel(), dtype=torch.float64).reshape(made.shape)
        return [made, *more, *torch.autograd.grad((made * weights).sum(), given)]

    for own, known in zip(results(OWN[operator]), results(operator), strict=True):
        torch.testing.assert_close(own, known, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (ATEN.diagonal.default, [torch.ones(3, 4)]),
        (ATEN.avg_pool2d.default, [torch.ones(1, 1, 9, 9), [9, 2]]),
        (ATEN.avg_pool2d.default, [torch.ones(1, 1, 9, 9), [2, 3], [1], [1, 0]]),
        (ATEN.max_pool3d.default, [torch.ones(1, 1, 5, 5, 5), [2], [2], [0], [1], True]),
        (ATEN.conv_transpose3d.input, [torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 3, 3, 3), None, [2]]),
        (ATEN.prod.default, [torch.ones(99)]),
        (ATEN.cdist.default, [torch.ones(2, 3), torch.ones(2, 3), 1.0]),
        (ATEN.linalg_norm.default, [torch.ones(3, 3), 2.0]),
        (ATEN.index.Tensor, [torch.ones(3, 3), [torch.tensor([1]), None]]),
        (ATEN.index.Tensor, [torch.ones(3, 3, 3), [torch.tensor([1]), None, torch.tensor([1])]]),
    ],
    ids=str,
)
def test_what_cannot_be_written_out_is_left(operator: Any, arguments: list[Any]) -> None:
    assert OWN[operator](*arguments) is NotImplemented


def test_places_along_several_dimensions_may_count_from_the_end() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    first, second = torch.tensor([[0, -1], [2, 1]]), torch.tensor([-4, 3])
    for places in ([first, second], [None, second, second], [first, second, second]):
        assert torch.equal(OWN[ATEN.index.Tensor](x, places), ATEN.index.Tensor(x, places))


def test_pairs_are_complex_numbers() -> None:
    torch.manual_seed(5)
    x, y = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    one, two = torch.view_as_complex(x), torch.view_as_complex(y)
    pair, other = Pair(x[..., 0], x[..., 1]), Pair(y[..., 0], y[..., 1])
    cases = [
        (pair * other, one * two),
        (pair * two, one * two),
        (2.0 * pair - other, 2.0 * one - two),
        (pair.conj() * (1 + 2j) + 1.0, one.conj() * (1 + 2j) + 1.0),
        (pair[1:].transpose(0, 1).reshape(2, 4) + two[0], one[1:].transpose(0, 1).reshape(2, 4) + two[0]),
    ]
    for found, known in cases:
        assert found.shape == known.shape and found.dim() == known.dim()
        torch.testing.assert_close(torch.complex(found.real, found.imag), known)
    with pytest.raises(AttributeError, match="have no `abs`"):
        pair.abs()


@pytest.mark.parametrize("name", ["video", "decorrelated", "tagged", "checkpointed", "complex_positions"])
def test_modules_that_need_it(name: str) -> None:
    found = import_module(f"{odd_modules.__name__}:{name}", name, sizes=False)
    assert found.verified is not None and found.verified.ok


def test_numbers_of_a_batch_are_drawn_below_what_the_module_takes() -> None:
    """Positions in a table that merges two dimensions exceed the tags from which they are computed."""
    found = import_module(f"{odd_modules.__name__}:tagged", "tagged", sizes=False)
    assert '"tags": torch.randint(4, ' in found.files["data.py"] and "int<16>" in found.files["tagged.udl"]

"""Arrangements of axes against torch: the elements of a view, and its text."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
import torch
from torch import Tensor

from unity_dsl.importer.views import Unarranged, Value, View, whole

from ..sampling import SAMPLE


def shown(view: View, tensor: Tensor) -> Tensor:
    """The elements of a value as a view shows them, computed by torch."""
    axes = [axis for dim in view.base for axis in dim]
    seen = [axis for dim in view.dims for axis in dim]
    split = tensor.reshape([axis.size for axis in axes])
    own = [axis for axis in seen if axis in axes]
    split = split.permute([axes.index(axis) for axis in own])
    for place, axis in enumerate(seen):
        if axis not in axes:
            split = split.unsqueeze(place).expand(*split.shape[:place], axis.size, *split.shape[place:])
    return split.reshape(view.shape)


def changed(view: View, tensor: Tensor, random: Random) -> tuple[View, Tensor]:
    """A random change of the arrangement, and the same change of the tensor by torch."""
    kind, rank = random.choice(("permute", "reshape", "unsqueeze", "expand")), tensor.dim()
    if kind == "permute":
        order = random.sample(range(rank), rank)
        return view.permuted(order), tensor.permute(order)
    if kind == "unsqueeze":
        place = random.randint(0, rank)
        return view.arranged([*view.dims[:place], (), *view.dims[place:]]), tensor.unsqueeze(place)
    if kind == "expand":
        shape = [random.choice((2, 3)) if size == 1 else size for size in tensor.shape]
        return view.expanded(shape), tensor.expand(shape)
    left, shape = prod(tensor.shape), []
    while left > 1:
        size = random.choice([size for size in range(2, left + 1) if left % size == 0])
        shape.append(size)
        left //= size
    return view.reshaped(shape), tensor.reshape(shape)


@pytest.mark.parametrize("seed", range(SAMPLE, SAMPLE + 40))
def test_random_arrangements(seed: int) -> None:
    random = Random(seed)
    tensor = torch.arange(24.0).reshape(random.choice([(2, 3, 4), (24,), (4, 6), (1, 12, 2), (2, 2, 2, 3)]))
    view, expected = whole(Value(tuple(tensor.shape))), tensor
    for _ in range(5):
        try:
            view, expected = changed(view, expected, random)
        except Unarranged:
            continue
        assert view.shape == tuple(expected.shape), seed
        assert torch.equal(shown(view, tensor), expected), seed


def test_text() -> None:
    view = whole(Value((2, 8, 32)))
    assert view.text("x") == "x"
    heads = view.reshaped((2, 8, 4, 8)).permuted((0, 2, 1, 3))
    assert heads.text("q") == "q[a, b, (c d=8)] -> [a, c, b, d]"
    assert heads.permuted((0, 2, 1, 3)).reshaped((2, 8, 32)).text("q") == "q"
    assert heads.reshaped((8, 8, 8)).text("q") == "q[a, b, (c d=8)] -> [(a c), b, d]"
    assert view.reshaped((16, 32)).reshaped((2, 8, 32)).is_whole
    assert whole(Value((1, 3))).arranged([(), *whole(Value((1, 3))).dims]).shape == (1, 1, 3)


def test_a_size_that_cuts_through_an_axis_is_refused() -> None:
    view = whole(Value((6, 4)))
    for shape in ((4, 6), (5, 5), (24, 2)):
        with pytest.raises(Unarranged):
            view.reshaped(shape)
    with pytest.raises(Unarranged, match="repeated"):
        whole(Value((1, 4))).expanded((3, 4)).text("x")

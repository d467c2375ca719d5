"""Which parameter of a reference module corresponds to a weight of a model, and copies between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Place:
    """A weight is the rows `first` to `last` of a parameter (all by default), in the weight's own shape."""

    parameter: str
    first: int = 0
    last: int | None = None

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)


Places = Mapping[str, Place]
"""The places, by the full names of the weights."""


def copy_into(module: nn.Module, weights: Mapping[str, Tensor], places: Places) -> None:
    """Copies the model's weights into the module. Every element of every parameter must belong to just one weight."""
    parameters = dict(module.named_parameters())
    assert set(weights) == set(places)
    written = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    with torch.no_grad():
        for name, place in places.items():
            rows = parameters[place.parameter][place.rows]
            assert rows.numel() == weights[name].numel(), name
            rows.copy_(weights[name].reshape(rows.shape))
            written[place.parameter][place.rows] += 1
    assert all(bool((count == 1).all()) for count in written.values())


def gradients(module: nn.Module, weights: Mapping[str, Tensor], places: Places) -> Iterator[tuple[str, Tensor]]:
    """Name and gradient, in the weight's shape, of every weight after a backward pass of the module. The gradient is 0
    where a block was skipped.
    """
    parameters = dict(module.named_parameters())
    for name, place in places.items():
        parameter = parameters[place.parameter]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        yield name, gradient[place.rows].reshape(weights[name].shape)

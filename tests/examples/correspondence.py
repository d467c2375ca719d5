"""Which parameter of a reference module a weight of a model is, and the copies between them."""

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
"""By the full name of the weight."""


def copy_into(module: nn.Module, weights: Mapping[str, Tensor], places: Places) -> None:
    """Give the module the model's weights. Every element of every parameter must be some weight's, and only one's."""
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
    """(name, gradient in the weight's shape) of every weight, after a backward pass of the module; 0 where a block was
    skipped.
    """
    parameters = dict(module.named_parameters())
    for name, place in places.items():
        parameter = parameters[place.parameter]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        yield name, gradient[place.rows].reshape(weights[name].shape)

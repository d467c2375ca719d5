"""Operands with which a test calls an operator, and the result of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.syntax.ast import OperatorDecl

Random = np.random.Generator
Tensors = list[torch.Tensor]


@dataclass
class Case:
    """Operands of one call, and the torch reference. `ranges` are the bounds of integer operands, by position."""

    inputs: Tensors
    reference: Callable[..., torch.Tensor | Tensors]
    attributes: Mapping[str, int | float] = field(default_factory=dict)
    ranges: Mapping[int, int] = field(default_factory=dict)
    binding: Binding | None = None

    def instance(self, operator: OperatorDecl) -> Instance:
        shapes = [Shape(tuple(t.shape), self.ranges.get(n)) for n, t in enumerate(self.inputs)]
        return instantiate(operator, shapes, self.attributes, binding=self.binding)


def normal(random: Random, *shape: int) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal(shape))


def sizes(random: Random, count: int) -> list[int]:
    return [int(size) for size in random.integers(1, 5, count)]


def any_shape(random: Random) -> list[int]:
    return sizes(random, int(random.integers(0, 4)))


def unary(reference: Callable[..., torch.Tensor], **attributes: float) -> Callable[[Random], Case]:
    return lambda random: Case([normal(random, *any_shape(random))], reference, attributes)


def broadcast_shapes(random: Random, count: int) -> list[list[int]]:
    """Shapes that broadcast: the last dimensions of one shape, some of them replaced by 1."""
    full = any_shape(random)
    shapes = []
    for _ in range(count):
        kept = full[int(random.integers(0, len(full) + 1)) :]
        shapes.append([size if random.random() < 0.6 else 1 for size in kept])
    return shapes


def broadcast(reference: Callable[..., torch.Tensor]) -> Callable[[Random], Case]:
    return lambda random: Case([normal(random, *shape) for shape in broadcast_shapes(random, 2)], reference)

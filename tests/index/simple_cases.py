"""Cases of elementwise operators, of losses, of bags of rows and of products of pairs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .operand_cases import Case, Random, any_shape, broadcast, broadcast_shapes, normal, sizes, unary

Reference = Callable[..., torch.Tensor]


def positive(reference: Reference, **attributes: float) -> Callable[[Random], Case]:
    return lambda random: Case([normal(random, *any_shape(random)).abs() + 0.1], reference, attributes)


def wide(reference: Reference, **attributes: float) -> Callable[[Random], Case]:
    """A case with large operands, at which exponentials also underflow."""
    return lambda random: Case([100 * normal(random, *any_shape(random))], reference, attributes)


def pair(reference: Reference, scale: float = 1, **attributes: float) -> Callable[[Random], Case]:
    """A case of two tensors of one shape."""

    def made(random: Random) -> Case:
        shape = any_shape(random)
        return Case([scale * normal(random, *shape), normal(random, *shape)], reference, attributes)

    return made


def probabilities(random: Random) -> Case:
    """Binary cross entropy of operands for which torch clamps no gradient."""
    shape = any_shape(random)
    inputs = [torch.sigmoid(normal(random, *shape)), torch.sigmoid(normal(random, *shape))]
    return Case(inputs, F.binary_cross_entropy)


def mask(random: Random, shape: list[int]) -> torch.Tensor:
    return torch.as_tensor(random.integers(0, 3, shape))


def choose(random: Random) -> Case:
    first, second, third = broadcast_shapes(random, 3)
    inputs = [mask(random, first), normal(random, *second), normal(random, *third)]
    return Case(inputs, lambda mask, x, y: torch.where(mask != 0, x, y), ranges={0: 3})


def masked_fill(random: Random) -> Case:
    first, second = broadcast_shapes(random, 2)
    inputs = [normal(random, *first), mask(random, second)]
    return Case(inputs, lambda x, mask: torch.where(mask != 0, -1.5, x), {"value": -1.5}, {1: 3})


def log_softmax(random: Random) -> Case:
    return Case([300 * normal(random, *any_shape(random), *sizes(random, 1))], lambda x: torch.log_softmax(x, -1))


def bag(mode: str) -> Callable[[Random], Case]:
    def made(random: Random) -> Case:
        v, d, entries = sizes(random, 3)
        shape = any_shape(random)
        ids = torch.as_tensor(random.integers(0, v, (*shape, entries)))

        def reference(ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.embedding_bag(ids.reshape(-1, entries), w, mode=mode).reshape(*shape, d)

        return Case([ids, normal(random, v, d)], reference, ranges={0: v})

    return made


def lower_triangle(random: Random) -> Case:
    f = int(random.integers(2, 6))

    def reference(x: torch.Tensor) -> torch.Tensor:
        rows, columns = torch.tril_indices(f, f, -1)
        return x[..., rows, columns]

    return Case([normal(random, *any_shape(random), f, f)], reference)


def steered(value: torch.Tensor, *gradients: torch.Tensor) -> torch.Tensor:
    """The value, with the gradients of `gradients`."""
    return sum((part - part.detach() for part in gradients), start=value.detach())


SIMPLE_CASES: dict[str, Callable[[Random], Case]] = {
    "neg": unary(torch.neg),
    "abs": unary(torch.abs),
    "square": unary(torch.square),
    "sqrt": positive(torch.sqrt),
    "rsqrt": positive(torch.rsqrt),
    "log": positive(torch.log),
    "power": unary(lambda x: x**3, exponent=3),
    "clamp": unary(lambda x: torch.clamp(x, -1, 0), lo=-1, hi=0),
    "maximum": broadcast(torch.maximum),
    "minimum": broadcast(torch.minimum),
    "softplus": wide(lambda x: F.softplus(x, threshold=600)),
    "leaky_relu": unary(lambda x: F.leaky_relu(x, 0.2), slope=0.2),
    "elu": wide(lambda x: F.elu(x, 1.5), alpha=1.5),
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "erf": unary(torch.erf),
    "floor": unary(lambda x: torch.floor(x) + 0 * x),
    "round": unary(lambda x: torch.round(x) + 0 * x),
    "is_above": unary(lambda x: (x > 0.5).to(x) + 0 * x, bound=0.5),
    "hardsigmoid": unary(lambda x: torch.where((x > -3) & (x < 3), x / 6 + 0.5, (x >= 3).to(x))),
    "hardswish": unary(lambda x: torch.where(x >= 3, x, torch.where(x <= -3, 0 * x, x * (x + 3) / 6))),
    "choose": choose,
    "masked_fill": masked_fill,
    "log_softmax": log_softmax,
    "l1": pair(F.l1_loss),
    "huber": pair(lambda x, y: F.huber_loss(x, y, delta=1), scale=3, delta=1),
    "smooth_l1": pair(lambda x, y: F.smooth_l1_loss(x, y, beta=2), scale=3, beta=2),
    "binary_cross_entropy_with_logits": pair(F.binary_cross_entropy_with_logits, scale=100),
    "binary_cross_entropy": probabilities,
    "embedding_bag": bag("sum"),
    "embedding_bag_mean": bag("mean"),
    "lower_triangle": lower_triangle,
    "stop": unary(lambda x: steered(x, 0 * x)),
    "straight_through": pair(lambda value, x: steered(value, 0 * value, x)),
    "reverse_gradient": unary(lambda x: steered(x, -0.3 * x), scale=0.3),
}
KINKED = ("abs", "clamp", "maximum", "minimum", "leaky_relu", "elu", "l1", "huber", "smooth_l1", "power")
"""Operators whose kinks and ties are at whole numbers. They have gradients there as elsewhere."""
WITHOUT_NATIVE_CALL = {"binary_cross_entropy", "lower_triangle", "straight_through", "reverse_gradient"}

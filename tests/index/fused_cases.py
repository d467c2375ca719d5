"""Cases of the operators of `ops/fused.uop` and of `nll`, against the torch calls that each replaces."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .operand_cases import Case, Random, Tensors, any_shape, normal, sizes

EPS = 0.01


def activated(activation: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Random], Case]:
    def made(random: Random) -> Case:
        i, o = sizes(random, 2)
        inputs = [normal(random, *any_shape(random), i), normal(random, o, i), normal(random, o)]
        return Case(inputs, lambda x, w, bias: activation(F.linear(x, w, bias)))

    return made


def project_bias(random: Random) -> Case:
    (i,) = sizes(random, 1)
    out = any_shape(random)
    inputs = [normal(random, *any_shape(random), i), normal(random, *out, i), normal(random, *out)]
    return Case(inputs, lambda x, w, bias: torch.tensordot(x, w, dims=([-1], [-1])) + bias)


def layer_norm_linear(random: Random) -> Case:
    i, o = sizes(random, 2)
    inputs = [normal(random, *any_shape(random), i), normal(random, i), normal(random, i), normal(random, o, i)]
    return Case(inputs, lambda x, g, b, w: F.linear(F.layer_norm(x, [i], g, b, EPS), w), {"eps": EPS})


def rms_norm_linear(random: Random) -> Case:
    i, o = sizes(random, 2)
    inputs = [normal(random, *any_shape(random), i), normal(random, i), normal(random, o, i)]
    return Case(inputs, lambda x, g, w: F.linear(F.rms_norm(x, [i], g, EPS), w), {"eps": EPS})


def add_layer_norm(random: Random) -> Case:
    (c,) = sizes(random, 1)
    shape = [*any_shape(random), c]

    def reference(x: torch.Tensor, z: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> Tensors:
        return [x + z, F.layer_norm(x + z, [c], gain, bias, EPS)]

    inputs = [normal(random, *shape), normal(random, *shape), normal(random, c), normal(random, c)]
    return Case(inputs, reference, {"eps": EPS})


def add_rms_norm(random: Random) -> Case:
    (c,) = sizes(random, 1)
    shape = [*any_shape(random), c]
    inputs = [normal(random, *shape), normal(random, *shape), normal(random, c)]
    return Case(inputs, lambda x, z, gain: [x + z, F.rms_norm(x + z, [c], gain, EPS)], {"eps": EPS})


def nll(random: Random) -> Case:
    (c,) = sizes(random, 1)
    shape = any_shape(random)
    target = torch.as_tensor(random.integers(0, c, shape))
    inputs = [normal(random, *shape, c), target]
    return Case(inputs, lambda x, target: -x.gather(-1, target[..., None]).mean(), ranges={1: c})


FUSED_CASES: dict[str, Callable[[Random], Case]] = {
    "linear_bias_relu": activated(F.relu),
    "linear_bias_gelu": activated(F.gelu),
    "linear_bias_gelu_tanh": activated(lambda x: F.gelu(x, approximate="tanh")),
    "project_bias": project_bias,
    "layer_norm_linear": layer_norm_linear,
    "rms_norm_linear": rms_norm_linear,
    "add_layer_norm": add_layer_norm,
    "add_rms_norm": add_rms_norm,
    "nll": nll,
}
FUSED_BY_STATEMENTS = FUSED_CASES.keys() - {"nll"}
"""The fused operators without a native line."""

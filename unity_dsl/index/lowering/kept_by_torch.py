"""Which tensors torch's autograd saves for each allowed call, after its derivatives.yaml.

The tables cover calls that are one kernel of torch. Composite calls save what their parts save, and are listed by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Kept(Enum):
    """What autograd saves for a call if one of its tensors has a gradient."""

    NOTHING = "nothing"
    FIRST = "its first tensor"
    OPERANDS = "all of its tensors"
    RESULT = "its result"
    EXTREMUM = "its first tensor and its result"
    ALL = "all of its tensors and its result"
    MASK = "its tensors without gradient that are no floats"
    PLACES = "the places of what is added, where that has a gradient"
    FACTORS = "each tensor that meets another one with a gradient"
    QUOTIENT = "its divisor; its dividend where the divisor has a gradient"
    POWER = "base and exponent where they are tensors, and the result where the exponent is one"


_NAMES: Mapping[Kept, str] = {
    Kept.NOTHING: """
        + - neg reduce .sum .cumsum .flip .to F.pad torch.add torch.sub torch.neg torch.sum torch.mean torch.cat
        torch.cumsum torch.flip torch.roll torch.ceil torch.floor torch.round torch.trunc torch.sign torch.clone .max
        .min torch.sort torch.topk
    """,
    Kept.FIRST: """
        torch.log torch.log10 torch.log1p torch.log2 torch.erf torch.sin torch.cos torch.sinh torch.cosh torch.asin
        torch.acos torch.atan torch.asinh torch.acosh torch.atanh torch.abs torch.square torch.clamp F.silu F.gelu
        F.softplus F.elu F.leaky_relu F.hardtanh F.max_pool1d F.max_pool2d F.avg_pool1d F.avg_pool2d
        F.adaptive_avg_pool2d
    """,
    Kept.OPERANDS: """
        torch.maximum torch.minimum F.mse_loss F.huber_loss F.smooth_l1_loss F.binary_cross_entropy
        F.binary_cross_entropy_with_logits F.conv1d F.conv2d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d
        torch.gather .take_along_dim
    """,
    Kept.RESULT: """
        torch.exp torch.exp2 torch.expm1 torch.sqrt torch.rsqrt torch.tanh torch.tan torch.sigmoid torch.relu
        torch.softmax F.log_softmax
    """,
    Kept.EXTREMUM: ".amax .amin .prod torch.amax torch.amin torch.logsumexp torch.prod",
    Kept.MASK: """
        torch.where torch.masked_fill .masked_fill [] F.embedding
    """,
    Kept.ALL: ".scatter_reduce",
    Kept.PLACES: ".index_put .scatter_add torch.scatter_add",
    Kept.FACTORS: "* torch.mul",
    Kept.QUOTIENT: "/ torch.div",
    Kept.POWER: "torch.pow",
}
KEPT: Mapping[str, Kept] = {name: kept for kept, names in _NAMES.items() for name in names.split()}

WITH_POSITIONS = frozenset({".max", ".min", "torch.sort", "torch.topk", "F.max_pool1d", "F.max_pool2d"})
"""Calls that also make and save the position of each element that they take."""

"""Mixtures of experts, whose code sorts tokens: their calls become a block of dispatched products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .blocks import Block
from .translation import Entry, Translation, Unsupported
from .views import Part, View, whole
from .whole_calls import FORMS, Replacement, Result, WholeCall

_TEXT = """\
## Gated feed-forward experts of which every token asks some; `s` places for each are enough for all tokens of a group.
block {name}[s](x, chosen, weights, gate, up, down)
  places = expert_places(chosen)
  given = dispatch(x, chosen, places; capacity=s)
  gated = {activation}(expert_linear(given, gate)) * expert_linear(given, up)
  return combine_experts(expert_linear(gated, down), chosen, places, weights)
"""
_CLAMPED = """\
## Gated feed-forward experts with biases and clamped gates, of which every token asks some; `s` places for each are
## enough for all tokens of a group.
block clamped_experts[s, limit, alpha](x, chosen, weights, gate_up, gate_up_bias, down, down_bias)
  places = expert_places(chosen)
  given = dispatch(x, chosen, places; capacity=s)
  both = expert_linear(given, gate_up[e, i, o] -> [e, o, i]) + (gate_up_bias[e, o] -> [e, 1, 1, o])
  pairs = both[e, g, c, (o p=2)] -> [e, g, c, o, p]
  gate = clamp(slice(pairs; dim=4, start=0, stop=1); lo=-1e30, hi=limit)
  up = clamp(slice(pairs; dim=4, start=1, stop=2); lo=-limit, hi=limit)
  gated = (up + 1) * (gate * sigmoid(scale(gate; factor=alpha)))
  made = expert_linear(gated[e, g, c, o, 1] -> [e, g, c, o], down[e, i, o] -> [e, o, i])
  return combine_experts(made + (down_bias[e, o] -> [e, 1, 1, o]), chosen, places, weights)
"""
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def _is_experts(module: nn.Module) -> bool:
    up, down = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    if not isinstance(up, nn.Parameter) or not isinstance(down, nn.Parameter) or not hasattr(module, "act_fn"):
        return False
    alike = up.dim() == down.dim() == 3 and tuple(up.shape) == (down.shape[0], 2 * down.shape[2], down.shape[1])
    return alike and len(list(module.parameters())) == 2


def _is_clamped(module: nn.Module) -> bool:
    names = {name for name, _ in module.named_parameters()}
    wanted = {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"}
    return names == wanted and hasattr(module, "alpha") and hasattr(module, "limit")


def called_clamped(walk: Translation, call: WholeCall) -> list[Entry]:
    """The result of experts with biases and clamped gates, as in GPT-OSS. Raises Unsupported."""
    module: Any = call.module
    own = [walk.view(call.own[f"{name}_proj{end}"]) for name in ("gate_up", "down") for end in ("", "_bias")]
    shaped, shape = _in_groups(walk, call, own[3].shape[1])
    block = Block(_CLAMPED, s=shaped[0].shape[1], limit=float(module.limit), alpha=float(module.alpha))
    (result,) = walk.call(block, (*shaped, *own), (shaped[0].shape,))
    return [result.reshaped(shape)]


def called_experts(walk: Translation, call: WholeCall) -> list[Entry]:
    """The result of gated experts. Raises Unsupported."""
    both, down = (walk.view(call.own[name]) for name in ("gate_up_proj", "down_proj"))
    shaped, shape = _in_groups(walk, call, down.shape[1])
    name, rows = _activation(call.module), down.shape[2]
    block = Block(_TEXT.format(name=f"{name}_experts", activation=name), s=shaped[0].shape[1])
    parts = Part(1, 0, rows, "gate"), Part(1, rows, 2 * rows, "up")
    gate, up = (whole(both.value.part_of(part)) for part in parts)
    (result,) = walk.call(block, (*shaped, gate, up, down), (shaped[0].shape,))
    return [result.reshaped(shape)]


def _in_groups(walk: Translation, call: WholeCall, width: int) -> tuple[list[View], tuple[int, ...]]:
    """Tokens, choices and weights as [groups, tokens, …], and the original shape of the tokens."""
    x, chosen, weights = _operands(walk, call, width)
    x = x.reshaped((x.shape[0], x.shape[1])) if len(x.dims) == 2 else x
    groups, places = _groups(x)
    return [view.reshaped((groups, places, view.shape[-1])) for view in (x, chosen, weights)], x.shape


def _groups(x: View) -> tuple[int, int]:
    """The batch size and the sequence length that the tokens' dimension merges; 1 group if it is one axis."""
    axes = x.dims[0]
    if len(axes) < 2:
        return 1, x.shape[0]
    return axes[0].size, x.shape[0] // axes[0].size


def _operands(walk: Translation, call: WholeCall, width: int) -> tuple[View, View, View]:
    views = [walk.view(entry) for entry in call.given.values()]
    chosen = [view for view in views if view.value.bound is not None]
    tokens = [view for view in views if view.value.bound is None and view.shape[-1] == width]
    weights = [view for view in views if chosen and view.shape == chosen[0].shape and view.value.bound is None]
    if len(chosen) != 1 or not tokens or not weights:
        raise Unsupported("experts that are called with other than tokens, choices and weights")
    return tokens[0], chosen[0], weights[-1]


def _activation(module: nn.Module | None) -> str:
    assert module is not None
    x = torch.linspace(-3, 3, 101, dtype=torch.float64)
    own = module.get_submodule("act_fn")(x)
    for name, function in _ACTIVATIONS.items():
        if torch.allclose(own, function(x), 0, 1e-12):
            return name
    raise Unsupported(f"experts with {type(module.act_fn).__name__}")


def _returned(values: Mapping[str, Any]) -> Result:
    """A result like the tokens, which are the first argument."""
    return Result.like(next(iter(values.values())))


FORMS += [
    (_is_experts, Replacement(called_experts, _returned)),
    (_is_clamped, Replacement(called_clamped, _returned)),
]

"""Mixtures of experts, found as modules: what their code does by sorting tokens is a block of dispatched products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional as F

from .blocks import Block
from .translation import FINDERS, Entry, Region, Translation, Unsupported, module_path
from .views import Value, View, whole

_TEXT = """\
## Gated feed-forward experts of which every token asks some; `s` places for each are enough for all tokens of a group.
block {name}[s, h](x, chosen, weights, gate_up, down)
  places = expert_places(chosen)
  given = dispatch(x, chosen, places; capacity=s)
  both = expert_linear(given, gate_up)
  gate = {activation}(slice(both; dim=3, start=0, stop=h))
  made = expert_linear(gate * slice(both; dim=3, start=h, stop=2 * h), down)
  return combine_experts(made, chosen, places, weights)
"""
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def regions(walk: Translation) -> Iterator[Region]:
    """The modules of experts with weights [experts, 2 * hidden, d] and [experts, d, hidden]."""
    graph = walk.captured.program.graph
    by_path = {node: module_path(node) for node in graph.nodes if node.op == "call_function"}
    for name, module in walk.captured.module.named_modules():
        if not _is_experts(module):
            continue
        path = tuple(name.split("."))
        nodes = frozenset(node for node, own in by_path.items() if own[: len(path)] == path)
        left = [node for node in nodes if any(user not in nodes for user in node.users)]
        if len(left) == 1:
            yield Region("experts", path, module, nodes, left[0], called_experts)


def _is_experts(module: nn.Module) -> bool:
    up, down = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    if not isinstance(up, nn.Parameter) or not isinstance(down, nn.Parameter) or not hasattr(module, "act_fn"):
        return False
    alike = up.dim() == down.dim() == 3 and tuple(up.shape) == (down.shape[0], 2 * down.shape[2], down.shape[1])
    return alike and len(list(module.parameters())) == 2


def called_experts(walk: Translation, region: Region) -> Entry:
    """What the experts of a region make of their tokens. Raises Unsupported."""
    own = ".".join(region.path)
    states = {state: node for node, state in walk.captured.states.items()}
    nodes = {node.name: node for node in walk.captured.program.graph.nodes}
    up, down = (walk.view(walk.entries[nodes[states[f"{own}.{name}"]]]) for name in ("gate_up_proj", "down_proj"))
    x, chosen, weights = _operands(walk, region, down.shape[1])
    x = x.reshaped((x.shape[0], x.shape[1])) if len(x.dims) == 2 else x
    groups, places = _groups(x)
    shaped = [view.reshaped((groups, places, view.shape[-1])) for view in (x, chosen, weights)]
    name = _activation(region.module)
    block = Block(f"{name}_experts", _TEXT.format(name=f"{name}_experts", activation=name))
    result = Value((groups, places, x.shape[-1]))
    walk.call(block, (*shaped, up, down), (result,), {"s": places, "h": down.shape[2]})
    return whole(result).reshaped(x.shape)


def _groups(x: View) -> tuple[int, int]:
    """The sizes of the batch and of a sequence in the tokens' dimension."""
    axes = x.dims[0]
    if len(axes) < 2:
        return 1, x.shape[0]
    return axes[0].size, x.shape[0] // axes[0].size


def _operands(walk: Translation, region: Region, width: int) -> tuple[View, View, View]:
    given = [walk.entries[node] for node in _read(region)]
    views = [entry for entry in given if isinstance(entry, View) and entry.value.kind != "weight"]
    chosen = [view for view in views if view.value.bound is not None]
    tokens = [view for view in views if view.value.bound is None and view.shape[-1] == width]
    weights = [view for view in views if chosen and view.shape == chosen[0].shape and view.value.bound is None]
    if len(chosen) != 1 or not tokens or not weights:
        raise Unsupported("experts that are called with other than tokens, choices and weights")
    return tokens[0], chosen[0], weights[-1]


def _read(region: Region) -> list[Node]:
    """What the region reads from outside, in order."""
    found = dict.fromkeys(other for node in region.nodes for other in node.all_input_nodes if other not in region.nodes)
    return list(found)


def _activation(module: nn.Module) -> str:
    x = torch.linspace(-3, 3, 101, dtype=torch.float64)
    own = module.get_submodule("act_fn")(x)
    for name, function in _ACTIVATIONS.items():
        if torch.allclose(own, function(x), 0, 1e-12):
            return name
    raise Unsupported(f"experts with {type(module.act_fn).__name__}")


FINDERS.append(regions)

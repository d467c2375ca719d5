"""The modules of `by_hand.py` on several ranks, parallelised by hand: DDP, FSDP2, and DTensor tensor parallelism.

Each function takes the module with unsharded weights and returns a `Divided`. Its `step` runs forward and backward pass
on this rank's part of a global batch, and its `parameters` are those that an optimizer updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from by_hand import Batch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Divided:
    """A module on this rank. The global batch is divided into `parts`, of which this rank takes its own."""

    def __init__(self, module: nn.Module, rank: int, parts: int, parallel_loss: bool = False) -> None:
        self.module, self.rank, self.parts, self.parallel_loss = module, rank, parts, parallel_loss
        self.parameters = list(module.parameters())

    def step(self, batch: Batch) -> Tensor:
        """Runs forward and backward pass of this rank's part of the global batch; returns its loss."""
        own = {name: tensor.chunk(self.parts)[self.rank if self.parts > 1 else 0] for name, tensor in batch.items()}
        if self.parallel_loss:
            with loss_parallel():
                loss = self.module(**own)
                loss.backward()
            return loss.full_tensor() if hasattr(loss, "full_tensor") else loss
        loss = self.module(**own)
        loss.backward()
        return loss


def data_parallel(module: nn.Module, mesh: DeviceMesh) -> Divided:
    """DDP with its default buckets of 25 MB, and gradients that are views of the buckets."""
    return Divided(DistributedDataParallel(module, gradient_as_bucket_view=True), dist.get_rank(), mesh.size())


def fully_sharded(module: nn.Module, mesh: DeviceMesh) -> Divided:
    """FSDP2, with each layer as its own unit."""
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return Divided(module, dist.get_rank(), mesh.size())


COLUMNS, ROWS = ColwiseParallel, RowwiseParallel
PLANS: Mapping[str, Mapping[str, type]] = {
    "gpt2": {"qkv": COLUMNS, "out": ROWS, "up": COLUMNS, "down": ROWS},
    "llama3_8b": {
        **dict.fromkeys(("query", "key", "value", "gate", "up"), COLUMNS),
        **dict.fromkeys(("out", "down"), ROWS),
    },
}


def tensor_parallel(example: str, module: nn.Module, mesh: DeviceMesh) -> Divided:
    """Megatron's tensor parallelism of every layer by `parallelize_module`. A separate head is sharded by columns, and
    the loss with it.
    """
    for layer in module.layers:
        layer.heads //= mesh.size()
        if hasattr(layer, "kv_heads"):
            layer.kv_heads //= mesh.size()
        if hasattr(layer, "qkv"):  # order the rows of queries, keys and values by rank
            for tensor in (layer.qkv.weight, layer.qkv.bias):
                by_rank = tensor.data.unflatten(0, (3, mesh.size(), -1)).transpose(0, 1)
                tensor.data.copy_(by_rank.flatten(0, 2).clone())
        parallelize_module(layer, mesh, {name: kind() for name, kind in PLANS[example].items()})
    head = isinstance(getattr(module, "head", None), nn.Linear)
    if head:
        last = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(module, mesh, {"head": last})
    return Divided(module, dist.get_rank(), 1, head)


def by_hand(way: str, example: str, module: nn.Module, mesh: DeviceMesh) -> Divided:
    """The module parallelised in one of the three ways."""
    ways: Mapping[str, Callable[[], Divided]] = {
        "ddp": lambda: data_parallel(module, mesh),
        "fsdp2": lambda: fully_sharded(module, mesh),
        "dtensor": lambda: tensor_parallel(example, module, mesh),
    }
    return ways[way]()


def optimizer_of(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW with one parameter group per tensor type, because foreach kernels do not mix DTensors with others."""
    kinds: dict[type, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(type(parameter.data), []).append(parameter)
    return torch.optim.AdamW([{"params": found} for found in kinds.values()], lr=1e-3, foreach=True)

"""Counts the bytes that a program holds on a rank in a training step. Imported by the ranks of a pool."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from unity_dsl.emit.rank_comparison import load_program


@dataclass(frozen=True)
class Counted:
    """Bytes held before the second step of AdamW, the peak during this step, and the kernel that reached the peak."""

    held: int
    peak: int
    at: str


LETTING_GO = 0.1
"""Seconds after which gloo's threads have released the tensors that they sent. Until then these tensors stay alive."""


class Alive(TorchDispatchMode):
    """Counts the storages of all tensors seen, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, int] = {}
        self.now = self.peak = 0
        self.at = ""

    def see(self, tensor: torch.Tensor, made_by: str = "") -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        self.known[key] = storage.nbytes()
        self.now += storage.nbytes()
        weakref.finalize(storage, self._freed, key)
        if self.now > self.peak:
            self.peak, self.at = self.now, made_by

    def _freed(self, key: int) -> None:
        self.now -= self.known.pop(key)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in tree_iter(found):
            if isinstance(tensor, torch.Tensor):
                self.see(tensor, str(function))
        return found


def count_memory(
    rank: int, ranks: int, program: str, chosen: Mapping[str, Sequence[float]] = MappingProxyType({})
) -> Counted:
    """The memory of one rank on random data. Parameters whose names end with a key of `chosen` start as its values."""
    torch.manual_seed(0)
    alive = Alive()
    with load_program(Path(program)) as module, fused_rms_norm(alive), host_apart(module):
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None)
        model.initialise(0)
        model.load_global(with_values(model.global_tensors(), chosen))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        several = hasattr(module, "MICRO_BATCHES")
        batch = {
            name: torch.randn(spec.shape)
            if spec.integer_range is None
            else torch.randint(spec.integer_range, spec.shape)
            for name, spec in (module.BATCH if several else module.INPUTS).items()
        }

        def step() -> None:
            model.zero_grad()
            for part in model.micro_batches(batch) if several else [batch]:
                loss = model(**part)[0]
                loss.backward()
                del loss
            model.synchronise()
            time.sleep(LETTING_GO)
            optimizer.step()

        step()
        model.zero_grad()
        alive.now = 0
        alive.known.clear()
        moments = [tensor for state in optimizer.state.values() for tensor in state.values()]
        for tensor in (*model.parameters(), *model.buffers(), *batch.values(), *moments):
            alive.see(tensor)
        held = alive.now
        with alive:
            step()
    return Counted(held, alive.peak, alive.at)


def with_values(state: Mapping[str, torch.Tensor], chosen: Mapping[str, Sequence[float]]) -> dict[str, torch.Tensor]:
    """A state in which parameters whose names end with a key of `chosen` have its values along their last dimension."""
    found = dict(state)
    for ending, values in chosen.items():
        named = [name for name in state if name.endswith(ending)]
        assert named, f"no parameter ends in {ending}"
        for name in named:
            found[name] = torch.tensor(values).to(state[name]).expand_as(state[name]).clone()
    return found


@contextmanager
def host_apart(module: Any) -> Iterator[None]:
    """Hides copies in host memory from the count: on a CPU they are ordinary tensors."""
    if not hasattr(module, "offload"):
        yield
        return
    copy, begin = module.offload.HostCopy, module.offload.HostCopy.__init__

    def unseen(self: Any, tensor: torch.Tensor, host: Any) -> None:
        with _disable_current_modes():
            begin(self, tensor, host)

    copy.__init__ = unseen
    try:
        yield
    finally:
        copy.__init__ = begin


@contextmanager
def fused_rms_norm(alive: Alive) -> Iterator[None]:
    """Replaces the several kernels of a CPU by the one of a GPU, which saves its operands and one number per row."""
    several = F.rms_norm

    class RMSNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
            with _disable_current_modes():
                found = several(x, [x.shape[-1]], gain, eps)
                root = x.float()[..., 0].clone()
            ctx.save_for_backward(x, gain, root)
            ctx.eps = eps
            for tensor in (found, root):
                alive.see(tensor, "rms_norm")
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            x, gain, _ = ctx.saved_tensors
            with _disable_current_modes(), torch.enable_grad():
                given = x.detach().requires_grad_(), gain.detach().requires_grad_()
                result = several(given[0], [x.shape[-1]], given[1], ctx.eps)
                found = torch.autograd.grad(result, given, gradients)
            for tensor in found:
                alive.see(tensor, "rms_norm backward")
            return *found, None

    def one_kernel(x: torch.Tensor, shape: list[int], gain: torch.Tensor, eps: float) -> torch.Tensor:
        return RMSNorm.apply(x, gain, eps)  # type: ignore[no-any-return, no-untyped-call]

    F.rms_norm = one_kernel  # type: ignore[assignment]
    try:
        yield
    finally:
        F.rms_norm = several

"""The operations of a program on a rank, in order, and its gradients, with torch.compile or without. Imported by the
ranks of a pool.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from unity_dsl.emit.rank_comparison import load_program

from .counting import coalesced_gathers

PRODUCTS = ("mm", "addmm", "bmm")
SENT = {"send": "send", "_reduce_scatter_base_": "reduce_scatter", "allreduce_": "all_reduce"}
"""Collectives and sends that do not go through functional collectives."""


def list_operations(rank: int, ranks: int, program: str, together: bool = False) -> list[str]:
    """The operations of a step, forwards and backwards, in order.

    `mm` is a matrix product, `wait` is the wait for a collective, and a collective is listed by name when it starts.
    With `together` weights are gathered in coalesced collectives as on other backends, else one by one.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class Listing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            namespace, _, name = func._schema.name.partition("::")
            if namespace == "_c10d_functional":
                found.append("wait" if name == "wait_tensor" else name.removesuffix("_"))
            elif namespace == "c10d" and name in SENT:
                found.append(SENT[name])
            elif name in PRODUCTS:
                found.append("mm")
            return func(*args, **(kwargs or {}))

    _gradients(program, Listing(), together=together)
    return found


def find_gradients(rank: int, ranks: int, program: str, compiled: bool = False) -> dict[str, Any]:
    """The loss of a random batch, and its gradients by name."""
    return _gradients(program, nullcontext(), compiled=compiled)


def _gradients(
    program: str, watching: AbstractContextManager[object], *, compiled: bool = False, together: bool = False
) -> dict[str, Any]:
    import torch

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"))
        model.initialise(0)
        torch.manual_seed(0)
        batch = {name: torch.randn(spec.shape) for name, spec in module.INPUTS.items()}
        call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        with coalesced_gathers(module, model) if together else nullcontext(), watching:
            loss, _ = call(**batch)
            loss.backward()
            model.synchronise()
        return {"loss": loss.detach(), **{name: parameter.grad for name, parameter in model.named_parameters()}}

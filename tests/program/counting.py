"""Collectives that a program runs, forwards and backwards, counted on a rank. Imported by the ranks of a pool."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

from unity_dsl.emit.rank_comparison import load_program


def coalesce_gathers(module: ModuleType, model: Any) -> None:
    """Have a model on gloo gather as on other backends: several tensors in one collective."""
    for group in vars(model.groups).values():
        if isinstance(group, module.parallel.Group):
            group.gloo = False


def count_collectives(
    rank: int,
    ranks: int,
    program: str,
    bucket_bytes: int,
    freed: bool = False,
    numbers: bool = False,
    gloo: bool = False,
) -> tuple[Counter[str], Counter[str]]:
    """Names of collectives, forwards and backwards, of those of one number only where `numbers` are asked for; `freed`
    says so of gathered weights.

    They are those of other backends, unless `gloo`, on which none gathers several tensors.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: Counter[str] = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            namespace, _, name = func._schema.name.partition("::")
            tensors = [
                a for a in [*args, *(args[0] if isinstance(args[0], list) else [])] if isinstance(a, torch.Tensor)
            ]
            asked = numbers or any(t.numel() > 1 for t in tensors)
            if namespace == "_c10d_functional" and name != "wait_tensor" and asked:
                self.found[name.removesuffix("_")] += 1
            return func(*args, **(kwargs or {}))

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), bucket_bytes=bucket_bytes)
        model.initialise(0)
        if not gloo:
            coalesce_gathers(module, model)
        if freed:
            model.gathered.freed = set(model.parameters())
        batch = {}
        for name, spec in module.INPUTS.items():
            if spec.integer_range is None:
                batch[name] = torch.randn(spec.shape)
            else:
                batch[name] = torch.randint(spec.integer_range, spec.shape)
        forward, backward = Count(), Count()
        with forward:
            loss, _ = model(**batch)
        with backward:
            loss.backward()
            model.synchronise()
    return forward.found, backward.found

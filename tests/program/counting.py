"""Counts on a rank the collectives that a program runs forwards and backwards. Imported by the ranks of a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from unity_dsl.emit.rank_comparison import load_program


@contextmanager
def coalesced_gathers(module: ModuleType, model: Any) -> Iterator[None]:
    """Makes a model on gloo coalesce all-gathers as other backends do: several tensors in one collective.

    A dispatch mode inside this context sees the coalesced calls. Gloo itself runs one all-gather per tensor, because
    its coalesced all-gather may corrupt the heap.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    functional = torch.ops._c10d_functional

    def gathered(x: torch.Tensor, size: int, name: str) -> torch.Tensor:
        whole = x.new_empty(size * x.shape[0], *x.shape[1:])
        return functional.all_gather_into_tensor_out(x, size, name, out=whole)

    class OneByOne(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is functional.all_gather_into_tensor_coalesced.default:
                tensors, *group = args
                return [gathered(x, *group) for x in tensors]
            if func is functional.all_gather_into_tensor.default:
                return gathered(*args)
            return func(*args, **(kwargs or {}))

    groups = [group for group in vars(model.groups).values() if isinstance(group, module.parallel.Group)]
    for group in groups:
        group.gloo = False
    with OneByOne():
        yield
    for group in groups:
        group.gloo = True


def count_collectives(
    rank: int,
    ranks: int,
    program: str,
    bucket_bytes: int,
    freed: bool = False,
    numbers: bool = False,
    gloo: bool = False,
) -> tuple[Counter[str], Counter[str]]:
    """The names of collectives, forwards and backwards. Collectives of a single number count only if `numbers` is set.

    With `freed` gathered weights are freed after the forward pass. The collectives are those of other backends, unless
    `gloo` is set: gloo coalesces no all-gathers.
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
        if freed:
            model.gathered.freed = set(model.parameters())
        batch = {}
        several = hasattr(module, "MICRO_BATCHES")
        for name, spec in (module.BATCH if several else module.INPUTS).items():
            if spec.integer_range is None:
                batch[name] = torch.randn(spec.shape)
            else:
                batch[name] = torch.randint(spec.integer_range, spec.shape)
        forward, backward = Count(), Count()
        with nullcontext() if gloo else coalesced_gathers(module, model):
            for part in model.micro_batches(batch) if several else [batch]:
                with forward:
                    loss, _ = model(**part)
                with backward:
                    loss.backward()
            with backward:
                model.synchronise()
    return forward.found, backward.found

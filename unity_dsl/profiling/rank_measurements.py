"""Measurements that all ranks make at the same time: ranks of one machine share its memory and its caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

from ..graph.collective_steps import StepKind
from ..index.declarations.loading import load_library
from ..index.library import Library
from ..machine.measured_operators import Direction
from .operator_run import DTYPES, sample_run
from .samples import Sample
from .timing import (
    MOST_ROUNDS,
    Call,
    Clock,
    device_time,
    elapsed_time,
    median_seconds,
    processor_time,
    recorded,
)

if TYPE_CHECKING:
    from torch import Tensor, device

    Convert = Callable[[Tensor], Tensor]
    Collective = Callable[[Tensor, int, str], Tensor]

LEAST_SECONDS = 1e-7
"""Least seconds of a measurement after its overhead is subtracted."""

MATRIX, GPU_MATRIX = 512, 8192
"""Rows and columns of the product that measures the peak."""

STREAM_BYTES, GPU_STREAM_BYTES = 2**27, 2**30
"""Bytes of the copy that measures the bandwidth."""

CALLS, ROUND_SECONDS = 16, 0.05
"""Most calls of a collective in one round of its measurement, and the seconds of a round, about."""

KEPT_BYTES = 31 * 2**20
"""Bytes of the largest tensor whose freed memory the C library keeps."""

PARAMETERS = 8
"""Parameters of the measured optimizer: they share the fixed cost of a step."""


def measure_samples(rank: int, ranks: int, where: str, samples: Sequence[Sample], allowance: float) -> list[float]:
    """Seconds of each sample; infinite if a GPU has too little memory. For backward passes, the fixed cost of starting
    one, which a step pays once, is subtracted.
    """
    target, clock = _place(rank, where)
    library = _library()
    calls = {number: call for number, sample in enumerate(samples) if (call := _fitting(sample, library, target))}
    found = dict(zip(calls, median_seconds([*calls.values()], clock, allowance), strict=True))
    start = _backward_start(where) if where != "cuda" else 0.0  # a CUDA graph has no such cost
    times = [found.get(number, inf) for number in range(len(samples))]
    return [
        max(seconds - start, LEAST_SECONDS) if sample.direction is not Direction.FORWARD else seconds
        for sample, seconds in zip(samples, times, strict=True)
    ]


def _fitting(sample: Sample, library: Library, target: device) -> Call | None:
    """The call of a sample, run once; None if a GPU has too little memory for its results."""
    import torch

    try:
        call = sample_run(sample, library, target)
        call()
        if target.type == "cuda":
            return recorded(call)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
    return call


def measure_update(rank: int, ranks: int, where: str, amounts: Sequence[int], allowance: float) -> list[float]:
    """Seconds of AdamW, as train.py calls it, over a parameter of each number of bytes."""
    import torch

    target, clock = _place(rank, where)

    def step(amount: int) -> Call:
        parameters = [torch.zeros(amount // 4, device=target, requires_grad=True) for _ in range(PARAMETERS)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        fused = target.type == "cuda"
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0, foreach=not fused, fused=fused)
        return lambda: optimizer.step()

    return [seconds / PARAMETERS for seconds in median_seconds([*map(step, amounts)], clock, allowance)]


def measure_rates(rank: int, ranks: int, where: str, allowance: float) -> dict[str, float]:
    """Flops per second of a product by dtype, `bandwidth` of a copy in bytes per second, seconds of a `launch`."""
    import torch

    target, clock = _place(rank, where)
    calls: dict[str, Call] = {}
    side, stream = (GPU_MATRIX, GPU_STREAM_BYTES) if where == "cuda" else (MATRIX, STREAM_BYTES)
    drawn = torch.randn(side, side, device=target)  # a GPU multiplies equal numbers faster, as they take less power
    for dtype, name in DTYPES.items():
        matrix = drawn.to(getattr(torch, name))
        calls[dtype] = lambda matrix=matrix: matrix @ matrix  # type: ignore[misc]
    source = torch.ones(stream // 4, device=target)
    result, one = torch.empty_like(source), torch.ones(1, device=target)
    calls["bandwidth"] = lambda: result.copy_(source)
    calls["launch"] = lambda: torch.neg(one)
    found = dict(zip(calls, median_seconds([*calls.values()], clock, allowance), strict=True))
    rates = {dtype: 2 * side**3 / found[dtype] for dtype in DTYPES}
    return {**rates, "bandwidth": 2 * stream / found["bandwidth"], "launch": found["launch"]}


def measure_collectives(
    rank: int, ranks: int, where: str, degree: int, amounts: Sequence[int], allowance: float
) -> dict[StepKind, list[float]]:
    """Seconds that each collective adds to a step, by the bytes that one rank contributes. All groups of `degree`
    adjacent ranks run it at once.

    In a step, ranks compute between two collectives. They therefore reach the next one at different times, its threads
    have to be woken, and its data are not in a cache. Collectives one right after the other take a half to a third of
    what they add to such a step. A program runs collectives in autograd functions, whose forward and backward are
    Python: part of the added time. All ranks make the same calls, so they run equally many repetitions.
    """
    import torch
    import torch.distributed as dist

    target, _ = _place(rank, where)
    clock: Clock = device_time if where == "cuda" else elapsed_time
    groups = [dist.new_group(list(range(first, first + degree))) for first in range(0, ranks, degree)]
    name = groups[rank // degree].group_name
    matrix = torch.full((MATRIX, MATRIX), 1e-2, device=target)
    found: dict[StepKind, list[float]] = {kind: [] for kind in COLLECTIVES}
    for amount in amounts:
        given = torch.ones((degree, max(1, amount // 4 // degree)), device=target, requires_grad=True)

        def around(convert: Convert | None = None, given: Tensor = given) -> None:
            torch.mm(matrix, matrix)
            made = given.clone()
            made = made if convert is None else convert(made)
            torch.autograd.grad(made, given, torch.ones_like(made))

        for kind, run in COLLECTIVES.items():
            call = partial(around, partial(_conversion(), run, degree, name, torch.ones_like(given)))
            rounds, times = _agreed(call, clock, allowance / len(amounts) / len(COLLECTIVES))
            alone = partial(run, given.detach(), degree, name)
            found[kind].append(_added(around, call, alone, clock, rounds, times))
    return found


@lru_cache(maxsize=1)
def _conversion() -> Callable[..., Tensor]:
    """A collective as in parallel.py: an autograd function, whose backward returns the given `cotangent`."""
    import torch

    class Conversion(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, run: Collective, degree: int, name: str, cotangent: Tensor, x: Tensor) -> Tensor:
            ctx.cotangent = cotangent
            return run(x, degree, name)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None, Tensor]:
            return None, None, None, None, ctx.cotangent

    found: Callable[..., Tensor] = Conversion.apply
    return found


def _added(around: Call, call: Call, alone: Call, clock: Clock, rounds: int, times: int) -> float:
    """Seconds that a collective adds: those of `call` with it less those of `around` without it, the median of the
    rounds. Interference from other processes is not separated. The result is at least the time of the collective
    `alone`.
    """
    import torch.distributed as dist

    found = []
    for _ in range(rounds):
        seconds = []
        for one in (call, around, alone):
            dist.barrier()
            seconds.append(clock(one, times) / times)
        found.append(seconds)
    return max(median(whole - rest for whole, rest, _ in found), median(least for _, _, least in found))


def _agreed(call: Call, clock: Clock, allowance: float) -> tuple[int, int]:
    """The rounds that the allowance permits, and the calls in each, by the first rank's clock."""
    import torch
    import torch.distributed as dist

    call()
    once = max(clock(call, 2) / 2, 1e-6)
    times = max(2, min(CALLS, int(ROUND_SECONDS / once)))
    counts = torch.tensor([max(3, min(MOST_ROUNDS, int(allowance / (3 * times * once)))), times])
    dist.broadcast(counts, 0)
    rounds, times = counts.tolist()
    return rounds, times


def _all_reduce(given: Tensor, degree: int, name: str) -> Tensor:
    return _finished("all_reduce", given, "sum", name)


def _all_gather(given: Tensor, degree: int, name: str) -> Tensor:
    return _finished("all_gather_into_tensor", given, degree, name)


def _reduce_scatter(given: Tensor, degree: int, name: str) -> Tensor:
    return _finished("reduce_scatter_tensor", given, "sum", degree, name)


def _all_to_all(given: Tensor, degree: int, name: str) -> Tensor:
    return _finished("all_to_all_single", given, [1] * degree, [1] * degree, name)


def _finished(function: str, *arguments: object) -> Tensor:
    """The result of a functional collective, awaited as in the emitted parallel.py."""
    import torch

    functional: Any = torch.ops._c10d_functional
    found: Tensor = functional.wait_tensor(getattr(functional, function)(*arguments))
    return found


COLLECTIVES = {
    StepKind.ALL_REDUCE: _all_reduce,
    StepKind.ALL_GATHER: _all_gather,
    StepKind.REDUCE_SCATTER: _reduce_scatter,
    StepKind.ALL_TO_ALL: _all_to_all,
}


# ---------------------------------------------------------------------------------------------- the rank


def _place(rank: int, where: str) -> tuple[device, Clock]:
    """The device of a rank, and the clock for its operators.

    A program's operators reuse memory that earlier ones freed. glibc returns free memory above twice the largest block
    ever freed to the system (mallopt(3), M_MMAP_THRESHOLD). A block of the largest size is therefore freed first:
    otherwise an optimizer step, alone in its process, would get every page anew.
    """
    import torch

    if where == "cuda":
        torch.cuda.set_device(rank)
        return torch.device("cuda", rank), device_time
    torch.empty(KEPT_BYTES, dtype=torch.uint8)
    return torch.device("cpu"), processor_time


@lru_cache(maxsize=1)
def _library() -> Library:
    return load_library()


@lru_cache(maxsize=1)
def _backward_start(where: str) -> float:
    """Fixed seconds of a call of autograd: those for one operator, less a tenth of what ten more operators add."""
    import torch

    _, clock = _place(0, where)
    x = torch.ones(1, device=where, requires_grad=True)
    one, many = torch.neg(x), torch.neg(x)
    for _ in range(10):
        many = torch.neg(many)
    first, rest = median_seconds(
        [
            lambda: torch.autograd.grad(one, x, retain_graph=True),
            lambda: torch.autograd.grad(many, x, retain_graph=True),
        ],
        clock,
        0.2,
    )
    return max(0.0, first - (rest - first) / 10)

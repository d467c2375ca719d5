"""A training step on two ranks: emitted plans against hand-written DDP, FSDP2 and DTensor; `program.py` runs it.

A step is forward, backward, gradient reduction and AdamW, on gloo with one thread per rank. It is measured in
wall-clock seconds of the slowest rank, and in processor seconds of both ranks, which other work on the machine affects
less. The steps of all programs alternate, in a different order each time. A ratio is the median of the ratios of
neighbouring steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from by_hand import BY_HAND

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

EXAMPLES = Path(__file__).parent.parent / "examples"
RANKS = 2
WARM_UP = 3
DIVISIONS: Mapping[str, str] = {"ddp": "data_parallel", "fsdp2": "zero", "dtensor": "expert"}
"""The strategy whose plan shards in the same way, for each hand-written program."""


def compare_ranks(
    example: str, sizes: Mapping[str, float], machine: str, repetitions: int, folder: Path, pool: RankPool
) -> dict[str, float | int]:
    """Seconds of a step of each program, ratios of the plans to the hand-written programs with the same sharding, and
    the ratio of `auto` to the fastest of these. Plans are made for `machine`, a name or the file of a profile.
    """
    programs: dict[str, str] = {}
    for strategy in ("auto", *DIVISIONS.values()):
        request = Request(
            EXAMPLES / f"{example}.udl",
            machine=machine,
            devices=RANKS,
            strategy=strategy,
            precision="f32",
            settings=dict(sizes),
        )
        compiled = compile_model(request)
        write_program(compiled.plan, compiled.library, compiled.sources, request, folder / strategy)
        programs[strategy] = str(folder / strategy)
    given: dict[str, Any] = {**compiled.plan.parameters}
    times = pool.run(measured, example, given, programs, repetitions, ranks=RANKS, seconds=1500)
    steps = {name: list(zip(*(rank[name] for rank in times), strict=True)) for name in times[0]}
    slowest = {name: [max(clock for clock, _ in pair) for pair in found] for name, found in steps.items()}
    processor = {name: [sum(used for _, used in pair) for pair in found] for name, found in steps.items()}
    row = {name: round(median(found), 4) for name, found in slowest.items()}
    best = min(DIVISIONS, key=lambda way: row[way])
    pairs = {f"{strategy}_to_{way}": (strategy, way) for way, strategy in DIVISIONS.items()}
    pairs["auto"] = "auto", best
    for word, seconds in (("ratio", slowest), ("processor_ratio", processor)):
        for name, (own, other) in pairs.items():
            row[f"{word}_{name}"] = round(median(map(truediv, seconds[own], seconds[other])), 3)
    return {**row, "repetitions": repetitions}


def measured(
    rank: int, ranks: int, example: str, sizes: Mapping[str, float], programs: Mapping[str, str], repetitions: int
) -> dict[str, list[tuple[float, float]]]:
    """Wall-clock and processor seconds of the steps of every program on this rank.

    Raises RuntimeError if a loss differs from the median of all programs' losses.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    steps: dict[str, Callable[[int], float]] = {}
    with load_program(Path(programs["auto"])) as module:
        model = module.Model(module.build_mesh("cpu"))
        model.initialise(0)
        weights, inputs = model.global_tensors(), module.INPUTS
    source = torch.Generator().manual_seed(0)
    batch = {name: torch.randint(s.integer_range, s.shape, generator=source) for name, s in inputs.items()}
    for name, program in programs.items():
        steps[name] = emitted_step(program, batch)
    mesh = init_device_mesh("cpu", (ranks,))
    for way in DIVISIONS:
        steps[way] = hand_step(way, example, BY_HAND[example](weights, sizes), mesh, batch)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    turns = random.Random(0)  # the same on all ranks
    for number in range(WARM_UP + repetitions):
        losses = {}
        for name in turns.sample(list(steps), len(steps)):
            dist.barrier()
            start, used = time.perf_counter(), time.process_time()
            losses[name] = steps[name](number)
            seconds = time.perf_counter() - start, time.process_time() - used
            if number >= WARM_UP:
                times[name].append(seconds)
        if number < WARM_UP and not sizes.get("dropout"):
            agree(losses)
    return times


def agree(losses: Mapping[str, float]) -> None:
    """Raises RuntimeError if a loss differs from the median loss."""
    middle = median(losses.values())
    for name, loss in losses.items():
        if abs(loss - middle) > 1e-4 * abs(middle):
            raise RuntimeError(f"{name}: the loss is {loss}, that of others {middle}")


def emitted_step(program: str, batch: Mapping[str, Any]) -> Callable[[int], float]:
    import torch

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"))
    model.initialise(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    def step(number: int) -> float:
        model.zero_grad()
        model.step = number
        loss = model(**batch)[0]
        loss.backward()
        model.synchronise()
        optimizer.step()
        return float(loss.detach())

    return step


def hand_step(way: str, example: str, module: Any, mesh: Any, batch: Mapping[str, Any]) -> Callable[[int], float]:
    import torch.distributed as dist
    from by_hand_ranks import by_hand, optimizer_of

    divided = by_hand(way, example, module, mesh)
    optimizer = optimizer_of(divided.parameters)

    def step(_: int) -> float:
        optimizer.zero_grad()
        loss = divided.step(batch).detach()
        if divided.parts > 1:  # like the emitted program: every rank gets the loss of the whole batch
            dist.all_reduce(loss)
        optimizer.step()
        return float(loss) / divided.parts

    return step

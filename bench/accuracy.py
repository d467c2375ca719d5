"""Predicted against measured seconds of a training step on local ranks: `python bench/accuracy.py --machine FILE`.

There are two predictions: the additive cost that the search minimised (`additive_error`), and the time of the simulated
step (`unityc trace`), in which gradients are bucketed and overlapped (`error`). `unityc profile --ranks N` writes FILE
for the same number of ranks; without it this machine is profiled first. A step is forward, backward, the gradients'
collectives and AdamW, as in the emitted train.py. Its measured time is the median over the steps after warm-up, on the
slowest rank. On a busy machine only `processor_ms` is meaningful. It is the processor time of the first rank's thread,
which excludes waiting. An interrupted run resumes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from measure import COMPILER, RESULTS, digest, rows_of, write_rows

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import simulate_step

ROOT = Path(__file__).parent.parent
OUT = RESULTS / "accuracy.json"
WARM_UP = 3
MODELS: Mapping[str, Mapping[str, str | float]] = {
    "gpt2": {"b": 4, "s": 128, "d": 256, "heads": 4, "layers": 4, "vocabulary": 2048},
    "bert_large": {"b": 4, "s": 128, "d": 256, "heads": 4, "layers": 4, "vocabulary": 2048},
    "vit_l16": {"b": 8, "pixels": 64, "patch": 8, "d": 256, "heads": 4, "layers": 4, "classes": 128},
    "mlp": {"b": 256, "d": 512, "h": 2048, "layers": 4},
    "lstm_lm": {"b": 16, "s": 16, "d": 256, "vocabulary": 2048},
    "resnext50": {"b": 8, "image": 64, "width": 16, "cardinality": 8, "classes": 128},
}
"""Sizes at which a step takes 20 to 500 ms on one or two cores."""

PLANS = ("auto", "data_parallel", "random:1", "random:2", "random:3")


@dataclass(frozen=True)
class Case:
    """A model at its sizes, and how the plan is chosen: a strategy, or `auto` under pins."""

    model: str
    plan: str
    pins: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return " ".join([self.model, self.plan, *self.pins])


CASES = (
    *(Case(model, plan) for model in MODELS for plan in PLANS),
    Case("mlp", "auto", ("*=I",)),
    Case("gpt2", "auto", ("layer.*.mlp.up=S0", "layer.*.mlp.down=S1")),
)


def step_seconds(rank: int, ranks: int, program: str, steps: int) -> list[tuple[float, float]]:
    """Wall-clock seconds and the thread's processor seconds of each step of a program on this rank, after warm-up."""
    import torch

    with load_program(Path(program)) as module:
        mesh = module.build_mesh("cpu") if ranks > 1 else None
        model = module.Model(mesh)
        model.initialise(0)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, foreach=True)
        batch = batch_of(module)
        times = []
        for number in range(WARM_UP + steps):
            if ranks > 1:
                torch.distributed.barrier()
            start, used = time.perf_counter(), time.thread_time()
            model.zero_grad()
            model.step = number
            model(**batch)[0].backward()
            model.synchronise()
            optimizer.step()
            times.append((time.perf_counter() - start, time.thread_time() - used))
    return times[WARM_UP:]


def batch_of(module: Any) -> Mapping[str, Any]:
    """A global batch, the same on every rank."""
    import torch

    source = torch.Generator().manual_seed(0)

    def drawn(spec: Any) -> Any:
        if spec.integer_range is not None:
            return torch.randint(spec.integer_range, spec.shape, generator=source)
        return torch.randn(spec.shape, generator=source)

    return {name: drawn(spec) for name, spec in module.INPUTS.items()}


def measured(case: Case, machine: Path, pool: RankPool, ranks: int, steps: int) -> dict[str, Any]:
    """The row of a case: its predicted and measured times in milliseconds, and the relative errors."""
    settings = {name: str(value) for name, value in MODELS[case.model].items()}
    request = Request(
        ROOT / "examples" / f"{case.model}.udl",
        settings=settings,
        precision="f32",
        machine=str(machine),
        devices=ranks,
        strategy=case.plan,
        pins=case.pins,
    )
    compilation = compile_model(request)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        write_program(compilation.plan, compilation.library, compilation.sources, request, program)
        times = pool.run(step_seconds, str(program), steps, ranks=ranks, seconds=600)
    cost, hardware = compilation.plan.cost, load_machine(str(machine))
    simulated = simulate_step(compilation.plan, hardware, compilation.library).seconds
    clock = max(median(seconds for seconds, _ in rank) for rank in times)
    row = {
        "simulated_ms": simulated,
        "additive_ms": cost.seconds,
        "compute_ms": cost.compute,
        "communication_ms": cost.communication,
        "update_ms": cost.update,
        "measured_ms": clock,
        "processor_ms": median(used for _, used in times[0]),
    }
    rounded = {name: round(1e3 * seconds, 3) for name, seconds in row.items()}
    return {
        **rounded,
        "error": round(simulated / clock - 1, 3),
        "additive_error": round(cost.seconds / clock - 1, 3),
        "model": case.model,
    }


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation. Equal numbers get their mean rank."""

    def ranks(values: Sequence[float]) -> Any:
        array = np.array(values)
        return np.array([((array < value).sum() + (array <= value).sum() - 1) / 2 for value in array])

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Median and largest error, and for each model with three plans or more their rank correlation."""
    errors = {name: abs(row["error"]) for name, row in rows.items()}
    additive = [abs(row["additive_error"]) for row in rows.values()]
    by_model: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows.values():
        by_model.setdefault(row["model"], []).append(row)
    correlations = {
        model: round(spearman(*([row[key] for row in found] for key in ("simulated_ms", "measured_ms"))), 3)
        for model, found in by_model.items()
        if len(found) > 2
    }
    worst = max(errors, key=lambda name: errors[name])
    return {
        "cases": len(rows),
        "median_error": round(median(errors.values()), 3),
        "median_additive_error": round(median(additive), 3),
        "largest_error": [worst, errors[worst]],
        "spearman": correlations,
    }


def profiled(ranks: int, seconds: float, folder: Path) -> Path:
    """Profiles this machine into a machine file. Raises SystemExit if that fails."""
    from unity_dsl.cli import run

    path = folder / "measured.toml"
    if run(["profile", "-o", str(path), "--ranks", str(ranks), "--seconds", str(seconds)]) != 0:
        raise SystemExit("the machine could not be profiled")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", type=Path, help="else the machine is profiled first")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=150, help="of the profile")
    parser.add_argument("--model", action="append", help="only this model (repeatable)")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    command = "python bench/accuracy.py" + (f" --ranks {options.ranks}" if options.ranks != 2 else "")
    with tempfile.TemporaryDirectory() as folder, RankPool(options.ranks, measured=True) as pool:
        machine = options.machine or profiled(options.ranks, options.seconds, Path(folder))
        code = digest([Path(__file__), *COMPILER])[:16] + f" {hash_of(machine)}"
        rows = {name: row for name, row in rows_of(options.output).items() if row["of"] == code}
        wanted = [case for case in CASES if options.model is None or case.model in options.model]
        for case in wanted:
            if case.name in rows:
                continue
            rows[case.name] = {**measured(case, machine, pool, options.ranks, options.steps), "of": code}
            write_rows(options.output, command, rows)
            print(case.name, rows[case.name], flush=True)
    told = summary(rows)
    write_rows(options.output, command, rows, told)
    print(told)


def hash_of(machine: Path) -> str:
    return sha256(machine.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    main()

"""The cost of the search against simulated time over drawn plans: `python bench/ranking.py`.

The search minimises a sum over choices, in which a fixed fraction of what a step may overlap counts as exposed. The
simulator runs the tasks of a whole step with overlap and shared links. For each case `auto` searches. Random plans are
then priced with the fractions of its last search, and simulated. Reported are Spearman's coefficient of both orders,
the ratios of cost to simulated time, and both figures for `auto` and data parallelism. A row is written as soon as it
is known.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from measure import RESULTS, hardware
from scipy.stats import spearmanr

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.plan_search import meshes_for, search
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.syntax.diagnostic import InputError

ROOT = Path(__file__).parent.parent
CASES = (
    ("mlp", "dgx-h100", 8),
    ("gpt2", "dgx-h100", 8),
    ("bert_large", "dgx-h100", 64),
    ("llama3_8b", "dgx-h100", 64),
    ("mixtral_8x7b", "dgx-h100", 64),
    ("vit_l16", "dgx-a100", 8),
    ("resnext50", "dgx-h100", 8),
    ("dlrm_kaggle", "dgx-a100", 16),
    ("lstm_lm", "dgx-a100", 8),
    ("candle_uno", "dgx-a100", 16),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=50, help="drawn for each case")
    parser.add_argument("--cases", nargs="*", default=[name for name, *_ in CASES], help="names of examples")
    parser.add_argument("--file", type=Path, default=RESULTS / "ranking.json")
    options = parser.parse_args()

    rows: dict[str, Any] = {}
    for example, machine, devices in CASES:
        if example in options.cases:
            key = f"{example} {machine} {devices}"
            rows[key] = compare(example, machine, devices, options.plans)
            print(key, json.dumps(rows[key]), flush=True)
            write(options.file, rows)


def compare(example: str, machine: str, devices: int, plans: int) -> dict[str, Any]:
    start = process_time()
    best = compiled(example, machine, devices, "auto")
    drawn = [figures(best, machine, devices, seed) for seed in range(plans)]
    costs, times = zip(*drawn, strict=True)
    ratios = sorted(cost / seconds for cost, seconds in drawn)
    return {
        "spearman": round(float(spearmanr(costs, times).statistic), 4),
        "plans": plans,
        "cost_by_simulated": {
            "median": round(median(ratios), 3),
            "least": round(ratios[0], 3),
            "most": round(ratios[-1], 3),
        },
        "auto_ms": of_plan(best),
        "data_parallel_ms": data_parallel(example, machine, devices),
        "best_drawn_simulated_ms": round(1e3 * min(times), 4),
        "cpu_seconds": round(process_time() - start, 2),
    }


def compiled(example: str, machine: str, devices: int, strategy: str) -> Compilation:
    path = ROOT / "examples" / f"{example}.udl"
    return compile_model(Request(path, machine=machine, devices=devices, strategy=strategy))


def of_plan(found: Compilation) -> dict[str, float]:
    return {"cost": round(1e3 * found.plan.cost.seconds, 4), "simulated": round(1e3 * found.plan.seconds, 4)}


def data_parallel(example: str, machine: str, devices: int) -> dict[str, float] | str:
    """Cost and simulated milliseconds of data parallelism, or why the strategy does not fit the model."""
    try:
        return of_plan(compiled(example, machine, devices, "data_parallel"))
    except InputError as error:
        return error.diagnostic.message


def figures(best: Compilation, name: str, devices: int, seed: int) -> tuple[float, float]:
    """Cost and simulated seconds of a random plan, priced with the exposed fractions of the best plan."""
    machine, strategy = load_machine(name), f"random:{seed}"
    meshes = meshes_for(machine, devices, None, strategy)
    found = search(best.plan.model, meshes, machine.exposing(best.plan.exposed), best.library, strategy)
    return found.cost.seconds, simulate_step(found, machine, best.library).seconds


def write(file: Path, rows: dict[str, Any]) -> None:
    document = {"command": "python bench/ranking.py", "hardware": hardware(), "rows": rows}
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

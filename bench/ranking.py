"""Predicted cost against simulated time over drawn plans: `python bench/ranking.py`.

The search minimises a sum over choices; the simulator runs the tasks of a whole step with overlap and shared links. For
each case plans are drawn by chance, and Spearman's coefficient of both orders is told, how far the cost is from the
simulated time, and where the strategies' plans stand in both. A row is written as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from measure import RESULTS, hardware
from scipy.stats import spearmanr

from unity_dsl.compile import Request, compile_model
from unity_dsl.machine.machine import load_machine
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
STRATEGIES = ("auto", "data_parallel", "single")


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
    drawn = list(figures(example, machine, devices, [f"random:{seed}" for seed in range(plans)]))
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
        "strategies_ms": {name: of_strategy(example, machine, devices, name) for name in STRATEGIES},
        "best_drawn_simulated_ms": round(1e3 * min(times), 4),
        "cpu_seconds_a_plan": round((process_time() - start) / (plans + len(STRATEGIES)), 2),
    }


def of_strategy(example: str, machine: str, devices: int, strategy: str) -> dict[str, float] | str:
    """Both figures; of a strategy that does not fit the model, why."""
    try:
        ((cost, seconds),) = figures(example, machine, devices, [strategy])
    except InputError as error:
        return error.diagnostic.message
    return {"cost": round(1e3 * cost, 4), "simulated": round(1e3 * seconds, 4)}


def figures(example: str, machine: str, devices: int, strategies: Sequence[str]) -> Iterator[tuple[float, float]]:
    """Predicted cost and simulated seconds of each strategy's plan."""
    loaded = load_machine(machine)
    for strategy in strategies:
        path = ROOT / "examples" / f"{example}.udl"
        found = compile_model(Request(path, machine=machine, devices=devices, strategy=strategy))
        yield found.plan.cost.seconds, simulate_step(found.plan, loaded, found.library).seconds


def write(file: Path, rows: dict[str, Any]) -> None:
    document = {"command": "python bench/ranking.py", "hardware": hardware(), "rows": rows}
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

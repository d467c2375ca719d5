"""Every strategy on every cell, timed by one simulator: `python bench/search.py --models gpt2 --machines dgx-h100`.

A cell is a model on a number of devices of a machine, with a fixed number of examples per device. `auto` plans the cell
in its own process. All other strategies run one after the other in a second process. Each ends its search after --limit
seconds with the best plan found so far, which its row notes. Recorded are the seconds of the simulated step and of the
search (wall clock), a device's peak memory and communicated bytes, and a bound: the least seconds of the plan's tasks
in any order.
A row is written as soon as it is known, with a hash of the planner's sources. Rows in the file of results with the same
hash are kept, except those of strategies named by --again, so an interrupted run resumes. A cell is reported if a
strategy beats `auto` by more than 0.01 %, or fits the memory where `auto` does not. Cells without a plan that fits are
not compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from measure import PLANNER, RESULTS, digest, rows_of, write_rows

from unity_dsl.machine.machine import load_machine
from unity_dsl.search.strategies import STRATEGIES

ROOT = Path(__file__).parent.parent
FILE = RESULTS / "search.json"
PER_DEVICE = {
    "bert_large": 8,
    "bert_unity": 1,
    "candle_uno": 4,
    "candle_uno_unity": 8,
    "dlrm": 256,
    "dlrm_unity": 8,
    "gpt2": 8,
    "gpt2_xl": 8,
    "gpt3_175b": 1,
    "inception_v3": 32,
    "inception_v3_unity": 8,
    "llama3_70b": 1,
    "llama3_8b": 1,
    "lstm_lm": 20,
    "mixtral_8x7b": 2,
    "mlp": 8,
    "mlp_unity": 8,
    "nasnet_a": 32,
    "resnext50": 32,
    "resnext50_unity": 2,
    "skipnet": 16,
    "vit_l16": 64,
    "xdl_unity": 8,
}
"""Examples per device by model. The number of examples of the whole batch is the model's parameter `b`."""
DEVICES = {"dgx-a100": (8, 64), "dgx-h100": (8, 64, 512), "summit": (6, 24, 96, 192)}
TOLD = 1.0001
GRACE = 600.0
"""Seconds after its time limits at which a process is ended, which its rows then note."""
BESIDE = ("data_parallel", "unity", "taso_then_flexflow")
"""Strategies with which `auto` is compared: tables and summary give the factors by which it is faster."""

Cell = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(PER_DEVICE), choices=list(PER_DEVICE), metavar="MODEL")
    parser.add_argument("--machines", nargs="*", default=list(DEVICES), metavar="MACHINE")
    parser.add_argument("--devices", nargs="*", type=int, help="of each machine; by default 6 or 8 and more")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES), metavar="NAME")
    parser.add_argument("--again", nargs="*", default=(), choices=list(STRATEGIES), metavar="NAME")
    parser.add_argument("--limit", type=float, default=20, help="seconds of a search but that of auto")
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true", help="print what is known as tables in Markdown, and end")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw what is known as .svg or .png, and end")
    options = parser.parse_args()
    cells: dict[str, Cell] = rows_of(options.output)
    if options.table:
        print(*means(cells), "", *table(cells), sep="\n")
        return
    if options.plot is not None:
        draw(cells, options.plot)
        return
    again, sources = set(options.again), digest(PLANNER)[:16]
    for machine in options.machines:
        for devices in options.devices or DEVICES[machine]:
            if devices > load_machine(machine).devices:
                continue
            for model in options.models:
                key = f"{model} {machine} {devices}"
                cell = cells.get(key, {"batch": PER_DEVICE[model] * devices, "strategies": {}})
                known = {name for name, row in cell["strategies"].items() if row.get("sources") == sources} - again
                missing = [name for name in options.strategies if name not in known]
                for names in [["auto"], [name for name in missing if name != "auto"]]:
                    if names and set(names) <= set(missing):
                        found = planned(model, machine, devices, cell["batch"], names, options.limit)
                        cell["strategies"] |= {name: row | {"sources": sources} for name, row in found.items()}
                        cells[key] = cell
                        write_rows(
                            options.output, "python bench/search.py", dict(sorted(cells.items())), summary(cells)
                        )
                print(describe(key, cell), flush=True)
    for name, value in summary(cells).items():
        print(f"{name}: {value}")


def planned(model: str, machine: str, devices: int, batch: int, names: list[str], limit: float) -> dict[str, Any]:
    """The rows of strategies by name from `unityc compare`, or why a strategy has none."""
    unityc = str(Path(sys.executable).parent / "unityc")
    command = [unityc, "compare", str(ROOT / "examples" / f"{model}.udl"), "--json"]
    command += ["-m", machine, "-d", str(devices), "-s", ",".join(names), "--set", f"b={batch}"]
    if names != ["auto"]:
        command += ["--time-limit", str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=len(names) * limit + GRACE)
    except subprocess.TimeoutExpired:
        return {name: {"refused": f"no answer in {len(names) * limit + GRACE:g} s"} for name in names}
    if not done.stdout.startswith("{"):
        told = done.stderr.strip().splitlines()
        return {name: {"refused": told[0] if told else "no answer"} for name in names}
    return {row["name"]: _kept(row) for row in json.loads(done.stdout)["strategies"]}


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    if row["refused"] is not None:
        return {"refused": row["refused"]}
    kept = ("iteration_s", "bound_s", "peak_memory_bytes", "comm_bytes", "fits", "mesh", "micro_batches")
    rules = {name: row["rules"].count(name) for name in dict.fromkeys(row["rules"])}
    found = {name: row[name] for name in kept} | {"search_s": round(row["search_s"], 2)}
    return found | ({} if row["ended"] is None else {"ended": row["ended"]}) | {"rules": rules}


def timed(cell: Cell) -> dict[str, float]:
    """Seconds of a step by strategy, for plans that fit."""
    return {name: row["iteration_s"] for name, row in cell["strategies"].items() if row.get("fits")}


def best_rival(cell: Cell) -> tuple[str, float] | None:
    """The fastest other strategy that fits, and its seconds divided by those of `auto`, or 0 if `auto` has no plan that
    fits. None if no other strategy fits.
    """
    seconds = timed(cell)
    rivals = [name for name in seconds if name != "auto"]
    if not rivals:
        return None
    best = min(rivals, key=seconds.__getitem__)
    return best, seconds[best] / seconds["auto"] if "auto" in seconds else 0.0


def describe(key: str, cell: Cell) -> str:
    auto, rival = cell["strategies"].get("auto", {}), best_rival(cell)
    if "iteration_s" not in auto:
        return f"{key}: auto has no plan: {auto.get('refused', 'not asked')}"
    gap = auto["iteration_s"] / auto["bound_s"] - 1
    told = f"{key}: {auto['iteration_s'] * 1e3:.4g} ms in {auto['search_s']} s, {100 * gap:.2g} % above its bound"
    if rival is not None:
        told += f"; {rival[0]} takes {rival[1]:.4f} of that" + (" <<<" if rival[1] * TOLD < 1 else "")
    return told + ("" if auto["fits"] else "; does not fit")


def table(cells: Mapping[str, Cell]) -> Iterator[str]:
    """A Markdown table: for each cell the milliseconds of `auto`, how many times longer some strategies take, and the
    fastest other strategy with its ratio to `auto`.
    """
    yield f"| cell | `auto`, ms | {' | '.join(f'`{name}`' for name in BESIDE)} | fastest other |"
    yield "|---" * (len(BESIDE) + 3) + "|"
    for key, cell in sorted(cells.items()):
        seconds, rival = timed(cell), best_rival(cell)
        if rival is not None and "auto" in seconds:
            beside = (f"{seconds[name] / seconds['auto']:.2f} x" if name in seconds else "" for name in BESIDE)
            fastest = f"`{rival[0]}`, {rival[1]:.4f}"
            yield f"| {' | '.join([key, format(1e3 * seconds['auto'], '.4g'), *beside, fastest])} |"


def means(cells: Mapping[str, Cell]) -> Iterator[str]:
    """A Markdown table: for each machine and number of devices, the geometric means of the ratios of some strategies to
    `auto` over the cells in which both fit, and the smallest ratio of the fastest other strategy.
    """
    yield f"| machine | cells | {' | '.join(f'`{name}`' for name in BESIDE)} | fastest other, at least |"
    yield "|---" * (len(BESIDE) + 3) + "|"
    for machine, devices in sorted({place(key) for key in cells}):
        own = {key: cell for key, cell in cells.items() if place(key) == (machine, devices) and "auto" in timed(cell)}
        factors = dict(_faster(own))
        beside = (f"{factors[name]:.2f} x" if name in factors else "" for name in BESIDE)
        least = min((rival[1] for cell in own.values() if (rival := best_rival(cell))), default=1.0)
        yield f"| {' | '.join([f'{devices} of {machine}', str(len(own)), *beside, f'{least:.4f} x'])} |"


def place(key: str) -> tuple[str, int]:
    """The machine and devices of a cell."""
    _, machine, devices = key.split()
    return machine, int(devices)


def draw(cells: Mapping[str, Cell], file: Path) -> None:
    """Draws the speedup of some strategies over data parallelism by cell, with one diagram per machine."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unity-dsl"  # makes the bytes of the picture reproducible
    from matplotlib import pyplot

    names = ("auto", *BESIDE[1:])
    drawn = {key: seconds for key, cell in cells.items() if {"auto", BESIDE[0]} <= (seconds := timed(cell)).keys()}
    machines = sorted({machine for machine, _ in map(place, drawn)})
    figure, rows = pyplot.subplots(
        len(machines), 1, figsize=(12.0, 3.6 * len(machines)), layout="constrained", squeeze=False
    )
    for machine, axes in zip(machines, rows[:, 0], strict=True):
        own = sorted((place(key)[1], key) for key in drawn if place(key)[0] == machine)
        for number, name in enumerate(names):
            at = [(x, drawn[key]) for x, (_, key) in enumerate(own) if name in drawn[key]]
            left = [x + (number - 1) * 0.27 for x, _ in at]
            axes.bar(left, [seconds[BESIDE[0]] / seconds[name] for _, seconds in at], 0.27, label=name)
        axes.set_yscale("log")
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.set_xticks(
            range(len(own)), [f"{key.split()[0]} {devices}" for devices, key in own], rotation=90, fontsize=7
        )
        axes.set_ylabel(f"{machine}: times {BESIDE[0]}")
    rows[0, 0].legend()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def summary(cells: Mapping[str, Cell]) -> dict[str, Any]:
    """The number of cells, the cells in which another strategy is faster, times of the search, gaps to the bounds, and
    the mean factors by which `auto` is faster than some strategies.
    """
    asked = {key: cell for key, cell in cells.items() if "iteration_s" in cell["strategies"].get("auto", {})}
    autos = [cell["strategies"]["auto"] for cell in asked.values()]
    if not autos:
        return {}
    lost = {key: rival for key, cell in asked.items() if (rival := best_rival(cell)) and rival[1] * TOLD < 1}
    gaps, search = [one["iteration_s"] / one["bound_s"] - 1 for one in autos], [one["search_s"] for one in autos]
    return {
        "cells": len(asked),
        "without a plan that fits": [key for key, cell in asked.items() if not timed(cell)],
        "faster than auto": {key: {"strategy": name, "part": round(part, 4)} for key, (name, part) in lost.items()},
        "search seconds": {"median": median(search), "most": max(search)},
        "gap to the bound of the plan": {"median": round(median(gaps), 4), "most": round(max(gaps), 4)},
        "times faster than": {name: round(factor, 3) for name, factor in _faster(asked)},
    }


def _faster(cells: Mapping[str, Cell]) -> Iterator[tuple[str, float]]:
    """Geometric means of the ratios of some strategies to `auto`, over the cells in which both fit."""
    for name in BESIDE:
        ratios = [found[name] / found["auto"] for found in map(timed, cells.values()) if {name, "auto"} <= found.keys()]
        if ratios:
            yield name, exp(sum(map(log, ratios)) / len(ratios))


if __name__ == "__main__":
    main()

"""How well commands and plans keep up with `--time-limit`: `python bench/time_limit.py`.

Every example is compiled on 8, 64, 192 and 1,024 devices, two at a time. Recorded are the wall-clock seconds of the
command, its step, and the steps of `data_parallel` and `zero`, whose searches have no limit. Six cells are also
compiled one at a time without a limit. Their `trace` lists every incumbent: the seconds since the start, and the
simulated step. An interrupted run resumes; rows of other planner sources are measured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from measure import PLANNER, RESULTS, digest, rows_of, write_rows

ROOT = Path(__file__).parent.parent
FILE = RESULTS / "time_limit.json"
UNITYC = str(Path(sys.executable).parent / "unityc")
COUNTS = (8, 64, 192, 1024)
AFTER = 3.0
"""Seconds after its limit at which a command should have ended; later ones are listed."""
RIVALS = ("data_parallel", "zero")
TRACED = ("gpt2 8", "inception_v3 64", "nasnet_a 8", "llama3_70b 1024", "gpt3_175b 64", "dlrm 64")

TRACE = """
import json, sys, time
from pathlib import Path
from unity_dsl.compilation import Request, compile_model
from unity_dsl.search import search_progress
found, tell, begun = [], search_progress.tell_incumbent, time.monotonic()
def told(seconds, told=""):
    found.append([round(time.monotonic() - begun, 2), seconds])
    tell(seconds, told)
from unity_dsl.search import incumbent
incumbent.tell_incumbent = told
plan = compile_model(Request(Path(sys.argv[1]), machine=sys.argv[2], devices=int(sys.argv[3]))).plan
print(json.dumps([*found, [round(time.monotonic() - begun, 2), plan.seconds]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="dgx-h100")
    parser.add_argument("--devices", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--limit", type=float, default=10)
    parser.add_argument(
        "--models", nargs="*", default=[path.stem for path in sorted((ROOT / "examples").glob("*.udl"))]
    )
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    rows, sources = rows_of(options.output), digest(PLANNER)[:16]

    def keep(cell: str, found: Mapping[str, Any]) -> None:
        known = rows.get(cell, {})
        rows[cell] = {**(known if known.get("sources") == sources else {}), **found, "sources": sources}
        write_rows(
            options.output, "python bench/time_limit.py", dict(sorted(rows.items())), summary(rows, options.limit)
        )
        print(cell, found, flush=True)

    def missing(field: str) -> list[tuple[str, int]]:
        cells = [(model, count) for count in options.devices for model in options.models]
        known = {cell for cell, row in rows.items() if row.get("sources") == sources and field in row}
        return [(model, count) for model, count in cells if f"{model} {count}" not in known]

    with ThreadPoolExecutor(2) as two:
        left = missing("seconds")
        limited = [two.submit(ended, model, options.machine, count, options.limit) for model, count in left]
        for (model, count), one in zip(left, limited, strict=True):
            keep(f"{model} {count}", one.result())
    for model, count in missing("rivals"):
        keep(f"{model} {count}", {"rivals": rivals(model, options.machine, count)})
    for model, count in missing("trace"):
        if f"{model} {count}" in TRACED:
            keep(f"{model} {count}", {"trace": trace(model, options.machine, count)})
    for name, value in summary(rows, options.limit).items():
        print(f"{name}: {value}")


def ended(model: str, machine: str, devices: int, limit: float) -> dict[str, Any]:
    """Compiles with a time limit; returns the wall-clock seconds and the plan's step, or the error output."""
    with tempfile.TemporaryDirectory() as folder:
        command = [UNITYC, str(ROOT / "examples" / f"{model}.udl"), "-o", f"{folder}/out", "-m", machine]
        command += ["-d", str(devices), "--time-limit", str(limit), "--force"]
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if done.returncode:
            return {"seconds": round(seconds, 2), "failed": done.stderr[-2000:]}
        plan = json.loads(Path(folder, "out", "plan.json").read_text())
    return {"seconds": round(seconds, 2), "step": plan["simulated_seconds"], "fits": not plan["warnings"]}


def rivals(model: str, machine: str, devices: int) -> dict[str, float | None]:
    """The steps of the rival strategies' plans by name; None for a plan that does not fit."""
    command = [UNITYC, "compare", str(ROOT / "examples" / f"{model}.udl"), "--json", "-s", ",".join(RIVALS)]
    done = subprocess.run([*command, "-m", machine, "-d", str(devices)], capture_output=True, text=True)
    told = json.loads(done.stdout)["strategies"] if done.stdout.startswith("{") else []
    return {row["name"]: row["iteration_s"] if row["fits"] else None for row in told}


def trace(model: str, machine: str, devices: int) -> Sequence[tuple[float, float]]:
    """Each incumbent as seconds since the start and simulated step. The last entry is the final plan."""
    command = [sys.executable, "-c", TRACE, str(ROOT / "examples" / f"{model}.udl"), machine, str(devices)]
    found: Sequence[tuple[float, float]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def summary(rows: Mapping[str, Mapping[str, Any]], limit: float) -> dict[str, Any]:
    timed = {cell: row["seconds"] for cell, row in rows.items() if "seconds" in row}
    if not timed:
        return {}
    late = {cell: seconds for cell, seconds in timed.items() if seconds > limit + AFTER}
    behind = {}
    for cell, row in rows.items():
        best = min((seconds for seconds in row.get("rivals", {}).values() if seconds is not None), default=None)
        if best is not None and "failed" not in row and (not row["fits"] or row["step"] > 1.001 * best):
            behind[cell] = round(row["step"] / best, 4)
    most = max(timed, key=timed.__getitem__)
    return {
        "commands": len(timed),
        "median seconds": median(timed.values()),
        "most seconds": f"{timed[most]:.2f} ({most})",
        f"later than {limit + AFTER:g} s": late,
        "slower than data_parallel or zero": behind,
        "failed": [cell for cell, row in rows.items() if "failed" in row],
    }


if __name__ == "__main__":
    main()

"""Time and memory of whole compilations, files included, on 8 to 1,024 devices: `python bench/compile_scale.py`.

Every example is compiled at full size in a fresh process. Plans that do not fit count too. An interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from measure import RESULTS, write_results

ROOT = Path(__file__).parent.parent
COUNTS = (8, 64, 192, 1024)
MOST_SECONDS, MOST_MEGABYTES, MOST_KILOBYTES = 10, 1500, 60
"""Limits for every compilation on two cores: wall-clock time, resident memory, and size of parallel.py. Excesses are
printed.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dgx-h100")
    parser.add_argument("--devices", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--again", action="store_true", help="measure all rows anew")
    options = parser.parse_args()
    log = ROOT / "build" / "compile_scale.json"
    log.parent.mkdir(exist_ok=True)
    rows: dict[str, Any] = json.loads(log.read_text()) if log.exists() and not options.again else {}
    examples = sorted((ROOT / "examples").glob("*.udl"))
    for count in options.devices:
        for example in examples:
            name = f"{example.stem} {count}"
            if name not in rows:
                rows[name] = measured(example, options.machine, count)
                log.write_text(json.dumps(rows))
                print(name, rows[name], file=sys.stderr, flush=True)
    rows = {f"{e.stem} {count}": rows[f"{e.stem} {count}"] for count in options.devices for e in examples}
    print_summary(rows, options.devices)
    write_results("compile_scale", f"unityc examples/NAME.udl --machine {options.machine} --devices N -o out/", rows)
    print(f"written to {RESULTS.name}/compile_scale.json")


def measured(example: Path, machine: str, devices: int, settings: Mapping[str, int] = {}) -> dict[str, float]:
    """Wall-clock and processor seconds, peak resident megabytes, kilobytes of parallel.py, and the simulated step."""
    found, plan = compiled(example, machine, devices, settings)
    return {**found, "predicted step": plan["simulated_seconds"], "fits": not plan["warnings"]}


def compiled(
    example: Path, machine: str, devices: int, settings: Mapping[str, int] = {}, memory: str | None = None
) -> tuple[dict[str, float], dict[str, Any]]:
    """The seconds, megabytes and kilobytes of `measured`, and the content of plan.json. `memory` replaces the machine's
    memory per device. Raises SystemExit if the command fails.
    """
    unityc = Path(sys.executable).parent / "unityc"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [str(unityc), str(example), "-o", str(out), "--machine", machine, "--devices", str(devices)]
        command.append("--force")
        command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command += [] if memory is None else ["--memory", memory]
        begun = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.execv(command[0], command)
        _, status, used = os.wait4(child, 0)
        wall = time.perf_counter() - begun
        if status:
            raise SystemExit(f"{' '.join(command)} failed with status {status}")
        found = {
            "wall": round(wall, 2),
            "processor": round(used.ru_utime + used.ru_stime, 2),
            "megabytes": round(used.ru_maxrss / 1024),
            "parallel.py kB": round((out / "parallel.py").stat().st_size / 1000, 1),
        }
        return found, json.loads((out / "plan.json").read_text())


def print_summary(rows: dict[str, Any], counts: tuple[int, ...]) -> None:
    for count in counts:
        own = {name: row for name, row in rows.items() if name.endswith(f" {count}")}
        seconds = {name: row["wall"] for name, row in own.items()}
        processor = median(row["processor"] for row in own.values())
        slowest = max(seconds, key=seconds.__getitem__)
        print(
            f"{count} devices: median {median(seconds.values()):.2f} s (of processors {processor:.2f}), "
            f"most {seconds[slowest]:.2f} s ({slowest}), "
            f"at most {max(row['megabytes'] for row in own.values())} MB, "
            f"parallel.py at most {max(row['parallel.py kB'] for row in own.values())} kB"
        )
    for name, row in rows.items():
        limits = {"wall": MOST_SECONDS, "megabytes": MOST_MEGABYTES, "parallel.py kB": MOST_KILOBYTES}
        for key, limit in limits.items():
            if row[key] > limit:
                print(f"{name}: {key} {row[key]}, more than {limit}")


if __name__ == "__main__":
    main()

"""Seconds of the search alone, on one core, for every example at full size: `python bench/search_time.py`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from measure import print_table, write_results

ROOT = Path(__file__).parent.parent

MEASURE = """
import sys, time
from pathlib import Path
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.plan_search import meshes_for, search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
path, machine, devices, strategy = sys.argv[1:]
library, machine = load_library(), load_machine(machine)
model = build_model(parse_model(read_source(Path(path))), library)
meshes = meshes_for(machine, int(devices), None, strategy)
start = time.perf_counter()
search(model, meshes, machine, library, strategy)
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dgx-a100")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()

    arguments = [options.machine, str(options.devices), options.strategy]
    examples = sorted((ROOT / "examples").glob("*.udl"))
    results = {example.stem: time_search(example, arguments, options.repetitions) for example in examples}
    print_table(results)
    command = f"python bench/search_time.py --machine {options.machine} --devices {options.devices}"
    write_results("search_time", f"{command} --strategy {options.strategy}", results)


def time_search(example: Path, arguments: list[str], repetitions: int) -> dict[str, float | int]:
    """Wall-clock seconds of a search in fresh processes with one thread, without cached tables of an earlier search."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    times = []
    for _ in range(repetitions):
        command = [sys.executable, "-c", MEASURE, str(example), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        times.append(float(done.stdout))
    rounded = {"median": median(times), "least": min(times), "most": max(times)}
    return {**{name: round(value, 3) for name, value in rounded.items()}, "repetitions": repetitions}


if __name__ == "__main__":
    main()

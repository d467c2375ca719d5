"""Seconds from model text to program, for every example at full size: `python bench/compile_time.py`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from measure import print_table, time_command, write_results

ROOT = Path(__file__).parent.parent
LIMIT = 10
"""Seconds that an example may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dgx-a100")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()

    unityc = Path(sys.executable).parent / "unityc"
    arguments = ["--machine", options.machine, "--devices", str(options.devices), "--strategy", options.strategy]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for example in sorted((ROOT / "examples").glob("*.udl")):
            command = [str(unityc), str(example), "-o", f"{folder}/{example.stem}", *arguments]
            results[example.stem] = time_command(command, options.repetitions)
    print_table(results)
    print_summary(results)
    write_results("compile_time", f"unityc examples/NAME.udl -o out/ {' '.join(arguments)}", results)


def print_summary(results: dict[str, dict[str, float]]) -> None:
    """The median and the most over all examples, and which of them take longer than they may."""
    medians = {name: found["median"] for name, found in results.items()}
    slowest = max(medians, key=medians.__getitem__)
    print(
        f"median of {len(medians)} examples {median(medians.values()):.2f} s, most {medians[slowest]:.2f} s ({slowest})"
    )
    for name, seconds in medians.items():
        if seconds > LIMIT:
            print(f"{name} takes {seconds:.1f} s, more than {LIMIT} s")


if __name__ == "__main__":
    main()

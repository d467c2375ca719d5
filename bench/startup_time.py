"""Wall-clock seconds of short commands in fresh processes: `python bench/startup_time.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from measure import print_table, time_command, write_results

COMMANDS = (["--help"], ["--version"], ["compile", "--help"], ["list", "machines"], ["explain", "softmax"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()

    unityc = Path(sys.executable).parent / "unityc"
    results = {
        " ".join(["unityc", *command]): time_command([str(unityc), *command], options.repetitions)
        for command in COMMANDS
    }
    print_table(results)
    write_results("startup_time", "unityc …", results)


if __name__ == "__main__":
    main()

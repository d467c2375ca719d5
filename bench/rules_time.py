"""How much longer a compilation takes with the ten rules of ten.rules: `python bench/rules_time.py`.

The time includes the proofs and the search of all rewritten models. `ratio` is the time with rules over the time
without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from measure import print_table, time_command, write_results

ROOT = Path(__file__).parent.parent
RULES = Path(__file__).parent / "ten.rules"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="dgx-a100")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()

    unityc = Path(sys.executable).parent / "unityc"
    arguments = ["--machine", options.machine, "--devices", str(options.devices)]
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, preset in (("gpt2 small", ["--preset", "small"]), ("gpt2", [])):
            command = [str(unityc), str(ROOT / "examples" / "gpt2.udl"), "-o", f"{folder}/out", *arguments, *preset]
            results[name] = time_command(command, options.repetitions)
            without, with_rules = results[name], time_command([*command, "--rules", str(RULES)], options.repetitions)
            with_rules["ratio"] = round(with_rules["median"] / without["median"], 2)
            results[f"{name}, ten rules"] = with_rules
    print_table(results)
    command = f"unityc examples/gpt2.udl -o out/ {' '.join(arguments)} --rules bench/ten.rules"
    write_results("rules_time", command, results)


if __name__ == "__main__":
    main()

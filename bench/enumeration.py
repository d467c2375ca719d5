"""Counts the graphs, classes, pairs and candidates of the signature table by theme, and the time of each theme.

    python bench/enumeration.py [THEME ...] [--operators N] [--processes N]
    python bench/enumeration.py --four

The second form uses a small table of matrix products, sums and transposes, with four operators per side. Both update
bench/results/enumeration.json after each theme and keep the rows of other themes.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from dataclasses import asdict, replace

from measure import RESULTS, write_results

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.rules.enumeration.candidates import candidates
from unity_dsl.rules.enumeration.context import Context, theme_contexts
from unity_dsl.rules.enumeration.signature_table import load_table, read_table
from unity_dsl.rules.process_map import process_map
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
FOUR = """
[four]
operators = 4
signatures = [
  "(x: [m, k], w: [n, k]) linear(x, w)",
  "(x: [m, k], y: [k, n]) matmul(x, y)",
  "(x: [m, n], y: [m, n]) add(x, y)",
  "(x: [m, n]) x[m, n] -> [n, m]",
]
"""


def measured(context: Context) -> tuple[dict[str, int], float, list[str], int]:
    """The counts of a context, its processor seconds, its rules' names, and the process's peak memory in KiB."""
    start = time.process_time()
    made = candidates(context, LIBRARY)
    names = [rule.name for rule in made.candidates]
    return asdict(made.counts), time.process_time() - start, names, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("themes", nargs="*")
    parser.add_argument("--operators", type=int, help="the most operators a side, in place of the table's")
    parser.add_argument("--four", action="store_true", help="four operators a side on a small table")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    table = read_table(Source("four", FOUR)) if given.four else load_table(folder("rules") / "signatures.toml")
    kept = RESULTS / "enumeration.json"
    found = json.loads(kept.read_text())["seconds"] if kept.exists() else {}
    for theme in table.themes:
        if given.themes and theme.name not in given.themes:
            continue
        theme = replace(theme, operators=given.operators or theme.operators)
        start = time.process_time()
        asked = theme_contexts(theme, LIBRARY, table)
        seconds = time.process_time() - start
        counts: Counter[str] = Counter(contexts=len(asked))
        names: set[str] = set()
        peak = 0
        for own, taken, made, memory in process_map(measured, asked, given.processes):
            counts.update(own)
            seconds += taken
            names.update(made)
            peak = max(peak, memory)
        counts["distinct candidates"] = len(names)
        key = f"{theme.name}, {theme.operators} operators"
        found[key] = {**counts, "processor seconds": round(seconds, 1), "peak MiB a process": peak // 1024}
        print(key, found[key], flush=True)
        write_results("enumeration", "python bench/enumeration.py", dict(sorted(found.items())))


if __name__ == "__main__":
    main()

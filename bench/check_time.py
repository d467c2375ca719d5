"""Seconds of a check of every example on ranks that are already running: `python bench/check_time.py`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from measure import print_table, write_results

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()

    counts = [int(count) for count in options.ranks.split(",")]
    results = {}
    with tempfile.TemporaryDirectory() as folder, RankPool(max(counts)) as pool:
        for example in sorted((ROOT / "examples").glob("*.udl")):
            for ranks in counts:
                request = Request(example, preset=options.preset, devices=ranks, strategy=options.strategy)
                out = Path(folder) / f"{example.stem}-{ranks}"
                compilation = compile_model(request)
                write_program(compilation.plan, compilation.library, compilation.sources, request, out)
                results[f"{example.stem} on {ranks}"] = time_check(pool, out, options.repetitions)
    print_table(results)
    write_results("check_time", "python bench/check_time.py", results)


def time_check(pool: RankPool, out: Path, repetitions: int) -> dict[str, float | int]:
    """Seconds of checks with different weights and data, after one that warms up the ranks. Raises SystemExit if one
    fails.
    """
    times = []
    for seed in range(1 + repetitions):
        start = time.perf_counter()
        report = check(out, seed=seed, pool=pool)
        times.append(time.perf_counter() - start)
        if not report.ok:
            raise SystemExit(f"{out.name} is not equal to its model: {report.to_json()}")
    kept = times[1:]
    rounded = {"median": median(kept), "least": min(kept), "most": max(kept)}
    return {**{name: round(value, 3) for name, value in rounded.items()}, "repetitions": repetitions}


if __name__ == "__main__":
    main()

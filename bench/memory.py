"""Predicted peak memory against what a program holds on the ranks of this machine: `python bench/memory.py`.

The prediction is the plan's peak memory, derived from the tasks of a training step. Counted are the storages that are
alive at once in a training step of the emitted program with AdamW. Cases are all examples at their small presets, and
some at larger sizes that fit. They run on one and two ranks in float32, under data parallelism and random plans. Some
also run in mixed precision, or with all repeats recomputed. A body that runs depending on the data (skipnet) is
predicted as executed, so the weights are chosen such that all these bodies run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from measure import RESULTS, ROOT, rows_of, write_rows

sys.path.insert(0, str(ROOT))

from tests.program.peak_memory import count_memory
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_pool import RankPool

FILE = RESULTS / "memory.json"
REDUCED: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"b": 4, "s": 256, "layers": 4},
    "bert_large": {"b": 4, "s": 128, "layers": 4},
    "resnext50": {"b": 4},
    "mixtral_8x7b": {"b": 2, "s": 128, "d": 256, "hidden": 512, "layers": 2, "vocabulary": 4000},
}
"""Examples at sizes close to their full sizes that fit this machine."""
MIXED = ("dlrm", "gpt2", "llama3_8b", "mixtral_8x7b", "resnext50")
"""Examples whose small presets are measured in bf16 too."""
ALL_RUN: Mapping[str, Mapping[str, tuple[float, ...]]] = {"skipnet": {"runs.bias": (-100, 100)}}
"""Parameter values with which all data-dependent bodies run."""


@dataclass(frozen=True)
class Case:
    """An example on a number of ranks, at its small preset unless `settings` are given."""

    example: str
    ranks: int
    strategy: str
    settings: Mapping[str, int] = field(default_factory=dict)
    precision: str = "f32"
    recompute: str = "none"

    @property
    def key(self) -> str:
        size = "reduced" if self.settings else "small"
        types = "" if self.precision == "f32" else f" {self.precision}"
        again = " recomputed" if self.recompute != "none" else ""
        return f"{self.example} {size} {self.ranks} {self.strategy}{types}{again}"

    def request(self) -> Request:
        path = ROOT / "examples" / f"{self.example}.udl"
        preset = None if self.settings else "small"
        chosen = {"strategy": self.strategy, "recompute": self.recompute}
        return Request(path, self.settings, preset, self.precision, devices=self.ranks, **chosen)


def cases() -> Iterator[Case]:
    for path in sorted((ROOT / "examples").glob("*.udl")):
        yield Case(path.stem, 1, "data_parallel")
        for strategy in ("data_parallel", "random:1", "random:2"):
            yield Case(path.stem, 2, strategy)
    for example, settings in REDUCED.items():
        for ranks in (1, 2):
            yield Case(example, ranks, "data_parallel", settings)
            yield Case(example, ranks, "data_parallel", settings, "bf16")
            yield Case(example, ranks, "data_parallel", settings, recompute="all")
    for example in MIXED:
        yield Case(example, 1, "data_parallel", precision="bf16")
        for strategy in ("data_parallel", "random:1", "random:2"):
            yield Case(example, 2, strategy, precision="bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", help="all, if none is named")
    parser.add_argument("--again", action="store_true", help="measure all cases again")
    options = parser.parse_args()
    rows = {} if options.again else rows_of(FILE)
    with RankPool(2) as pool:
        for case in cases():
            if case.key not in rows and (not options.examples or case.example in options.examples):
                rows[case.key] = measure(case, pool)
                write_rows(FILE, "python bench/memory.py", rows)
                print(describe(case.key, rows[case.key]), flush=True)
    errors = [abs(row["predicted"] / row["counted"] - 1) for row in rows.values()]
    print(f"{len(rows)} cases: median error {median(errors):.1%}, worst {max(errors):.1%}")


def measure(case: Case, pool: RankPool) -> dict[str, Any]:
    """Peak bytes predicted and counted, and the point of the step at which each peak occurs."""
    request = case.request()
    compiled = compile_model(request)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        write_program(compiled.plan, compiled.library, compiled.sources, request, out, force=True)
        predicted = compiled.plan.cost.memory
        counts = pool.run(count_memory, str(out), ALL_RUN.get(case.example, {}), ranks=case.ranks)
        counted = max(counts, key=lambda found: found.peak)
    most, at = round(predicted.total), predicted.at
    return {"predicted": most, "counted": counted.peak, "predicted_at": at, "counted_at": counted.at}


def describe(key: str, row: Mapping[str, Any]) -> str:
    error = row["predicted"] / row["counted"] - 1
    return (
        f"{key}: {row['predicted']:,} bytes predicted, {row['counted']:,} counted, {error:+.1%}; {row['predicted_at']}"
    )


if __name__ == "__main__":
    main()

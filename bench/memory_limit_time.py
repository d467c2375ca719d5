"""Compile time with the machine's memory limit and without a limit: `python bench/memory_limit_time.py`.

The cases are examples for which the limit binds, or nothing fits. A whole compilation, including its files, is timed in
a fresh process, alternating with and without the limit. The ratio is that of the medians. An interrupted run resumes;
rows of other compiler sources are measured again, and with `--again` all rows are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from compile_scale import compiled
from measure import COMPILER, RESULTS, ROOT, digest, rows_of, write_rows

FILE = RESULTS / "memory_limit_time.json"
UNLIMITED = "1000000TB"
ALLOWED = 2.0
"""Largest acceptable ratio of processor seconds, with a binding limit over without a limit. Larger ones are listed."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """An example on devices of a machine, with a global batch of `batch` sequences."""

    example: str
    machine: str
    devices: int
    batch: int

    @property
    def key(self) -> str:
        return f"{self.example} {self.machine} {self.devices} batch {self.batch}"


CASES = (
    Case("llama3_8b", "summit", 48, 48),
    Case("llama3_8b", "summit", 192, 192),
    Case("llama3_8b", "dgx-h100", 8, 8),
    Case("llama3_8b", "dgx-h100", 8, 32),
    Case("llama3_70b", "dgx-h100", 8, 8),
    Case("llama3_70b", "dgx-h100", 16, 16),
    Case("llama3_70b", "dgx-h100", 64, 8),
    Case("llama3_70b", "dgx-h100", 64, 64),
    Case("gpt3_175b", "dgx-h100", 8, 8),
    Case("gpt3_175b", "dgx-h100", 64, 16),
    Case("gpt3_175b", "dgx-h100", 64, 64),
    Case("mixtral_8x7b", "dgx-h100", 8, 16),
    Case("mixtral_8x7b", "dgx-h100", 64, 128),
    Case("gpt2_xl", "dgx-h100", 8, 64),
    Case("gpt2_xl", "dgx-h100", 64, 512),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", metavar="TEXT", help="only those whose names contain one of these")
    parser.add_argument("--repetitions", type=int, default=3, help="compilations of a case of either kind")
    parser.add_argument("--again", action="store_true", help="measure all rows anew")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    compiler, known = digest(COMPILER)[:16], rows_of(options.output)
    asked = [case for case in CASES if not options.cases or any(text in case.key for text in options.cases)]
    rows = {case.key: known[case.key] for case in CASES if case.key in known}
    for case in asked:
        row = rows.get(case.key)
        if row is None or row["compiler"] != compiler or options.again:
            row = {"compiler": compiler, "limited": {}, "unlimited": {}}
        while len(row["unlimited"].get("processor", ())) < options.repetitions:
            row = with_another(row, case)
            rows[case.key] = row
            ordered = {one.key: rows[one.key] for one in CASES if one.key in rows}
            write_rows(options.output, "python bench/memory_limit_time.py", ordered, summary(ordered))
        print(described(case.key, row), flush=True)
    for name, value in summary(rows).items():
        print(f"{name}: {value}")


def with_another(row: Row, case: Case) -> Row:
    """The row with one more compilation of each kind. Which kind runs first alternates."""
    kinds = [("limited", None), ("unlimited", UNLIMITED)]
    found = dict(row)
    for kind, memory in kinds if len(row["limited"].get("processor", ())) % 2 == 0 else reversed(kinds):
        example = ROOT / "examples" / f"{case.example}.udl"
        taken, plan = compiled(example, case.machine, case.devices, {"b": case.batch}, memory)
        before = row[kind]
        times = {name: [*before.get(name, ()), taken[name]] for name in ("processor", "wall")}
        found[kind] = {**times, **told(plan)}
    for name in ("processor", "wall"):
        found[f"{name} ratio"] = round(median(found["limited"][name]) / median(found["unlimited"][name]), 2)
    return found


def told(plan: Row) -> Row:
    """A plan's simulated step in seconds, mesh, micro-batches, recomputation, re-gathers, and whether it fits."""
    return {
        "step": plan["simulated_seconds"],
        "mesh": [axis["degree"] for axis in plan["mesh"]],
        "micro_batches": plan["micro_batches"]["count"],
        "recomputed": plan["recomputed"],
        "kept_iterations": plan.get("kept_iterations", {}),
        "regathered": len(plan.get("regathered", ())),
        "fits": not plan["warnings"],
    }


def summary(rows: dict[str, Row]) -> Row:
    ratios = {key: row["processor ratio"] for key, row in rows.items()}
    return {
        "geometric mean of ratios": round(prod(ratios.values()) ** (1 / len(ratios)), 2),
        "largest ratio": max(ratios.values()),
        f"more than {ALLOWED:g} times": [key for key, ratio in ratios.items() if ratio > ALLOWED],
    }


def described(key: str, row: Row) -> str:
    seconds = [median(row[kind]["processor"]) for kind in ("limited", "unlimited")]
    plan, other = row["limited"], row["unlimited"]
    mesh, fits = " x ".join(map(str, plan["mesh"])), "" if plan["fits"] else ", which does not fit"
    again = ", ".join(f"{path}, kept {plan['kept_iterations'].get(path, 0)}" for path in plan["recomputed"])
    return (
        f"{key}: {seconds[0]:.2f} / {seconds[1]:.2f} = {row['processor ratio']:.2f} processor s, by the clock "
        f"{row['wall ratio']:.2f}; step {plan['step']:.4g} s{fits} ({other['step']:.4g} s without a limit), {mesh}, "
        f"{plan['micro_batches']} micro-batches, recomputed: {again or 'nothing'}"
    )


if __name__ == "__main__":
    main()

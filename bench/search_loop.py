"""Steps and processor seconds of `auto` by this search and by an earlier one: `python bench/search_loop.py`.

Every cell of results/search.json is planned in one process on one processor. `--label NAME` (`before` or `after`)
stores the rows under that label, for the package that PYTHONPATH selects. `--cells WORD …` plans some cells. An
interrupted run resumes. `--summary` only compares both labels, by the ratios of steps of the cells in which both plans
fit or neither does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from measure import RESULTS, rows_of, write_rows

from unity_dsl.compilation import Request, compile_model

ROOT = Path(__file__).parent.parent
FILE = RESULTS / "search_loop.json"
COMMAND = "python bench/search_loop.py"
BEFORE, AFTER = "before", "after"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", default=AFTER, choices=(BEFORE, AFTER))
    parser.add_argument("--cells", nargs="*", default=[""])
    parser.add_argument("--effort", default="")
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.processor})
    rows = rows_of(options.output)
    if not options.summary:
        cells = rows_of(RESULTS / "search.json")
        for cell in cells:
            if any(word in cell for word in options.cells) and options.label not in rows.get(cell, {}):
                rows.setdefault(cell, {})[options.label] = planned(cell, cells[cell]["batch"], options.effort)
                print(cell, rows[cell][options.label], flush=True)
                write_rows(options.output, COMMAND, rows)
    found = summary(rows)
    write_rows(options.output, COMMAND, rows, found)
    print(json.dumps(found, indent=1))


def planned(cell: str, batch: int, effort: str, **given: Any) -> dict[str, Any]:
    """The simulated step and mesh of the plan of `auto`, the compilation's processor seconds, and its evaluations."""
    model, machine, devices = cell.split()
    given |= {"effort": effort} if effort else {}
    request = Request(
        ROOT / "examples" / f"{model}.udl", settings={"b": batch}, machine=machine, devices=int(devices), **given
    )
    begun = time.process_time()
    plan = compile_model(request).plan
    seconds = time.process_time() - begun
    trail = getattr(plan, "trail", ())
    return {
        "step": plan.seconds,
        "fits": not plan.warnings,
        "mesh": list(plan.mesh.degrees),
        "micro_batches": plan.micro_batches,
        "processor_s": round(seconds, 2),
        "evaluations": trail[-1].evaluations if trail else None,
    }


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ratios of steps and processor seconds, over the cells that both searches planned."""
    both = {cell: row for cell, row in rows.items() if BEFORE in row and AFTER in row}
    alike = {cell: row for cell, row in both.items() if row[BEFORE]["fits"] == row[AFTER]["fits"]}
    if not alike:
        return {}
    ratios = {cell: row[AFTER]["step"] / row[BEFORE]["step"] for cell, row in alike.items()}
    taken = {label: [row[label]["processor_s"] for row in both.values()] for label in (BEFORE, AFTER)}
    return {
        "cells": len(both),
        "geometric mean": round(exp(sum(map(log, ratios.values())) / len(ratios)), 4),
        "worst": {cell: round(ratios[cell], 4) for cell in sorted(ratios, key=ratios.__getitem__)[-5:]},
        "best": {cell: round(ratios[cell], 4) for cell in sorted(ratios, key=ratios.__getitem__)[:5]},
        "differ in fitting": sorted(both.keys() - alike.keys()),
        "processor seconds": {
            label: {"median": round(median(some), 2), "sum": round(sum(some)), "most": max(some)}
            for label, some in taken.items()
        },
    }


if __name__ == "__main__":
    main()

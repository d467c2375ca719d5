"""Compares the prover with an independent evaluator on random rules: `python bench/adversary.py`.

An interrupted run resumes. The exit status is 1 if an answer is wrong: a proved rule whose sides differ or are
undefined somewhere, a counterexample that exact arithmetic does not confirm, or a crash.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import write_results

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.prove.adversary.draws import judged, shares  # noqa: E402
from tests.prove.adversary.verdict import Fault, Verdict, counts, table  # noqa: E402

CHUNK = 40
"""Number of rules that are read together, with one library."""
Task = tuple[str, int, int, int, bool]
"""Kind, first number, one past the last number, seed, and whether both sides are evaluated at numbers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=20_000, help="how many rules are tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--without-numbers", action="store_true", help="proofs only: no side is run at numbers")
    parser.add_argument("--kind", action="append", help="only rules of this kind; may be given several times")
    parser.add_argument("--log", type=Path, help="where the verdicts are kept, a line each (build/adversary-….jsonl)")
    options = parser.parse_args()
    witness = not options.without_numbers
    name = "adversary" if witness else "adversary_without_numbers"
    log: Path = options.log or ROOT / "build" / f"{name}-{options.seed}-{options.rules}.jsonl"
    log.parent.mkdir(exist_ok=True)

    tasks = [task for task in _tasks(options.rules, options.seed, witness) if task[0] in (options.kind or [task[0]])]
    done = {tuple(entry["task"]) for entry in _entries(log)}
    todo = [task for task in tasks if task not in done]
    begun = perf_counter()
    with get_context("spawn").Pool(options.processes) as pool, log.open("a") as file:
        file.write("\n" if log.exists() and log.read_text()[-1:] not in ("", "\n") else "")
        try:
            for place, entry in enumerate(pool.imap_unordered(_run, todo), 1):
                file.write(json.dumps(entry) + "\n")
                file.flush()
                print(f"{place}/{len(todo)} {entry['task'][0]}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: the same command goes on", file=sys.stderr)
    wall = perf_counter() - begun

    found = [Verdict.from_json(one) for entry in _entries(log) for one in entry["verdicts"]]
    rows = counts(found)
    print(*table(rows), sep="\n")
    faults = {fault: [one for one in found if one.fault is fault] for fault in Fault}
    for fault, own in faults.items():
        for one in own:
            print(f"\n{fault}: {one.kind}, {one.detail}\n{one.text}")
    results = {
        "seed": options.seed,
        "rules asked for": options.rules,
        "drawn": sum(entry["task"][2] - entry["task"][1] for entry in _entries(log)),
        "read and judged": len(found),
        "processor time": {
            "prover": round(sum(one.seconds[0] for one in found), 1),
            "evaluator": round(sum(one.seconds[1] for one in found), 1),
        },
        "wall, this run": round(wall, 1),
        "counts": rows,
        "faults": {fault: [f"{one.detail}\n{one.text}" for one in own] for fault, own in faults.items() if own},
    }
    if options.kind is None:
        command = f"python bench/adversary.py --rules {options.rules} --seed {options.seed}"
        write_results(name, command + " --without-numbers" * (not witness), results)
    sys.exit(1 if any(own for fault, own in faults.items() if fault is not Fault.HANG) else 0)


def _tasks(total: int, seed: int, witness: bool) -> list[Task]:
    """The tasks, with all kinds interleaved, so that an interrupted run has covered all of them."""
    tasks = [
        (kind, first, min(first + CHUNK, count), seed, witness)
        for kind, count in shares(total).items()
        for first in range(0, count, CHUNK)
    ]
    return sorted(tasks, key=lambda task: task[1])


def _run(task: Task) -> dict[str, Any]:
    kind, first, last, seed, witness = task
    verdicts = [one.to_json() for one in judged(kind, range(first, last), seed, witness=witness)]
    return {"task": task, "verdicts": verdicts}


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    """The entries that were written before. An incomplete line, left by an interruption, is skipped and its task runs
    again.
    """
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


if __name__ == "__main__":
    main()

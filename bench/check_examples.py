"""Every example under every strategy on every number of ranks: `python bench/check_examples.py`.

Each case compiles an example at its small preset and compares the program with the one for a single device, as `unityc
check` does, on one pool of ranks. Results are written after every case, so an interrupted run resumes. A case is
checked again only if the example or the compiler has changed. The exit status is 1 if a program is not equal to its
model.

`python bench/check_examples.py --micro-batches 2 --output FILE` checks programs that split a batch into two
micro-batches. Examples for which that would change the step are refused and reported. With `--precision bf16` all
examples are checked in mixed precision.

`TRITON_INTERPRET=1 python bench/check_examples.py --kernels triton --output FILE` checks programs whose operators run
as kernels, in Triton's interpreter. A failing kernel ends the run.

`python bench/check_examples.py --strategies` checks every strategy of `unityc list strategies` instead, with the
shipped rules and its own meshes, on 2 and 4 ranks, each program by `unityc check`. A strategy without a plan is refused
and reported.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import COMPILER, RESULTS, ROOT, digest, rows_of, write_rows

sys.path.insert(0, str(ROOT))

from tests.program.example_cases import EXAMPLES, PLANS, RANKS, Checker, Finding, cases, strategy_cases
from unity_dsl.emit.plan_file import KERNELS, TORCH, TRITON
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.precision import PRECISIONS
from unity_dsl.search.recomputed_segments import NONE

MADE_BY = (*COMPILER, ROOT / "tests" / "program" / "slow.toml")
"""The sources that determine a case's program, besides its model, including the machine file of some cases."""
COMMAND = "python bench/check_examples.py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks all cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", help="1, 2 and 4 by default, of strategies 2 and 4")
    parser.add_argument("--strategies", action="store_true", help="every strategy with the shipped rules")
    parser.add_argument("--plans", type=int, default=PLANS, help="plans drawn by chance, per example and ranks")
    parser.add_argument("--seed", type=int, default=0, help="which plans are drawn")
    parser.add_argument("--examples", nargs="+", default=list(EXAMPLES), choices=EXAMPLES, metavar="NAME")
    parser.add_argument("--micro-batches", type=int, default=1, help="parts of the batch that a step runs")
    parser.add_argument(
        "--recompute", default=NONE, help="of examples that have any, segments run again: names or `all`"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="float type of the arithmetic; by default the example's"
    )
    parser.add_argument(
        "--kernels", default=TORCH, choices=KERNELS, help="as what operators run: `triton` in its interpreter"
    )
    parser.add_argument("--again", action="store_true", help="check what was checked before too")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    ranks = options.ranks or (RANKS[1:] if options.strategies else RANKS)
    output = options.output or RESULTS / f"check_{'strategies' if options.strategies else 'examples'}.json"

    compiler = digest(MADE_BY)
    command = COMMAND if options.micro_batches == 1 else f"{COMMAND} --micro-batches {options.micro_batches}"
    command = command if options.precision is None else f"{command} --precision {options.precision}"
    if options.strategies:
        command = f"{command} --strategies"
        drawn = [case for name in options.examples for case in strategy_cases(name, ranks)]
    else:
        drawn = [case for name in options.examples for case in cases(name, ranks, options.plans, options.seed)]
    choices = {
        "recompute": options.recompute,
        "micro_batches": options.micro_batches,
        "kernels": options.kernels,
        "precision": options.precision,
    }
    wanted = [replace(case, **choices) for case in drawn]
    if options.kernels == TRITON:
        command = f"TRITON_INTERPRET=1 {command} --kernels {TRITON}"
        if os.environ.get("TRITON_INTERPRET") != "1":
            parser.error("set TRITON_INTERPRET=1: without it kernels do not run on a CPU")
    if options.recompute != NONE:
        wanted = [case for case in wanted if has_segments(case.example)]
    keys = {case: f"{digest([ROOT / 'examples' / f'{case.example}.udl'])[:16]} {compiler[:16]}" for case in wanted}
    before = {} if options.again else rows_of(output)
    rows: dict[str, dict[str, Any]] = {}
    checked = 0
    begun = perf_counter()
    with tempfile.TemporaryDirectory(prefix="check-examples-") as folder, RankPool(max(ranks)) as pool:
        checker = Checker(pool, Path(folder))
        for number, case in enumerate(wanted, 1):
            kept = before.get(str(case))
            if kept is not None and kept["of"] == keys[case] and (kept["equal"] or kept.get("refused")):
                rows[str(case)] = kept
                continue
            finding = checker.check(case)
            rows[str(case)] = row(finding, keys[case])
            word = f"{finding.error:.1e}" if finding.error is not None else "-"
            verdict = "equal" if finding.ok else "refused" if finding.refused else "NOT EQUAL"
            print(f"[{number}/{len(wanted)}] {case}: {verdict}, {word}, {finding.seconds:.1f} s", flush=True)
            if not finding.ok and not finding.refused:
                print(finding, flush=True)
            checked += 1
            write_rows(output, command, {**before, **rows})
    write_rows(output, command, rows)
    done = list(rows.values())
    print(*table(done), sep="\n")
    refused = sum(found.get("refused", False) for found in done)
    missed = sum(not found["equal"] for found in done) - refused
    told = f", {refused} refused" if refused else ""
    print(f"{len(done)} cases, {missed} not equal{told}; {checked} checked now in {perf_counter() - begun:.0f} s")
    return 1 if missed else 0


def has_segments(example: str) -> bool:
    """Whether an example has a repeat, scan or cond."""
    text = (ROOT / "examples" / f"{example}.udl").read_text()
    return re.search(r"^\s*(repeat|scan|cond) ", text, re.MULTILINE) is not None


def row(finding: Finding, key: str) -> dict[str, Any]:
    """A finding as plain data. `of` holds the hashes of the checked example and of the compiler."""
    case, report = finding.case, finding.report
    return {
        "example": case.example,
        "ranks": case.ranks,
        "mesh": list(finding.mesh),
        "strategy": case.strategy,
        "rules": list(finding.applied),
        "micro_batches": case.micro_batches,
        "recompute": case.recompute,
        "kernels": case.kernels,
        "precision": case.precision,
        "equal": finding.ok,
        "refused": finding.refused,
        "error": finding.error,
        "worst": report.worst if report else None,
        "float32_error": report.float32_err if report else None,
        "float32_single_device_error": report.float32_single_device_err if report else None,
        "mixed_error": report.mixed.err if report and report.mixed else None,
        "mixed_bound": report.mixed.bound if report and report.mixed else None,
        "fault": finding.fault.replace(f"{ROOT}/", "") or None,
        "divided": round(finding.divided, 3),
        "seconds": round(finding.seconds, 3),
        "of": key,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line per example and number of ranks: equal cases, largest error in float64, fraction divided, seconds."""
    yield f"{'example':<20} ranks   equal     error  divided  seconds"
    for example, ranks in dict.fromkeys((row["example"], row["ranks"]) for row in rows):
        found = [row for row in rows if (row["example"], row["ranks"]) == (example, ranks)]
        equal = f"{sum(row['equal'] for row in found)}/{sum(not row.get('refused') for row in found)}"
        error = max((row["error"] for row in found if row["error"] is not None), default=0.0)
        divided = sum(row["divided"] for row in found) / len(found)
        seconds = sum(row["seconds"] for row in found)
        yield f"{example:<20} {ranks:>5} {equal:>7}  {error:8.1e} {divided:>7.0%} {seconds:>8.1f}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")

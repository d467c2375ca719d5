"""Random small models under random legal plans, on a mesh of several axes: `python bench/check_random.py`.

The models and plans are those of `tests/fuzz`. Every program is compared with the one for a single device, as `unityc
check` does, on one pool of ranks with one thread each. Results are written after every case, so an interrupted run
resumes. The exit status is 1 if a program is not equal to its model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import COMPILER, RESULTS, ROOT, digest, rows_of, write_rows

sys.path.insert(0, str(ROOT))

from tests.fuzz.cases import draw, errors_of, libraries, write
from tests.fuzz.plans import features
from unity_dsl.emit.program_check import TOLERANCE
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.index.library import Library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.render import render

MADE_BY = (*COMPILER, ROOT / "tests" / "fuzz")
"""The sources that determine a case and its program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks all cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--mesh", type=degrees, default=(2, 2, 2), help="degrees of the mesh axes, slowest first")
    parser.add_argument("--seed", type=int, default=1, help="which cases are drawn")
    parser.add_argument("--again", action="store_true", help="check what was checked before too")
    parser.add_argument("--output", type=Path, default=RESULTS / "check_random.json")
    options = parser.parse_args(arguments)

    command = f"python bench/check_random.py --cases {options.cases} --mesh {','.join(map(str, options.mesh))}"
    made_by = digest(MADE_BY)[:16]
    before = {} if options.again else rows_of(options.output)
    rows: dict[str, dict[str, Any]] = {}
    known, kinds = libraries(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="check-random-") as folder, RankPool(prod(options.mesh)) as pool:
        for case in range(options.cases):
            name = f"{options.seed} {case} on {' x '.join(map(str, options.mesh))}"
            kept = before.get(name)
            if kept is None or kept["of"] != made_by or not kept["equal"]:
                kept = {**check(case, options.seed, options.mesh, known, Path(folder) / str(case), pool), "of": made_by}
                error = "-" if kept["error"] is None else f"{kept['error']:.1e}"
                print(f"{name}: {'equal' if kept['equal'] else 'NOT EQUAL'}, {error}, {kept['seconds']} s", flush=True)
            rows[name] = kept
            kinds.update(kept["steps"])
            write_rows(options.output, command, {**before, **rows})
    write_rows(options.output, command, rows)
    missed = [name for name, row in rows.items() if not row["equal"]]
    largest = max((row["error"] for row in rows.values() if row["error"] is not None), default=0.0)
    print(*(f"{count:>6} {kind}" for kind, count in sorted(kinds.items())), sep="\n")
    print(f"{len(rows)} cases, {len(missed)} not equal; the largest error is {largest:.1e}")
    return 1 if missed else 0


def degrees(text: str) -> tuple[int, ...]:
    """The degrees in a text such as `2,2,2`. Raises ValueError."""
    return tuple(map(int, text.split(",")))


def check(
    case: int, seed: int, mesh: tuple[int, ...], known: tuple[Library, Library], folder: Path, pool: RankPool
) -> dict[str, Any]:
    """A case as plain data: whether it is equal, its largest error, and the number of its plan's conversion steps by
    kind.
    """
    begun = perf_counter()
    fault, error, worst, steps = None, None, None, Counter[str]()
    try:
        drawn = draw(seed, case, mesh, known)
        steps = features(drawn.plan)
        program, reference = (
            write(plan, drawn.library, folder / name)
            for plan, name in ((drawn.plan, "program"), (drawn.alone, "reference"))
        )
        error, found = errors_of(drawn, program, reference, pool)
        worst = found["worst"]
    except InputError as refused:
        fault = render(refused.diagnostic)
        print(fault, flush=True)
    return {
        "equal": error is not None and error <= TOLERANCE,
        "error": error,
        "worst": worst,
        "fault": fault,
        "steps": {name: count for name, count in sorted(steps.items()) if name.startswith(("forward", "backward"))},
        "seconds": round(perf_counter() - begun, 1),
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")

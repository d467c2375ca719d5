"""Steps of `auto` against those of meshes given by hand: `python bench/sampled_meshes.py --count 60 --seed 1`.

Random pairs are drawn by seed: a cell of results/search_loop.json and one of its meshes with at most three axes. Each
cell is planned on its mesh as with `--mesh`, in one process. Its step is divided by the step of `auto` for that cell. A
ratio below 1 is a plan that `auto` misses; ratios below 0.995 are reported. An interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import median
from typing import Any

from measure import PLANNER, RESULTS, digest, rows_of, write_rows
from search_loop import AFTER, planned
from search_loop import FILE as SEARCHED

from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.syntax.diagnostic import InputError

FILE = RESULTS / "sampled_meshes.json"
TOLD = 0.995
"""A plan whose step is below this fraction of the step of `auto` is reported, as a difference that matters to users."""
MOST_AXES = 3

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=SEARCHED, help="rows of bench/search_loop.py")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    autos = {cell: row[AFTER] for cell, row in rows_of(options.cells).items() if AFTER in row}
    cells, rows = rows_of(RESULTS / "search.json"), rows_of(options.output)
    sources = digest(PLANNER)[:16]
    for cell, degrees in drawn(autos, options.count, options.seed):
        key = f"{cell} {','.join(map(str, degrees))}"
        if rows.get(key, {}).get("sources") != sources:
            rows[key] = compared(cell, degrees, cells[cell]["batch"], autos[cell]) | {"sources": sources}
            write_rows(options.output, "python bench/sampled_meshes.py", rows, summary(rows))
        print(key, rows[key], flush=True)
    print(json.dumps(summary(rows), indent=1))


def drawn(autos: dict[str, Row], count: int, seed: int) -> list[tuple[str, tuple[int, ...]]]:
    """`count` different random pairs of a cell in which the plan of `auto` fits, and the degrees of a mesh."""
    chance = random.Random(seed)
    fitting = sorted(cell for cell, auto in autos.items() if auto["fits"])
    pairs = dict[tuple[str, tuple[int, ...]], None]()
    while len(pairs) < count:
        cell = chance.choice(fitting)
        _, machine, devices = cell.split()
        meshes = [mesh.degrees for mesh in all_meshes(load_machine(machine), int(devices))]
        pairs[cell, chance.choice([one for one in meshes if len(one) <= MOST_AXES])] = None
    return list(pairs)


def compared(cell: str, degrees: tuple[int, ...], batch: int, auto: Row) -> Row:
    """The step on a mesh and its ratio to the step of `auto`, or why there is no plan."""
    try:
        found = planned(cell, batch, "", mesh=degrees)
    except InputError as error:
        return {"refused": error.diagnostic.message}
    part = found["step"] / auto["step"]
    return {"step": found["step"], "fits": found["fits"], "part": part, "auto": auto["mesh"]}


def summary(rows: dict[str, Row]) -> dict[str, Any]:
    """The number of pairs, the median ratio of those with a plan that fits, and the plans that `auto` misses."""
    parts = {key: row["part"] for key, row in rows.items() if row.get("fits")}
    if not parts:
        return {}
    return {
        "pairs": len(rows),
        "with a plan that fits": len(parts),
        "median": round(median(parts.values()), 4),
        "missed by auto": {key: round(part, 4) for key, part in sorted(parts.items()) if part < TOLD},
    }


if __name__ == "__main__":
    main()

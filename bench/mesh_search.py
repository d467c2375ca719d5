"""Cost of `auto` against the best of all meshes given by hand: `python bench/mesh_search.py --devices 8 64`.

The meshes given by hand are all ordered factorisations of the number of devices into up to three axes. A mesh is solved
only if its lower bound is below the cost of `auto` / 1.0005. A row counts the meshes ruled out by their bounds and
those solved. Exposed communication is priced as in the first search of a compilation. A row is written as soon as it is
known, and rows in the file of results are kept, so an interrupted run resumes. With `--again` all requested rows are
computed again, and an interrupted run resumes too.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import astuple
from math import inf
from pathlib import Path
from typing import Any

from measure import RESULTS, hardware, processor_seconds

from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import all_meshes, describe_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.exact_search.bounded_search import survey
from unity_dsl.search.expected_exposure import expected_exposure
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.problem_context import Prices, prices_on
from unity_dsl.search.layout_problem.variable_meaning import Impossible
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent
FILE = RESULTS / "mesh_search.json"
AGAIN = ROOT / "build" / "mesh_search_again.json"
"""File with the names of the rows that `--again` has finished. It is deleted when all are."""
ALLOWED = 1.0005
"""Largest acceptable ratio of the cost of `auto` to the best cost by hand."""
ENOUGH = 10**18
"""Memory of each device in bytes, large enough that no memory limit affects the comparison of meshes."""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--examples", nargs="*", default=sorted(path.stem for path in (ROOT / "examples").glob("*.udl"))
    )
    parser.add_argument("--machines", nargs="*", default=["dgx-a100", "dgx-h100", "summit"])
    parser.add_argument("--devices", nargs="*", type=int, default=[8, 64, 192])
    parser.add_argument("--again", action="store_true", help="do anew what is in the file of results too")
    options = parser.parse_args()

    rows = known_rows()
    done = set(json.loads(AGAIN.read_text()) if AGAIN.exists() else ()) if options.again else set(rows)
    for devices in options.devices:
        for name in options.machines:
            machine = load_machine(name).holding(ENOUGH)
            if devices > machine.devices:
                continue
            for example in options.examples:
                key = f"{example} {name} {devices}"
                if key not in done:
                    rows[key] = compare(example, machine, devices)
                    write(rows)
                    done.add(key)
                    if options.again:
                        AGAIN.parent.mkdir(exist_ok=True)
                        AGAIN.write_text(json.dumps(sorted(done)))
                    print(describe(key, rows[key]), flush=True)
    if options.again:
        AGAIN.unlink(missing_ok=True)
    told = [key for key, row in rows.items() if row["ratio"] > ALLOWED]
    print(f"{len(rows)} rows, {len(told)} of them more than {100 * (ALLOWED - 1):.2g} % above the best mesh by hand")
    for key in told:
        print(describe(key, rows[key]))


def compare(example: str, machine: Machine, devices: int) -> Row:
    """Predicted seconds of a step with `auto` and with the best mesh, and CPU seconds of the search of `auto`.

    If no solved mesh has a cheaper plan, `best` is the result of `auto`.
    """
    library = load_library()
    model = build_model(parse_model(read_source(ROOT / "examples" / f"{example}.udl")), library)
    meshes = all_meshes(machine, devices)
    machine = machine.exposing(expected_exposure(machine, model, meshes[0]))
    theorems = ShardingTheorems(library)
    start = processor_seconds()
    found = search(model, meshes, machine, library, theorems=theorems)
    spent = processor_seconds() - start
    solved: dict[str, float] = {}
    for mesh in meshes:
        prices = prices_on(mesh, machine, library, theorems, model.gradient_bytes)
        if least(model, prices) < found.cost.seconds / ALLOWED:
            solved[describe_mesh(mesh)] = search(model, mesh, machine, library, theorems=theorems).cost.seconds
    best = {describe_mesh(found.mesh): found.cost.seconds} | {
        name: seconds for name, seconds in solved.items() if seconds < found.cost.seconds
    }
    best_mesh = min(best, key=best.__getitem__)
    return {
        "auto": found.cost.seconds,
        "mesh": describe_mesh(found.mesh),
        "exposure": astuple(machine.exposure),
        "best": best[best_mesh],
        "best_mesh": best_mesh,
        "ratio": round(found.cost.seconds / best[best_mesh], 6),
        "meshes": len(meshes),
        "ruled_out_by_bound": len(meshes) - len(solved),
        "solved": len(solved),
        "search_cpu_seconds": round(spent, 2),
        "note": found.notes[0],
    }


def least(model: Model, prices: Prices) -> float:
    """A lower bound on the seconds of every plan on a mesh; infinite if the mesh has no plan."""
    try:
        part = build_problem(model, prices, Restriction()).part
    except Impossible:
        return inf
    return survey(part, everything(part)).bound


def describe(key: str, row: Row) -> str:
    return (
        f"{key}: {row['auto'] * 1e3:.4g} ms on {row['mesh']}, ratio {row['ratio']:.4f} to {row['best_mesh']}, "
        f"the best of {row['meshes']}, {row['ruled_out_by_bound']} of them ruled out by their bounds; "
        f"{row['search_cpu_seconds']} s"
    )


def known_rows() -> dict[str, Row]:
    rows: dict[str, Row] = json.loads(FILE.read_text())["rows"] if FILE.exists() else {}
    return rows


def write(rows: dict[str, Row]) -> None:
    document = {"command": "python bench/mesh_search.py", "hardware": hardware(), "rows": dict(sorted(rows.items()))}
    FILE.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

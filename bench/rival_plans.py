"""Compares plans of other systems with our strategies: `python bench/rival_plans.py`.

Each plan is written in its system's export format, then imported, priced and simulated like every other plan:

- Galvatron: the two configurations of its data-parallel test (four layers, 16 examples as two micro-batches, 8 devices,
  ZeRO-2 and ZeRO-3) and tensor parallelism over two devices, on a GPT-2 of four layers. ZeRO-3 also on a perceptron.
- autoparallel: FSDP on the perceptron, with every parameter and the batch sharded along all dimensions of the mesh.
  This is the solution that it chose wherever we ran it.
- nnScaler: partitions of all operators along the batch, and of the matrix products along their outputs, on the
  perceptron.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import ROOT, write_results

sys.path.insert(0, str(ROOT))

from tests.search.imports.galvatron_export import config
from unity_dsl.commands.strategy_comparison import as_data, compared
from unity_dsl.compilation import Request

COMMAND = "python bench/rival_plans.py"
MACHINE, DEVICES = "dgx-h100", 8
STRATEGIES = ("auto", "data_parallel", "zero", "galvatron", "autoparallel", "nnscaler")


@dataclass(frozen=True)
class Cell:
    """A model with its settings, and its imported plans by file name."""

    model: str
    settings: dict[str, str]
    plans: dict[str, Any]


def fsdp(parameters: int, products: int, mesh: tuple[int, ...]) -> dict[str, Any]:
    """An autoparallel solution file with the batch and every parameter sharded along all mesh dimensions."""
    sliced = "S(0)" * len(mesh)
    names = [f"primals_{number}" for number in range(1, parameters + 1)]
    names += ["mm", *(f"mm_{number}" for number in range(1, products))]
    placements = dict.fromkeys(names, sliced)
    return {"version": 1, "mesh_shape": list(mesh), "mesh_dim_names": ["dp", "tp"], "placements": placements}


def nnscaler(partitions: list[tuple[int, int]]) -> dict[str, Any]:
    """An nnScaler plan of one stage. Each operator partitions the given (input, dimension) over all devices."""
    descs = [[number, [[list(at), DEVICES]]] for number, at in enumerate(partitions)]
    stage = {"partition_descs": descs, "recompute_groups": [], "mesh_desc": [1, DEVICES], "analysis": {}}
    return {"desc": {"spmd_descs": [stage], "recompute_groups": [], "mesh_desc": [1, DEVICES]}, "e2e_time": 0.0}


def cells() -> Iterator[Cell]:
    zero2, zero3 = config(4, batch=16, chunks=2), config(4, batch=16, chunks=2, default_dp_type="zero3")
    tensor = config(4, batch=16, chunks=2, tp_sizes_enc="2,2,2,2", vtp=2)
    yield Cell("gpt2", {"layers": "4", "b": "16"}, {"zero2.json": zero2, "zero3.json": zero3, "tensor.json": tensor})
    # The perceptron's 24 operators repeat matrix product, bias and activation; the last operator is the loss.
    batch = [(0, 0)] * 24
    columns = [(1, 0), (0, 1), (0, 1)] * 7 + [(1, 0), (0, 1), (0, 0)]
    yield Cell(
        "mlp",
        {},
        {
            "fsdp.json": fsdp(16, 8, (2, 4)),
            "batch.json": nnscaler(batch),
            "columns.json": nnscaler(columns),
            "zero3.json": config(6, batch=64, chunks=1, default_dp_type="zero3"),
        },
    )


def main() -> int:
    found = []
    with tempfile.TemporaryDirectory(prefix="rival-plans-") as folder:
        for cell in cells():
            paths = [Path(folder) / name for name in cell.plans]
            for path in paths:
                path.write_text(json.dumps(cell.plans[path.name]))
            model = ROOT / "examples" / f"{cell.model}.udl"
            request = Request(model, settings=cell.settings, machine=MACHINE, devices=DEVICES)
            data = as_data(compared(request, STRATEGIES, paths))
            found.append(data | {"settings": cell.settings})
            for row in sorted(data["strategies"], key=lambda row: row["iteration_s"] or float("inf")):
                step = row["refused"] or f"{row['iteration_s'] * 1e3:.3g} ms, {row['peak_memory_bytes'] / 1e9:.3g} GB"
                print(f"{data['model']:<6} {row['name']:<28} {step}", flush=True)
    write_results("rival_plans", COMMAND, {"models": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())

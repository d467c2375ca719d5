"""Compile time against depth and number of devices: `python bench/scaling.py`.

The depth is varied by the number of layers of gpt2, on 64 devices of a dgx-h100. The number of devices varies from 8 to
10,000 of a llama3-cluster, for two large language models with one sequence per device. A compilation is a fresh
process, from the model text to files, including the simulation of its plan. An interrupted run resumes. `--plot FILE`
draws the existing results.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compile_scale import measured
from measure import RESULTS, ROOT, rows_of, write_rows

FILE = RESULTS / "scaling.json"
DEEP = ("gpt2", "dgx-h100", 64, 512)
"""The model whose depth varies, its machine, number of devices and global batch."""
LAYERS = (12, 24, 48, 96)
WIDE = (("llama3_70b", "llama3-cluster"), ("gpt3_175b", "llama3-cluster"))
DEVICES = (8, 64, 512, 1024, 4096, 10_000)

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="measure all rows anew")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the results as .svg or .png")
    options = parser.parse_args()
    rows: dict[str, Row] = {} if options.again else rows_of(FILE)
    if options.plot is None:
        for name, example, machine, devices, settings in cases():
            if name not in rows:
                row = measured(ROOT / "examples" / f"{example}.udl", machine, devices, settings)
                rows[name] = {"model": example, "machine": machine, "devices": devices, **settings, **row}
                write_rows(FILE, "python bench/scaling.py", rows)
                print(name, rows[name], flush=True)
    else:
        draw(rows, options.plot)


def cases() -> list[tuple[str, str, str, int, dict[str, int]]]:
    """Name, example, machine, devices and parameters of each compilation."""
    example, machine, devices, batch = DEEP
    found = [
        (f"{example} of {layers} layers", example, machine, devices, {"layers": layers, "b": batch})
        for layers in LAYERS
    ]
    for example, machine in WIDE:
        found += [(f"{example} on {devices}", example, machine, devices, {"b": devices}) for devices in DEVICES]
    return found


def draw(rows: Mapping[str, Row], path: Path) -> None:
    """Draws wall-clock seconds against layers, and against devices on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unity-dsl"  # makes the bytes of the picture reproducible
    from matplotlib import pyplot

    figure, (deep, wide) = pyplot.subplots(1, 2, figsize=(8.0, 3.2), sharey=True, layout="constrained")
    models = dict.fromkeys(row["model"] for row in rows.values())
    for model in models:
        own = [row for row in rows.values() if row["model"] == model]
        axes, key = (deep, "layers") if model == DEEP[0] else (wide, "devices")
        axes.plot([row[key] for row in own], [row["wall"] for row in own], marker="o", label=model)
    deep.set_xlabel(f"layers, {DEEP[2]} devices of {DEEP[1]}")
    deep.set_ylabel("seconds of a compilation")
    deep.set_xticks(LAYERS)
    wide.set_xlabel(f"devices of {WIDE[0][1]}")
    wide.set_xscale("log")
    for axes in (deep, wide):
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
    new = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    figure.savefig(new, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    os.replace(new, path)


if __name__ == "__main__":
    main()

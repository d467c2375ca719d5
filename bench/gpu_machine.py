"""Sections of machine files from measurements on a GPU: `python bench/gpu_machine.py machines/h200.toml`.

It prints grids of matrix products, rates of fused attention, of memory-bound calls and of AdamW, and the slowdown of
unaligned products. They are derived from `results/gpu_curves.json` and `results/gpu.json`, and are kernel times without
launches. Sections of another GPU are scaled from the measured one: arithmetic by the ratio of peak rates, traffic by
the ratio of memory bandwidths. The start-up time of a kernel is not scaled.
`--write` puts the sections at the end of each file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, ROOT

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.measured_curves import ProductGrid
from unity_dsl.machine.measured_operators import Direction
from unity_dsl.profiling.machine_file import product_lines
from unity_dsl.profiling.measured_tables import rising
from unity_dsl.profiling.samples import sample_of

MEASURED = ROOT / "machines" / "h200.toml"
FILES = (
    MEASURED, *(ROOT / "machines" / f"{name}.toml" for name in ("dgx-h100", "llama3-cluster", "dgx-a100")),
    ROOT / "bench" / "machines" / "grand-teton.toml",
)  # fmt: skip
MARK = "# Measured on one H200 by bench/gpu.py, kernels alone; written by bench/gpu_machine.py.\n"
DERIVED = """\
# Derived from what one H200 takes (bench/results/gpu_curves.json), kernels alone: arithmetic by the ratio of the peaks,
# traffic by that of the bandwidths; written by bench/gpu_machine.py.
"""
SIDES = (128, 512, 2048, 8192)
ROWS = {"bf16": (*SIDES, 32768), "f32": SIDES, "tf32": SIDES}
BATCHED = (64, 128, 512, 2048)
BATCH, START = 64, 2.5e-6
"""The batch size of the measured products of batches; start-up seconds of a kernel before it multiplies."""
ATTENTION = {
    "causal_attention": "causal", "full_attention": "full", "padded_attention": "full, mask",
    "masked_attention": "full, mask",
}  # fmt: skip
"""The measured kind of attention call for each operator."""
STREAMS = ("cast", "layer_norm", "rms_norm", "softmax")
DIRECTIONS = (Direction.FORWARD, Direction.LEFT, Direction.RIGHT)
Point = tuple[int, int, int]


@dataclass(frozen=True)
class Device:
    """A GPU relative to the measured one: the factors by which arithmetic, per type, and memory traffic take longer.
    `bandwidth` is the bytes a second that the measured GPU moves.
    """

    arithmetic: Mapping[str, float]
    traffic: float
    bandwidth: float

    def streams(self, seconds: float) -> float:
        """Seconds of a kernel that only moves bytes."""
        return seconds + max(seconds - START, 0.0) * (self.traffic - 1)

    def attends(self, seconds: float) -> float:
        """Seconds of fused attention, which is compute-bound."""
        return seconds * self.arithmetic["bf16"]

    def multiplies(self, seconds: float, kind: str, at: Point, start: float = 0.0) -> float:
        """Seconds of a product [m, k] x [k, n], (m, n, k) = `at`, that took `seconds` on the measured GPU. It takes
        `start`, then its arithmetic or its traffic, whichever is longer. The traffic is at most the measured time.
        """
        m, n, k = at
        start = min(start, seconds)
        moved = WIDTH[kind] * (m * k + k * n + m * n) / self.bandwidth
        busy = seconds - start
        return start + max(busy * self.arithmetic[kind], min(busy, moved) * self.traffic)


WIDTH = {"bf16": 2, "f32": 4, "tf32": 4}


def device_of(file: Path) -> Device:
    """The GPU of a machine file."""
    ours, theirs = load_machine(str(MEASURED)), load_machine(str(file))
    arithmetic = {kind: ours.peak[kind] / theirs.peak[kind] for kind in WIDTH}
    traffic = ours.memory_bandwidth / theirs.memory_bandwidth
    return Device(arithmetic, traffic, ours.memory_bandwidth * ours.memory_efficiency)


def grids(rows: list[dict[str, Any]], kind: str, device: Device) -> Mapping[Direction, ProductGrid]:
    """Grids of single products. The largest ones that were not measured run at the rate of a product with a quarter of
    the k.
    """
    known = {(row["m"], row["n"], row["k"]): row["seconds"] for row in rows if row["type"] == kind}
    found = {}
    for number, direction in enumerate(DIRECTIONS):
        seconds = np.zeros((len(ROWS[kind]), len(SIDES), len(SIDES)))
        for i, j, k in np.ndindex(seconds.shape):
            at = ROWS[kind][i], SIDES[j], SIDES[k]
            less = at[0], at[1], at[2] // 4
            taken = known[at][number] if at in known else 4 * known[less][number]
            seconds[i, j, k] = device.multiplies(taken, kind, at, START)
        found[direction] = grid_of(ROWS[kind], SIDES, seconds)
    return found


def batched_grids(
    rows: list[dict[str, Any]], kind: str, single: Mapping[Direction, ProductGrid], device: Device
) -> Mapping[Direction, ProductGrid]:
    """Grids of one product in a batch. An unmeasured one takes as long as a single product less its start-up time."""
    known = {
        (row["m"], row["n"], row["k"]): row["seconds"] for row in rows if row["type"] == kind and row["batch"] == BATCH
    }

    def seconds(at: Point) -> float:
        if at in known:
            return device.multiplies(float(max(known[at] - START, START) / BATCH), kind, at)
        return float(single[Direction.FORWARD].at(*map(float, at)) - START)

    def operand(direction: Direction, m: int, n: int, k: int) -> Point:
        """The (rows, columns, k) of the product that a direction computes for a forward product (m, n, k)."""
        return {Direction.FORWARD: (m, n, k), Direction.LEFT: (m, k, n), Direction.RIGHT: (n, k, m)}[direction]

    found = {}
    for direction in DIRECTIONS:
        points = [seconds(operand(direction, *at)) for at in product(BATCHED, repeat=3)]
        shape = (len(BATCHED),) * 3
        found[direction] = grid_of(BATCHED, BATCHED, np.array(points).reshape(shape), START)
    return found


def grid_of(rows: tuple[int, ...], sides: tuple[int, ...], seconds: Any, launch: float = 0.0) -> ProductGrid:
    for dim in range(3):
        seconds = rising(seconds, dim)
    rounded = np.vectorize(lambda value: float(f"{value * 1e6:.4g}") * 1e-6)(seconds)
    whole = [tuple(map(float, side)) for side in (rows, sides, sides)]
    return ProductGrid(whole[0], whole[1], whole[2], rounded, launch)


def attention_lines(rows: list[dict[str, Any]], device: Device) -> Iterator[str]:
    """One rate for each operator and direction, measured on 2,048 or 4,096 positions (the longer if both) and heads of
    size 128.
    """
    library = load_library()
    for name, how in ATTENTION.items():
        fitting = [row for row in rows if row["how"] == how and row["e"] == 128 and row["s"] in (2048, 4096)]
        row = max(fitting, key=lambda row: row["s"])
        shapes = [Shape((row["b"], row["h"], row["s"], row["e"]))] * 3
        if "mask" in how:
            mask = (row["b"], row["s"]) if name == "padded_attention" else (row["b"], row["s"], row["s"])
            shapes.append(Shape(mask, 2))
        instance: Instance = instantiate(library.operators[name], shapes, {})
        for direction, seconds in zip((Direction.FORWARD, Direction.BACKWARD), row["seconds"], strict=True):
            flops = sample_of(instance, "bf16", direction).done.flops
            yield from ("", "[[operator]]", f'name = "{name}"', 'dtype = "bf16"', f'direction = "{direction}"')
            yield f"flops = [{float(flops):.6g}]"
            yield f"time_us = [{device.attends(seconds) * 1e6:.4g}]"


def stream_lines(rows: list[dict[str, Any]], device: Device) -> Iterator[str]:
    """Times of casts between bf16 and float32, by the type that is read, and of calls that were measured only forward,
    by the bytes read and written.
    """
    for name, kind in product(STREAMS, ("bf16", "f32")):
        points = [row["seconds"][name] for row in rows if row["type"] == kind]
        seconds = rising(np.array([device.streams(point[0]) for point in points]))
        times = [float(f"{value * 1e6:.4g}") for value in seconds]
        yield from ("", "[[operator]]", f'name = "{name}"', f'dtype = "{kind}"', 'direction = "forward"')
        yield f"bytes = {[int(moved) for _, moved in points]}"
        yield f"time_us = {times}"


def unaligned_lines(models: Mapping[str, Any], grid: ProductGrid) -> Iterator[str]:
    """The slowdown of products with a vocabulary size that is not divisible by 8: those of gpt2 and bert_large."""
    times = []
    for model, word, shape in (("gpt2", "align1", (8192, 50257, 768)), ("bert_large", "align2", (4096, 30522, 1024))):
        kernels = models[model]["ways"]["torch"]["kernels"]
        taken = sum(seconds for name, (_, seconds) in kernels.items() if word in name)
        times.append(taken / (3 * float(grid.at(*map(float, shape)))))
    yield from ("", "[unaligned]", "bytes = [2, 4]", f"times = {[round(value, 1) for value in times]}")


def optimizer_lines(models: Mapping[str, Any], device: Device) -> Iterator[str]:
    """The rate of torch's fused AdamW, from the step of llama3_8b with torch's operators."""
    row = models["llama3_8b"]["ways"]["torch"]
    seconds = next(taken for name, (_, taken) in row["kernels"].items() if "FusedOpti" in name)
    yield from ("", "[optimizer]", f"bytes = [{4 * PARAMETERS}]", f"time_us = [{device.streams(seconds) * 1e6:.5g}]")


PARAMETERS = 2 * 128256 * 4096 + 4 * (2 * 4096**2 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) + 4096
"""Number of parameters of llama3_8b with four layers."""


def lines(file: Path) -> Iterator[str]:
    """The lines of the sections of a machine file, after the heading comment."""
    curves = json.loads((RESULTS / "gpu_curves.json").read_text())
    models = json.loads((RESULTS / "gpu.json").read_text())["models"]
    device, measured = device_of(file), device_of(MEASURED)
    yield from optimizer_lines(models, device)
    yield from unaligned_lines(models, grids(curves["products"], "bf16", measured)[Direction.FORWARD])
    yield from stream_lines(curves["streams"], device)
    yield from attention_lines(curves["attention"], device)
    for kind in ROWS:
        single = grids(curves["products"], kind, device)
        several = batched_grids(curves["batched"], kind, single, device)
        for batch, found in ((False, single), (True, several)):
            for direction, grid in found.items():
                yield from product_lines("contraction", kind, direction, batch, grid)


def sections(file: Path) -> str:
    """The derived end of a machine file: heading comment and sections."""
    mark = MARK if file.resolve() == MEASURED else DERIVED
    return "\n".join([mark.rstrip(), *lines(file)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="machine files, by default all of them")
    parser.add_argument("--write", action="store_true", help="put the sections at the end of the files")
    options = parser.parse_args()
    for file in options.files or FILES:
        text = sections(file)
        if not options.write:
            print(text, end="")
            continue
        before = re.split(BEGINNING, file.read_text(), maxsplit=1)[0].rstrip()
        file.write_text(f"{before}\n\n{text}")


BEGINNING = r"(?m)^# (?:Measured on|Derived from what) one H200"
"""Matches the heading comment with which the sections begin."""

if __name__ == "__main__":
    main()

"""Sections of a machine file from what was measured on a GPU: `python bench/gpu_machine.py`.

It prints the grids of products, rates of fused attention and of AdamW that `results/gpu_curves.json` and
`results/gpu.json` give, all of kernels alone; `--write machines/h200.toml` puts them at the end of the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.machine.measured_curves import ProductGrid
from unity_dsl.machine.measured_operators import Direction
from unity_dsl.profiling.machine_file import product_lines
from unity_dsl.profiling.measured_tables import rising
from unity_dsl.profiling.samples import sample_of

MARK = "# Measured on one H200 by bench/gpu.py, kernels alone; written by bench/gpu_machine.py.\n"
SIDES = (128, 512, 2048, 8192)
ROWS = {"bf16": (*SIDES, 32768), "f32": SIDES, "tf32": SIDES}
BATCHED = (64, 128, 512, 2048)
BATCH, START = 64, 2.5e-6
"""Products of a batch that was measured; seconds until a kernel multiplies."""
ATTENTION = {
    "causal_attention": "causal", "full_attention": "full", "padded_attention": "full, mask",
    "masked_attention": "full, mask",
}  # fmt: skip
"""Operators, and how the measured calls are called."""
DIRECTIONS = (Direction.FORWARD, Direction.LEFT, Direction.RIGHT)
Point = tuple[int, int, int]


def grids(rows: list[dict[str, Any]], kind: str) -> Mapping[Direction, ProductGrid]:
    """Of single products. Where the largest was not measured, it runs at the rate of one with a quarter of the sum."""
    known = {(row["m"], row["n"], row["k"]): row["seconds"] for row in rows if row["type"] == kind}
    found = {}
    for number, direction in enumerate(DIRECTIONS):
        seconds = np.zeros((len(ROWS[kind]), len(SIDES), len(SIDES)))
        for i, j, k in np.ndindex(seconds.shape):
            at = ROWS[kind][i], SIDES[j], SIDES[k]
            less = at[0], at[1], at[2] // 4
            seconds[i, j, k] = known[at][number] if at in known else 4 * known[less][number]
        found[direction] = grid_of(ROWS[kind], SIDES, seconds)
    return found


def batched_grids(
    rows: list[dict[str, Any]], kind: str, single: Mapping[Direction, ProductGrid]
) -> Mapping[Direction, ProductGrid]:
    """Of a product in a batch; where none was measured, as long as a single one less its start."""
    known = {
        (row["m"], row["n"], row["k"]): row["seconds"] for row in rows if row["type"] == kind and row["batch"] == BATCH
    }

    def seconds(at: Point) -> float:
        if at in known:
            return float(max(known[at] - START, START) / BATCH)
        return float(single[Direction.FORWARD].at(*map(float, at)) - START)

    def operand(direction: Direction, m: int, n: int, k: int) -> Point:
        """The product that a direction is of that of m rows, n columns, and a sum over k."""
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


def attention_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A rate of each operator and direction: that of a call on 2,048 or 4,096 positions and heads of 128."""
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
            yield f"time_us = [{seconds * 1e6:.4g}]"


def cast_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Of casts between bf16 and float32, by the type that is read; amounts are the bytes that are read and written."""
    for kind in ("bf16", "f32"):
        points = [row["seconds"]["cast"] for row in rows if row["type"] == kind]
        times = [float(f"{seconds * 1e6:.4g}") for seconds in rising(np.array([point[0] for point in points]))]
        yield from ("", "[[operator]]", 'name = "cast"', f'dtype = "{kind}"', 'direction = "forward"')
        yield f"bytes = {[int(moved) for _, moved in points]}"
        yield f"time_us = {times}"


def unaligned_lines(models: Mapping[str, Any], grid: ProductGrid) -> Iterator[str]:
    """How many times as long products with a vocabulary take that no 8 divides: that of gpt2, that of bert_large."""
    times = []
    for model, word, shape in (("gpt2", "align1", (8192, 50257, 768)), ("bert_large", "align2", (4096, 30522, 1024))):
        kernels = models[model]["ways"]["torch"]["kernels"]
        taken = sum(seconds for name, (_, seconds) in kernels.items() if word in name)
        times.append(taken / (3 * float(grid.at(*map(float, shape)))))
    yield from ("", "[unaligned]", "bytes = [2, 4]", f"times = {[round(value, 1) for value in times]}")


def optimizer_lines(models: Mapping[str, Any]) -> Iterator[str]:
    """The rate of torch's fused AdamW, from the step of the model with the most parameters by hand."""
    row = models["llama3_8b"]["ways"]["torch"]
    seconds = next(taken for name, (_, taken) in row["kernels"].items() if "FusedOpti" in name)
    yield from ("", "[optimizer]", f"bytes = [{4 * PARAMETERS}]", f"time_us = [{seconds * 1e6:.5g}]")


PARAMETERS = 2 * 128256 * 4096 + 4 * (2 * 4096**2 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) + 4096
"""Of llama3_8b with four layers."""


def lines() -> Iterator[str]:
    """The sections."""
    curves = json.loads((RESULTS / "gpu_curves.json").read_text())
    models = json.loads((RESULTS / "gpu.json").read_text())["models"]
    yield from optimizer_lines(models)
    yield from unaligned_lines(models, grids(curves["products"], "bf16")[Direction.FORWARD])
    yield from cast_lines(curves["streams"])
    yield from attention_lines(curves["attention"])
    for kind in ROWS:
        single = grids(curves["products"], kind)
        several = batched_grids(curves["batched"], kind, single)
        for batch, found in ((False, single), (True, several)):
            for direction, grid in found.items():
                yield from product_lines("contraction", kind, direction, batch, grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put them at the end of a machine file")
    options = parser.parse_args()
    text = "\n".join([MARK.rstrip(), *lines()]) + "\n"
    if options.write is None:
        print(text, end="")
        return
    before = options.write.read_text().partition(MARK)[0].rstrip()
    options.write.write_text(f"{before}\n\n{text}")


if __name__ == "__main__":
    main()

"""Measurements of a GPU are of kernels alone, so launches are added. Products can be unaligned, and slow down in a
step.
"""

from __future__ import annotations

import sys
from math import gcd
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.graph.plan import Exposure
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.machine.cast_price import price_casts
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.operator_price import is_padded, price_operator, priced_kernels
from unity_dsl.resources import folder

LIBRARY = load_library()
FILE = """
name = "measured"
device = "{device}"
memory_gb = 80
memory_bandwidth_gb_per_s = 1000
launch_latency_us = 7
{rest}
[[level]]
name = "link"
size = 8
bandwidth_gb_per_s = 100
latency_us = 1

[peak_tflops]
f64 = 1
f32 = 1
bf16 = 1
f16 = 1

[efficiency]
compute = 0.5
memory = 0.5
{efficiency}
[[operator]]
name = "cast"
dtype = "bf16"
direction = "forward"
bytes = [6000]
time_us = [3]

[[product]]
class = "contraction"
dtype = "bf16"
direction = "forward"
batched = false
rows = [64]
columns = [64]
inner = [64]
time_us = [[[100]]]

[unaligned]
bytes = [2, 4]
times = [6, 3]
"""


def machine(path: Path, device: str = "cuda", efficiency: str = "") -> Machine:
    file = path / f"{device}.toml"
    file.write_text(FILE.format(device=device, rest="", efficiency=efficiency))
    return load_machine(str(file))


def forward(found: Machine, rows: int, columns: int, inner: int) -> float:
    """Seconds of a `linear` without gradients, in bf16."""
    instance = instantiate(LIBRARY.operators["linear"], [Shape((rows, inner)), Shape((columns, inner))], {})
    typed = type_operator(instance, (), Mesh(()), LIBRARY)
    assert isinstance(typed, TypedOperator)
    return price_operator(instance, typed, "bf16", Mesh(()), found, (False, False), LIBRARY)


def test_launches_are_added_on_a_gpu_and_measured_on_a_cpu(tmp_path: Path) -> None:
    assert forward(machine(tmp_path), 64, 64, 64) == pytest.approx(107e-6)
    assert forward(machine(tmp_path, "cpu"), 64, 64, 64) == pytest.approx(100e-6)


@pytest.mark.parametrize(
    ("columns", "inner", "times"),
    [(64, 64, 1), (72, 8, 1), (63, 64, 6), (64, 63, 6), (66, 64, 3), (66, 63, 6), (68, 64, 1)],
)
def test_rows_that_are_no_multiple_of_so_many_bytes_slow_a_product(
    tmp_path: Path, columns: int, inner: int, times: float
) -> None:
    """A row of n floats has 2 n bytes. An alignment of 8 bytes was not measured, and is as fast as 16."""
    found = machine(tmp_path)
    alone = 100e-6 * columns / 64 * inner / 64
    assert forward(found, 64, columns, inner) == pytest.approx(times * alone + 7e-6)


LEFT_AND_RIGHT = "".join(
    f"""
[[product]]
class = "contraction"
dtype = "bf16"
direction = "{direction}"
batched = false
rows = [64]
columns = [64]
inner = [64]
time_us = [[[{time}]]]
"""
    for direction, time in (("left", 150), ("right", 50))
)


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "paid"),
    [(64, 63, 64, True), (64, 66, 640, True), (64, 63, 63, False), (64, 64, 64, False), (64, 1, 64, False)],
)
def test_columns_are_padded_where_that_takes_less(
    tmp_path: Path, rows: int, columns: int, inner: int, paid: bool
) -> None:
    """Compares, over both passes, products padded to the next multiple of 8 plus copies with products of the given
    columns.
    """
    file = tmp_path / "cuda.toml"
    file.write_text(FILE.format(device="cuda", rest="", efficiency="") + LEFT_AND_RIGHT)
    found = load_machine(str(file))
    even = -(-columns // 8) * 8
    times, after = ({1: 6, 2: 3}.get(gcd(length, inner, 4), 1) for length in (columns, even))
    one = rows / 64 * inner / 64 / 64 * 1e-6
    stream = 2 * even / 0.5e12
    as_it_is = [times * columns * time * one for time in (100, 200)]
    padded = [
        after * even * 100 * one + stream * 3 * inner,
        after * even * 200 * one + stream * (3 * rows + 2 * inner),
    ]
    wanted = padded if sum(padded) < sum(as_it_is) else as_it_is
    assert (wanted is padded) == paid
    instance = instantiate(LIBRARY.operators["linear"], [Shape((rows, inner)), Shape((columns, inner))], {})
    typed = type_operator(instance, (), Mesh(()), LIBRARY)
    assert isinstance(typed, TypedOperator)
    given = instance, typed, "bf16", Mesh(()), found
    assert is_padded(*given, LIBRARY) == paid
    launches = sum(priced_kernels(*given[:4], LIBRARY, (True, True)))
    assert price_operator(*given, (False, False), LIBRARY) == pytest.approx(wanted[0] + 7e-6)
    assert price_operator(*given, (True, True), LIBRARY) == pytest.approx(sum(wanted) + 7e-6 * launches)


def test_products_of_a_step_keep_a_part_of_their_speed(tmp_path: Path) -> None:
    found = machine(tmp_path, efficiency="sustained = 0.8\n")
    assert forward(found, 64, 64, 64) == pytest.approx(100e-6 / 0.8 + 7e-6)
    assert price_casts(np.array(1000.0), "bf16", "f32", found) == pytest.approx(10e-6), "it is bound by memory"


def test_casts_are_priced_by_the_type_that_they_read(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert price_casts(np.array(2000.0), "bf16", "f32", found) == pytest.approx(7e-6 + 6e-6)
    assert price_casts(np.array(2000.0), "f32", "bf16", found) == pytest.approx(7e-6 + 12000 / 0.5e12)


def test_kernels_behind_launches_take_less(tmp_path: Path) -> None:
    """Measured times of a GPU are scaled by the exposure, as datasheet times are. Those of a CPU include launches."""
    exposure = Exposure(launches=0.5, devices=2.0)
    assert forward(machine(tmp_path).exposing(exposure), 64, 64, 64) == pytest.approx(200e-6 + 3.5e-6)
    assert forward(machine(tmp_path, "cpu").exposing(exposure), 64, 64, 64) == pytest.approx(100e-6)


def gpu_machine() -> ModuleType:
    """The module bench/gpu_machine.py."""
    bench = folder("examples").parent / "bench"
    sys.path.insert(0, str(bench))
    try:
        import gpu_machine
    finally:
        sys.path.remove(str(bench))
    return gpu_machine


def test_the_shipped_files_have_what_was_measured() -> None:
    """machines/h200.toml ends with the sections that bench/gpu_machine.py computes from the results, the files of other
    GPUs with those that it derives.
    """
    bench = gpu_machine()
    assert len(bench.FILES) == 5
    for file in bench.FILES:
        assert file.read_text().endswith(bench.sections(file))


def test_products_of_another_gpu_are_derived() -> None:
    """For half the peak and a quarter of the bandwidth. The bound of a product decides its scale; its start-up time
    stays.
    """
    other = gpu_machine().Device({"bf16": 2.0}, 4.0, 1e12)
    side = 1000
    moved = 3 * 2 * side**2 / 1e12
    assert other.multiplies(100e-6, "bf16", (side,) * 3, 2e-6) == pytest.approx(2e-6 + 2 * 98e-6)
    assert other.multiplies(10e-6, "bf16", (side,) * 3, 2e-6) == pytest.approx(2e-6 + 4 * moved)
    assert other.multiplies(3e-6, "bf16", (side,) * 3, 2e-6) == pytest.approx(2e-6 + 4 * 1e-6), "it read from a cache"
    assert other.multiplies(1e-6, "bf16", (side,) * 3, 2e-6) == pytest.approx(1e-6), "it only starts"


def test_the_gradient_of_a_bias_is_priced_by_its_bytes(tmp_path: Path) -> None:
    """No reduction was measured: its kernel reads the gradient of the result at memory bandwidth."""
    found = machine(tmp_path)
    sizes = [Shape((64, 64)), Shape((64, 64)), Shape((64,))]
    instance = instantiate(LIBRARY.operators["linear_bias"], sizes, {})
    typed = type_operator(instance, (), Mesh(()), LIBRARY)
    assert isinstance(typed, TypedOperator)
    both, alone = (
        price_operator(instance, typed, "bf16", Mesh(()), found, needs, LIBRARY)
        for needs in ((False, False, True), (False,) * 3)
    )
    assert both - alone == pytest.approx(2 * 64 * 64 / 0.5e12 + 7e-6)

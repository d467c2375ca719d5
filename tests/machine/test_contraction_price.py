"""Prices of matrix products with fused prologues and epilogues, computed by hand."""

from __future__ import annotations

import pytest

from tests.index.kernels.test_contractions import dense, gradient
from unity_dsl.index.kernels.contractions import contraction_steps, products_of
from unity_dsl.index.kernels.step_schedule import Step
from unity_dsl.index.library import Library
from unity_dsl.machine.contraction_price import FUNCTION, OF_VENDOR, KernelStepPrices
from unity_dsl.machine.machine import Machine

from .test_operator_price import LEVELS, PEAK, library

__all__ = ["library"]
MACHINE = Machine("m", "cuda", PEAK, 1e12, 1e10, 5e-6, 0.5, 0.8, LEVELS)
SIZES = 2048, 1024, 4096
"""Rows (of each of two batches), summed elements, columns."""
PRODUCT = 2 * 2 * 2048 * 1024 * 4096 / (8e12 * 0.5)
"""Seconds of the product by the vendor's kernel."""
ELEMENTS = 2 * 2048 * 4096
ADDITION = ELEMENTS / (2e12 / 2 * 0.5)
"""Seconds of adding two numbers for each element of the result."""


def only(library: Library, *after: str, before: str = "") -> Step:
    (step,) = contraction_steps(dense(library, *after, before=before, sizes=SIZES)) or ()
    return step


def test_a_product_takes_its_arithmetic_or_its_traffic(library: Library) -> None:
    prices, step = KernelStepPrices(MACHINE, "bf16"), only(library, "add")
    assert prices.seconds([step], {}, vendor=True) == pytest.approx(PRODUCT + 5e-6)
    assert prices.seconds([step], {}) == pytest.approx(PRODUCT / OF_VENDOR["bf16"] + ADDITION + 5e-6)
    slow = KernelStepPrices(Machine("m", "cuda", PEAK, 1e9, 1e10, 5e-6, 0.5, 0.8, LEVELS), "bf16")
    moved = 2 * (2 * 2048 * 1024 + 1024 * 4096 + 2 * ELEMENTS)
    assert slow.seconds([step], {}) == pytest.approx(moved / 0.8e9 + 5e-6)


def test_sizes_are_those_of_a_device(library: Library) -> None:
    prices, step = KernelStepPrices(MACHINE, "bf16"), only(library, "add")
    (rows,) = [axis for axis in step.instance.sizes if step.instance.sizes[axis] == 2048]
    half = prices.seconds([step], {rows: 1024}, vendor=True)
    assert half == pytest.approx(PRODUCT / 2 + 5e-6)


def test_few_tiles_leave_a_device_idle(library: Library) -> None:
    """2 x 64 rows and 128 columns make one tile. The vendor's product splits the sum."""
    (step,) = contraction_steps(dense(library, "add", sizes=(64, 2**20, 128))) or ()
    prices = KernelStepPrices(Machine("m", "cuda", PEAK, 1e15, 1e10, 0, 0.5, 0.8, LEVELS), "bf16")
    ratio = prices.seconds([step], {}) / prices.seconds([step], {}, vendor=True)
    assert ratio == pytest.approx(128 / OF_VENDOR["bf16"], rel=1e-3)


def test_a_prologue_is_evaluated_for_every_tile_of_columns(library: Library) -> None:
    """The additional time is `sigmoid` of x[2, 2048, 1024] for each of 4096 / 128 tiles."""
    prices = KernelStepPrices(MACHINE, "bf16")
    plain, step = only(library, "add"), only(library, "add", before="sigmoid")
    more = prices.seconds([step], {}) - prices.seconds([plain], {})
    assert more == pytest.approx(FUNCTION * 2 * 2048 * 1024 * 32 / (2e12 / 2 * 0.5))


def test_wide_floats_multiply_at_less_of_the_vendor_s_speed(library: Library) -> None:
    step = only(library, "add")
    product = 2 * 2 * 2048 * 1024 * 4096 / (2e12 * 0.5)
    assert KernelStepPrices(MACHINE, "f32").seconds([step], {}) == pytest.approx(product / 0.6 + ADDITION + 5e-6)


def test_a_gradient_s_operand_that_is_dear_is_made_once(library: Library) -> None:
    """Not for each of 32 tiles, if the vendor's products are no slower."""
    backward = gradient(dense(library, "gelu_tanh", sizes=SIZES), library)
    prices = KernelStepPrices(MACHINE, "bf16")
    ours, vendor = (contraction_steps(backward, names) or () for names in ((), products_of(backward)))
    assert len(vendor) == 3 and len(ours) == 2
    assert prices.seconds(vendor, {}) < prices.seconds(ours, {})

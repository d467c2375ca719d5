"""Curves and grids against power laws, which log-log interpolation reproduces, and against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unity_dsl.machine.measured_curves import Curve, ProductGrid

SIZES = (8.0, 64.0, 512.0)


def test_between_two_points_a_curve_is_straight_in_logarithms() -> None:
    """From 1e-3 s at 100 to 1e-1 s at 10,000 the curve is linear. Behind that it has half the slope."""
    curve = Curve((100, 10_000, 1_000_000), (1e-3, 1e-1, 1.0))
    assert curve.at(1_000.0) == pytest.approx(1e-2)
    assert curve.at(100_000.0) == pytest.approx(10**-0.5)
    assert curve.at(np.array([100.0, 10_000.0])) == pytest.approx([1e-3, 1e-1])


def test_outside_of_its_points_a_curve_goes_on_with_the_slope_at_the_border() -> None:
    curve = Curve((100, 10_000, 1_000_000), (1e-3, 1e-1, 1.0))
    assert curve.at(np.array([1.0, 10.0, 100.0])) == pytest.approx([1e-5, 1e-4, 1e-3])
    assert curve.at(100e6) == pytest.approx(10.0)
    assert curve.at(0.0) == pytest.approx(0.0, abs=1e-12)
    assert Curve((100.0,), (1e-3,)).at(np.array([50.0, 200.0])) == pytest.approx([5e-4, 2e-3])


def test_more_work_takes_no_less_time() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        amounts = np.cumsum(random.uniform(0.1, 3, 5))
        seconds = np.cumsum(random.exponential(1, 5) * random.integers(0, 2, 5)) + 1e-6
        found = Curve(tuple(amounts), tuple(seconds)).at(np.linspace(0, 2 * amounts[-1], 300))
        assert (np.diff(found) >= -1e-12 * found[1:]).all()


def power_law(rows: float, columns: float, inner: float) -> float:
    return 1e-9 * rows * columns**0.5 * inner**0.75


def grid(rows: tuple[float, ...] = SIZES, launch: float = 0.0) -> ProductGrid:
    seconds = np.array([[[power_law(m, n, k) for k in SIZES] for n in SIZES] for m in rows])
    return ProductGrid(rows, SIZES, SIZES, seconds, launch)


@pytest.mark.parametrize("rows", [(8.0, 64.0, 512.0), (8.0,)], ids=["three", "one"])
def test_a_power_law_is_reproduced_within_and_around_the_grid(rows: tuple[float, ...]) -> None:
    random = np.random.default_rng(5)
    m, n, k = np.exp(random.uniform(np.log(1), np.log(4096), (3, 200)))
    found = grid(rows).at(m, n, k)
    assert found == pytest.approx(np.array([power_law(*sizes) for sizes in zip(m, n, k, strict=True)]))


def test_a_batch_is_a_launch_and_its_products() -> None:
    found = grid(launch=5e-6).at(64.0, 64.0, 64.0, np.array([1.0, 16.0]))
    once = power_law(64, 64, 64)
    assert found == pytest.approx([5e-6 + once, 5e-6 + 16 * once])


def test_halfway_between_points_by_hand() -> None:
    """The value halfway is the geometric mean of the eight corners of a cell."""
    seconds = np.exp(np.array([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 11.0]]]))
    made = ProductGrid((1.0, 4.0), (1.0, 4.0), (1.0, 4.0), seconds)
    assert made.at(2.0, 2.0, 2.0) == pytest.approx(np.exp(4.0))
    assert made.at(1.0, 4.0, 2.0) == pytest.approx(np.exp(2.5))
    assert made.at(1.0, 1.0, 16.0) == pytest.approx(np.exp(2.0))


def test_a_larger_product_takes_no_less_time() -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        steps = random.exponential(1, (3, 3, 3)) * random.integers(0, 2, (3, 3, 3))
        seconds = np.exp(steps.cumsum(0).cumsum(1).cumsum(2) / 4)
        made = ProductGrid(SIZES, SIZES, SIZES, seconds)
        sizes = np.exp(np.linspace(0, 9, 200))
        for place in range(3):
            given = [np.full(200, size) for size in np.exp(random.uniform(np.log(8), np.log(512), 3))]
            given[place] = sizes
            assert (np.diff(made.at(*given)) >= -1e-12).all()

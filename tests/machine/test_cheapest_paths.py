"""Cheapest paths between layouts in mesh order, after elimination of the other layouts, against paths between all
layouts.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unity_dsl.machine.cheapest_paths import Paths, closed
from unity_dsl.machine.machine import Machine, load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.machine.step_prices import StepPrices, Tariff

DGX, SUMMIT = load_machine("dgx-h100"), load_machine("summit")
CASES = [
    (DGX, (8, 2, 4), (64, 64)),
    (DGX, (2, 8, 4), (64, 64, 64)),
    (DGX, (8, 8), (64, 16)),
    (DGX, (4, 4, 4), (64, 8)),
    (SUMMIT, (32, 2, 3), (192, 192)),
    (SUMMIT, (4, 6), ()),
]


def prices_of(machine: Machine, degrees: tuple[int, ...], extents: tuple[int, ...]) -> StepPrices:
    return Tariff(build_mesh(machine, int(np.prod(degrees)), degrees), machine).of(extents, True)


def reached(single: np.ndarray) -> np.ndarray:
    """The cheapest paths by repeated squaring, up to the maximum number of steps."""
    found = single
    for _ in range(len(single).bit_length()):
        found = np.minimum(found, np.stack([(row[:, None] + found).min(axis=0) for row in found]))
    return found


@pytest.mark.parametrize(("machine", "degrees", "extents"), CASES)
def test_paths_between_layouts_in_order_go_by_way_of_all(
    machine: Machine, degrees: tuple[int, ...], extents: tuple[int, ...]
) -> None:
    prices = prices_of(machine, degrees, extents)
    ordered = prices.ordered
    assert prices.steps.layouts.in_mesh_order[:ordered].all() and not prices.steps.layouts.in_mesh_order[ordered:].any()
    for count, gradients in product((1.0, 1e4, 1e6, 1e9), (1e6, 1e10)):
        paths = Paths(prices, count, gradients, 0.5)
        np.testing.assert_allclose(paths.cheapest_in_order, paths.cheapest[:ordered, :ordered], rtol=1e-13)
        np.testing.assert_allclose(paths.ending_in_order, paths.ending[:ordered, :ordered], rtol=1e-13)
        assert (paths.ending <= paths.cheapest).all()


@pytest.mark.parametrize(("machine", "degrees", "extents"), [CASES[0], CASES[2], CASES[4]])
def test_a_closure_is_the_least_of_all_paths(
    machine: Machine, degrees: tuple[int, ...], extents: tuple[int, ...]
) -> None:
    single = prices_of(machine, degrees, extents).seconds(1e6)
    np.testing.assert_allclose(closed(single), reached(single), rtol=1e-13)
    assert (closed(single) <= single).all() and (np.diag(closed(single)) == 0).all()


def test_a_closure_has_the_sums_of_floyd_and_warshall_to_the_last_bit() -> None:
    random = np.random.default_rng(0)
    for size in (1, 7, 40, 130):
        single = random.random((size, size)) * 10.0 ** random.integers(-9, 2, (size, size))
        single[random.random((size, size)) < 0.6] = np.inf
        np.fill_diagonal(single, 0.0)
        found = single.copy()
        for middle in range(size):
            found = np.minimum(found, found[:, middle, None] + found[middle])
        assert np.array_equal(closed(single), found)

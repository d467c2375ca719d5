"""Finds points at which a fact is closest to false: minima of the distance by which its sides compare as stated.

Along lines through given points, the minima on a grid are refined by golden section. With several names, the best
points then descend in random directions. For example, `sin(a) < 1` is tried at pi / 2, where both sides are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Points = Mapping[str, Array]
Margin = Callable[[Points], Array]
"""The distance at each point, infinite where the fact does not apply."""

LINES = 12
"""Points through which lines are drawn along each name, if there are several names."""
REFINED = 48
"""The number of minima that are refined, least first."""
SECTIONS = 64
DESCENTS = 60
_GOLDEN = (5**0.5 - 1) / 2
_DENSE = np.linspace(-64.0, 64.0, 4097) + 1e-3
_COARSE = np.linspace(-16.0, 16.0, 257) + 1e-3
_DECADES = 10.0 ** np.linspace(-8, 6, 113)


def closest_points(start: Points, margin: Margin) -> dict[str, Array]:
    """Points near `start` at which the margin is least, and their neighbours in float64."""
    names = tuple(start)
    if not names:
        return {}
    random = np.random.default_rng(2)
    count = len(start[names[0]])
    bases = [0] if len(names) == 1 else random.choice(count, min(LINES, count), replace=False).tolist()
    grid = _DENSE if len(names) == 1 else _COARSE
    line = np.unique(np.concatenate((grid, _DECADES, -_DECADES)))
    found: list[dict[str, Array]] = []
    for name in names:
        marked = np.unique(np.concatenate((line, start[name][np.isfinite(start[name])])))
        columns = {n: np.repeat(start[n][bases], len(marked)) for n in names}
        columns[name] = np.tile(marked, len(bases))
        found.append(_refined(columns, name, len(marked), margin))
    best = {n: np.concatenate([each[n] for each in found]) for n in names}
    if len(names) > 1:
        best = _least(_descended(best, margin, random), margin)
        for name in names * 2:
            width = 1e-2 * np.maximum(np.abs(best[name]), 1e-2)
            best = _least(_sectioned(best, name, best[name] - width, best[name] + width, margin), margin)
    around = [best, *({n: np.nextafter(c, side) for n, c in best.items()} for side in (-np.inf, np.inf))]
    return {n: np.concatenate([each[n] for each in around]) for n in names}


def _least(points: dict[str, Array], margin: Margin) -> dict[str, Array]:
    """The points with the least margins, at most `REFINED`."""
    chosen = np.argsort(margin(points), kind="stable")[:REFINED]
    return {name: column[chosen] for name, column in points.items()}


def _refined(columns: dict[str, Array], name: str, length: int, margin: Margin) -> dict[str, Array]:
    """The least minima along the lines, refined by golden section between their neighbours on the grid."""
    values = margin(columns).reshape(-1, length)
    padded = np.pad(values, ((0, 0), (1, 1)), constant_values=np.inf)
    least = np.flatnonzero((values <= padded[:, :-2]) & (values <= padded[:, 2:]) & np.isfinite(values))
    least = least[np.argsort(values.ravel()[least], kind="stable")][:REFINED]
    place = least % length
    line = columns[name][:length]
    at = {n: c[least] for n, c in columns.items()}
    return _sectioned(at, name, line[np.maximum(place - 1, 0)], line[np.minimum(place + 1, length - 1)], margin)


def _sectioned(at: dict[str, Array], name: str, low: Array, high: Array, margin: Margin) -> dict[str, Array]:
    """The points, and the same points at the last two probes between `low` and `high` of one name."""

    def value(point: Array) -> Array:
        return margin({**at, name: point})

    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    lower, upper = value(first), value(second)
    for _ in range(SECTIONS):
        left = lower <= upper
        low, high = np.where(left, low, first), np.where(left, second, high)
        new = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        there = value(new)
        first, second = np.where(left, new, second), np.where(left, first, new)
        lower, upper = np.where(left, there, upper), np.where(left, lower, there)
    ends = [at[name], first, second]
    return {n: np.concatenate(ends if n == name else [c] * len(ends)) for n, c in at.items()}


def _descended(points: dict[str, Array], margin: Margin, random: np.random.Generator) -> dict[str, Array]:
    """The points, each moved at random if that lowers the margin, in smaller and smaller steps."""
    value = margin(points)
    for step in range(DESCENTS):
        size = 10.0 ** (0.5 - 9 * step / DESCENTS)
        scale = {n: size * np.maximum(np.abs(c), 1e-3) for n, c in points.items()}
        moved = {n: c + random.normal(0, 1, c.shape) * scale[n] for n, c in points.items()}
        there = margin(moved)
        better = there < value
        points = {n: np.where(better, moved[n], c) for n, c in points.items()}
        value = np.where(better, there, value)
    return points

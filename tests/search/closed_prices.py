"""Conversion prices in the form that the search gets, closed under paths."""

from __future__ import annotations

import numpy as np


def closed(prices: np.ndarray) -> np.ndarray:
    """The cheapest path between all pairs (Floyd, Warshall)."""
    found = np.where(np.eye(len(prices), dtype=bool), 0.0, prices)
    for middle in range(len(found)):
        found = np.minimum(found, found[:, middle, None] + found[middle])
    return found

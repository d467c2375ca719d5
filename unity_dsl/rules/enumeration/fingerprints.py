"""Fingerprints of graphs: their values on random operands under random linear functionals, grouped by tolerance.

Different graphs may get the same fingerprint; the prover makes the final decision. Equal graphs are not separated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...prove.normal_form.polynomial import Poly, Quotient
from ...prove.translation.symbolic_sizes import exactly
from .dimensions import TensorType, letters_of

Array = npt.NDArray[Any]
DRAWS = 2
TOLERANCE = 1e-8
"""Relative to the sum of the magnitudes of the functional's terms."""
FLOOR = 1e-11
"""A difference below this is rounding error at any magnitude: if terms cancel, magnitudes are as small as
their error.
"""


@dataclass(frozen=True)
class Fingerprints:
    """`keys` and `scales` are [terms, draws]; a term without finite values has NaN."""

    keys: Array
    scales: Array

    @property
    def finite(self) -> Array:
        return np.asarray(np.isfinite(self.keys).all(axis=1) & np.isfinite(self.scales).all(axis=1))


def random_operand(random: np.random.Generator, shape: tuple[int, ...], bound: int | None) -> Array:
    """One operand for each draw: [draws, *shape]. Floats have both signs and magnitudes between a quarter and two."""
    if bound is not None:
        return random.integers(0, bound, (DRAWS, *shape))
    magnitude = np.exp2(random.uniform(-2, 1, (DRAWS, *shape)))
    return np.asarray(magnitude * random.choice((-1.0, 1.0), (DRAWS, *shape)))


def sizes_for(tensors: Sequence[TensorType], degrees: frozenset[str], first: int = 2) -> Mapping[str, int]:
    """Small sizes of the letters, alternating between 2 and 3 (from `first`), larger if a dimension would have no
    element.

    Raises ValueError if none are found within `GROWTH` attempts.
    """
    letters: dict[str, int] = dict.fromkeys(sorted(degrees), 2)
    turn = first
    totals = list(dict.fromkeys(part.total for tensor in tensors for part in tensor.parts))
    for name in dict.fromkeys(name for total in totals for name in letters_of(total)):
        if name not in letters:
            letters[name] = turn
            turn = 5 - turn
    for _ in range(GROWTH):
        low = [total for total in totals if exactly(total, letters) < 1]
        if not low:
            return letters
        for name in {name for total in low for name in _raising(total)} - degrees:
            letters[name] += 1
    raise ValueError("no sizes with elements")


GROWTH = 8


def _raising(size: Poly) -> Iterator[str]:
    """Letters with which a size grows."""
    for monomial, coefficient in size.terms:
        for symbol, _ in monomial:
            if isinstance(symbol, Quotient):
                yield from _raising(symbol.numerator)
            elif isinstance(symbol, str) and coefficient > 0:
                yield symbol


def functional(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A random linear functional on tensors of a shape, for each draw: [draws, elements]."""
    return np.asarray(random.uniform(0.5, 1.5, (DRAWS, prod(shape))) * random.choice((-1.0, 1.0), (DRAWS, prod(shape))))


def fingerprints(values: Array, weights: Array) -> Fingerprints:
    """Fingerprints of tensors [terms, draws, ...] under functionals [draws, elements]."""
    flat = values.reshape((*values.shape[:2], -1)).astype(np.float64)
    with np.errstate(all="ignore"):
        keys = np.einsum("tde,de->td", flat, weights)
        scales = np.einsum("tde,de->td", np.abs(flat), np.abs(weights))
    return Fingerprints(keys, scales)


def groups(found: Fingerprints) -> list[Array]:
    """Groups of two or more terms with the same fingerprint. Term numbers ascend within a group; groups are ordered by
    their first.
    """
    places = np.flatnonzero(found.finite)
    split = [places]
    for draw in range(found.keys.shape[1]):
        split = [part for whole in split for part in _runs(whole, found.keys[:, draw], found.scales[:, draw])]
    return sorted((np.sort(part) for part in split), key=lambda part: int(part[0]))


def _runs(places: Array, keys: Array, scales: Array) -> list[Array]:
    """The places sorted by key, split between neighbours that differ by more than rounding, without runs of
    one place.
    """
    order = places[np.argsort(keys[places], kind="stable")]
    gaps = np.diff(keys[order])
    bounds = TOLERANCE * np.maximum(scales[order][1:], scales[order][:-1]) + FLOOR
    return [run for run in np.split(order, np.flatnonzero(gaps > bounds) + 1) if len(run) > 1]

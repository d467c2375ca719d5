"""The exact minimum of a sum of tables: variable elimination in the (min, +) semiring, over NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

LARGEST_TABLE = 1 << 24
"""Entries of the largest intermediate table; beyond it `TooLarge` is raised."""
_AT_ONCE = 1 << 21


class TooLarge(Exception):
    """An intermediate table would exceed the bound. `entries` is its size."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"an intermediate table of {entries} entries exceeds the bound of {LARGEST_TABLE}")
        self.entries = entries


@dataclass(frozen=True)
class Factor:
    """A cost that depends on some variables: `table` has one dimension per variable of `scope`."""

    scope: tuple[int, ...]
    table: Table


@dataclass(frozen=True)
class _Bucket:
    """What was summed when a variable was eliminated: enough to choose its best value afterwards."""

    variable: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Elimination:
    """The minimum over all variables but `kept`, as a table over those, and the way back to the minimising values."""

    kept: tuple[int, ...]
    table: Table
    buckets: tuple[_Bucket, ...]

    def assignment(self, values: Mapping[int, int]) -> dict[int, int]:
        """The minimising value of every variable, given those of the kept ones. Ties go to the smallest value."""
        found = dict(values)
        for bucket in reversed(self.buckets):
            costs = sum(_at(factor, bucket.variable, found) for factor in bucket.factors)
            found[bucket.variable] = int(np.argmin(costs))
        return found


def eliminate(sizes: Sequence[int], factors: Sequence[Factor], kept: Sequence[int] = ()) -> Elimination:
    """Minimise the sum of factors over every variable that is not kept.

    Each step eliminates the variable whose joint table is the smallest, the first of equals. Raises TooLarge.
    """
    live = [factor for factor in factors if factor.scope]
    constant = sum(float(factor.table) for factor in factors if not factor.scope)
    around = _neighbours(len(sizes), live)
    remaining = set(range(len(sizes))) - set(kept)
    joint = {variable: prod(sizes[other] for other in around[variable]) for variable in remaining}
    buckets = []
    while remaining:
        variable = min(remaining, key=lambda v: (joint[v], v))
        remaining.remove(variable)
        bucket = tuple(factor for factor in live if variable in factor.scope)
        live = [factor for factor in live if variable not in factor.scope]
        buckets.append(_Bucket(variable, bucket or (Factor((variable,), np.zeros(sizes[variable])),)))
        if not bucket:
            continue
        joined = _join(bucket, variable, sizes)
        if joined.scope:
            live.append(joined)
        else:
            constant += float(joined.table)
        for other in joined.scope:
            around[other] = (around[other] | set(joined.scope)) - {variable}
            if other in remaining:
                joint[other] = prod(sizes[near] for near in around[other])
    table = np.zeros(tuple(sizes[variable] for variable in kept))
    for factor in live:
        table = table + _aligned(factor, tuple(kept))
    return Elimination(tuple(kept), table + constant, tuple(buckets))


def _neighbours(count: int, factors: Sequence[Factor]) -> list[set[int]]:
    """Per variable those that it shares a table with, and itself."""
    around = [{variable} for variable in range(count)]
    for factor in factors:
        for variable in factor.scope:
            around[variable].update(factor.scope)
    return around


def _join(factors: Sequence[Factor], variable: int, sizes: Sequence[int]) -> Factor:
    """The sum of factors, minimised over one variable."""
    scope = tuple(sorted({other for factor in factors for other in factor.scope} - {variable}))
    shape = tuple(sizes[other] for other in scope)
    if prod(shape) > LARGEST_TABLE:
        raise TooLarge(prod(shape))
    first = [_aligned(factor, (variable, *scope)) for factor in factors]
    rows = max(1, _AT_ONCE // max(1, prod(shape)))
    result = np.full(shape, np.inf)
    for start in range(0, sizes[variable], rows):
        total: Table | float = 0.0
        for table in first:
            total = total + table[start : start + rows]
        np.minimum(result, np.min(np.broadcast_to(total, (np.shape(total)[0], *shape)), axis=0), out=result)
    return Factor(scope, result)


def _aligned(factor: Factor, scope: tuple[int, ...]) -> Table:
    """The factor's table with its dimensions in the order of a larger scope, of length 1 where it has none."""
    order = sorted(range(len(factor.scope)), key=lambda i: scope.index(factor.scope[i]))
    table = factor.table.transpose(order)
    present = set(factor.scope)
    lengths = iter(table.shape)
    return table.reshape(tuple(next(lengths) if variable in present else 1 for variable in scope))


def _at(factor: Factor, variable: int, values: Mapping[int, int]) -> Table:
    """The factor as a function of one variable, the others being fixed."""
    index = tuple(slice(None) if other == variable else values[other] for other in factor.scope)
    return np.asarray(factor.table[index], dtype=np.float64)

"""Bucket elimination in the (min, +) semiring over NumPy tables: the exact minimum of a sum.

R. Dechter, Bucket elimination: a unifying framework for reasoning, Artificial Intelligence 113 (1999)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod

import numpy as np
import numpy.typing as npt

from ..search_end import check_end

Table = npt.NDArray[np.float64]

LARGEST_TABLE = 1 << 24
"""Entries of the largest intermediate table; beyond it `TooLarge` is raised."""
LARGEST_WORK = 1 << 25
"""Entries of all joint tables together; beyond it `TooLarge` is raised."""
_MOST_DIMENSIONS = 32
_AT_ONCE = 1 << 16
_FEW = 1 << 12
"""Entries of a sum of tables. For fewer, adding tables in advance is not worth it."""


class TooLarge(Exception):
    """Tables would exceed a bound. `entries` is their size."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"tables of {entries} entries exceed the bound")
        self.entries = entries


@dataclass(frozen=True)
class Factor:
    """A cost that depends on some variables: `table` has one dimension per variable of `scope`."""

    scope: tuple[int, ...]
    table: Table


@dataclass(frozen=True)
class _Bucket:
    """The factors that were summed when a variable was eliminated: enough to choose its best value afterwards."""

    variable: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Elimination:
    """The minimum over all variables but `kept`, as a table over these, and the buckets that lead to the minimising
    values.
    """

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


def elimination_order(
    sizes: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    kept: Sequence[int] = (),
    most: int = LARGEST_WORK,
) -> list[int]:
    """An order of the variables that are not kept: each time the one with the smallest joint table, the first of
    equals.

    A variable with one value is in no table. A variable without values counts as if it had two: NumPy refuses an empty
    array whose other dimensions are too large. Raises TooLarge, before any table is made, if one table would be too
    large or all together would have more than `most` entries.
    """
    sizes = [size or 2 for size in sizes]
    around = _neighbours([_open(scope, sizes, kept) for scope in scopes])
    order = [variable for variable in range(len(sizes)) if variable not in around and variable not in kept]
    work = sum(sizes[variable] for variable in order)
    remaining = set(around) - set(kept)
    joint = {variable: prod(sizes[other] for other in around[variable]) for variable in remaining}
    waiting = [(entries, variable) for variable, entries in joint.items()]
    heapify(waiting)
    while remaining:
        entries, variable = heappop(waiting)
        if variable not in remaining or entries != joint[variable]:
            continue
        remaining.remove(variable)
        order.append(variable)
        near = around[variable] - {variable}
        work += entries
        table = entries // sizes[variable]
        if table > LARGEST_TABLE or work > most or len(near) >= _MOST_DIMENSIONS:
            raise TooLarge(max(table, work))
        for other in near:
            around[other] = (around[other] | near) - {variable}
            if other in remaining:
                joint[other] = prod(sizes[third] for third in around[other])
                heappush(waiting, (joint[other], other))
    return order


def eliminate(
    sizes: Sequence[int], factors: Sequence[Factor], kept: Sequence[int] = (), order: Sequence[int] | None = None
) -> Elimination:
    """Minimises the sum of factors over every variable that is not kept. An `order`, if given, was found for their
    scopes. Otherwise it is found here, which may raise TooLarge.
    """
    factors = [_without_settled(factor, sizes, kept) for factor in factors]
    constant = sum(float(factor.table) for factor in factors if not factor.scope)
    live = dict(enumerate(factor for factor in factors if factor.scope))
    if order is None:
        order = elimination_order(sizes, [factor.scope for factor in live.values()], kept)
    having: list[set[int]] = [set() for _ in sizes]
    for number, factor in live.items():
        for variable in factor.scope:
            having[variable].add(number)
    buckets = []
    for number, variable in enumerate(order, len(live)):
        check_end()
        bucket = tuple(live.pop(i) for i in sorted(having[variable]))
        buckets.append(_Bucket(variable, bucket or (Factor((variable,), np.zeros(sizes[variable])),)))
        if not bucket:
            continue
        joined = _join(bucket, variable, sizes)
        for other in {other for factor in bucket for other in factor.scope}:
            having[other] = {i for i in having[other] if i in live}
        if joined.scope:
            live[number] = joined
            for other in joined.scope:
                having[other].add(number)
        else:
            constant += float(joined.table)
    table = np.zeros(tuple(sizes[variable] for variable in kept))
    for factor in live.values():
        table = table + _aligned(factor, tuple(kept))
    return Elimination(tuple(kept), table + constant, tuple(buckets))


def _open(scope: Sequence[int], sizes: Sequence[int], kept: Sequence[int]) -> tuple[int, ...]:
    """The variables of a scope that are kept, or do not have exactly one value."""
    return tuple(variable for variable in scope if sizes[variable] != 1 or variable in kept)


def _without_settled(factor: Factor, sizes: Sequence[int], kept: Sequence[int]) -> Factor:
    scope = _open(factor.scope, sizes, kept)
    return Factor(scope, factor.table.reshape(tuple(sizes[variable] for variable in scope)))


def _neighbours(scopes: Sequence[tuple[int, ...]]) -> dict[int, set[int]]:
    """For each variable that is in a table, the variables that share a table with it, and itself."""
    around: dict[int, set[int]] = {}
    for scope in scopes:
        for variable in scope:
            around.setdefault(variable, set()).update(scope)
    return around


def _join(factors: Sequence[Factor], variable: int, sizes: Sequence[int]) -> Factor:
    """The sum of factors, minimised over one variable, some entries at a time. The longest dimension is innermost."""
    scope = tuple(sorted({other for factor in factors for other in factor.scope} - {variable}))
    inside = tuple(sorted(scope, key=lambda other: sizes[other]))
    shape = tuple(sizes[other] for other in inside)
    tables = _fewer([_aligned(factor, (variable, *inside)) for factor in factors], sizes[variable] * prod(shape))
    result = np.full(shape, np.inf)
    below = prod(shape[1:])
    step = max(1, _AT_ONCE // max(1, sizes[variable] * below))
    rows = max(1, min(sizes[variable], _AT_ONCE // max(1, below)))
    sums = np.empty((rows, *result[:step].shape) if shape else rows)
    for low in range(0, len(result) if shape else 1, step):
        part = result[low : low + step] if shape else result
        for start in range(0, sizes[variable], rows):
            check_end()
            some = [table[start : start + rows] for table in tables]
            if shape:
                some = [table[:, low : low + step] if table.shape[1] > 1 else table for table in some]
            total = sums[: min(rows, sizes[variable] - start), *([slice(len(part))] if shape else [])]
            np.add(some[0], some[1] if len(some) > 1 else 0.0, out=total)
            for table in some[2:]:
                total += table
            np.minimum(part, np.minimum.reduce(total, axis=0), out=part)
    return Factor(scope, result.transpose([inside.index(other) for other in scope]))


def _fewer(tables: list[Table], entries: int) -> list[Table]:
    """Fewer tables with the same sum, which has `entries` entries. While there are more than two, the smallest is added
    to the table with which it makes the smallest sum, unless that sum is too large to be made at once.
    """
    if entries <= _FEW:
        return tables
    waiting, found = sorted(tables, key=lambda table: table.size), list[Table]()
    while waiting and len(waiting) + len(found) > 2:
        smallest = waiting.pop(0)
        sums = [prod(map(max, smallest.shape, other.shape)) for other in waiting]
        if sums and min(sums) <= _AT_ONCE:
            waiting[sums.index(min(sums))] = smallest + waiting[sums.index(min(sums))]
        else:
            found.append(smallest)
    return [*found, *waiting]


def _aligned(factor: Factor, scope: tuple[int, ...]) -> Table:
    """The factor's table with dimensions in the order of a larger scope, of length 1 for variables that it does not
    have.
    """
    order = sorted(range(len(factor.scope)), key=lambda i: scope.index(factor.scope[i]))
    table = factor.table.transpose(order)
    present = set(factor.scope)
    lengths = iter(table.shape)
    return table.reshape(tuple(next(lengths) if variable in present else 1 for variable in scope))


def _at(factor: Factor, variable: int, values: Mapping[int, int]) -> Table:
    """The factor as a function of one variable, the others being fixed."""
    index = tuple(slice(None) if other == variable else values[other] for other in factor.scope)
    return np.asarray(factor.table[index], dtype=np.float64)

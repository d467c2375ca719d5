"""Outer sums of a column and a row, for (min, +) products and closures of tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

_FAR = 1e200
"""Stands for infinity, which would become NaN in a matrix product."""


class OuterSums:
    """Outer sums of columns of length `rows` and rows of length `columns`, in one reused buffer.

    Each is a matrix product, [column, 1] [1; row]. It is exact, as it rounds once, and takes a third of the time of a
    broadcast sum; all numbers must be finite.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._left, self._right, self._sums = np.ones((rows, 2)), np.ones((2, columns)), np.empty((rows, columns))

    def of(self, column: Table, row: Table) -> Table:
        """The table of column[i] + row[j]; the next call overwrites it."""
        self._left[:, 0], self._right[1] = column, row
        return np.matmul(self._left, self._right, out=self._sums)


def finite(table: Table) -> Table:
    """The table with a large number in place of infinity."""
    return np.minimum(table, _FAR)


def restore_infinity(*tables: Table) -> None:
    """Restores, in place, infinities that `finite` replaced, also within sums."""
    for table in tables:
        table[table >= _FAR] = np.inf

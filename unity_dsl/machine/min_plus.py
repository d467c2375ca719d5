"""Sums of a column and a row, for products and closures of tables under (min, +)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

_FAR = 1e200
"""In place of infinity, which a product of matrices would make a NaN of."""


class OuterSums:
    """The sums of columns of `rows` numbers and rows of `columns` numbers, one table after the other.

    Each is a product of matrices, [column, 1] [1; row]. It is exact, as it has one rounding, and takes a third of the
    time of a sum that is broadcast; numbers must be finite for it.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._left, self._right, self._sums = np.ones((rows, 2)), np.ones((2, columns)), np.empty((rows, columns))

    def of(self, column: Table, row: Table) -> Table:
        """The table of column[i] + row[j], until the next is made."""
        self._left[:, 0], self._right[1] = column, row
        return np.matmul(self._left, self._right, out=self._sums)


def finite(table: Table) -> Table:
    """The same with a large number in place of infinity."""
    return np.minimum(table, _FAR)


def restore_infinity(*tables: Table) -> None:
    """In place what `finite` numbers stand for, sums of them too."""
    for table in tables:
        table[table >= _FAR] = np.inf

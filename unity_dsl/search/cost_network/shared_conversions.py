"""Cost of one tensor converted for several readers, as a function of the layouts that they ask for.

A tensor is produced in one layout and converted to at most two more. Each reader takes one of the three. There are few
ways to assign readers to them, and for each the cost is a sum of tables over one or two layouts. The least cost with a
given layout at one place is therefore found by (min, +) products of vectors with the price table, one for every set of
readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from ...machine.min_plus import OuterSums, finite, restore_infinity
from .bucket_elimination import Table

Numbers = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

MOST_READERS = 6
"""Readers that are treated together: every subset of them is enumerated."""
_AT_ONCE = 1 << 20
"""Entries of an intermediate result."""
_IN_CACHE = 1 << 16
"""Entries of an intermediate result that is small enough to be made at once."""
_FEW_SUMS = 1 << 13
"""Sums of a product. For fewer, finding the rows that can be left out takes longer than the sums."""
_WIDE = 1 << 11
"""Entries of a result. From this size on, each step adds one column and one row for all entries at once."""


@dataclass(frozen=True)
class _Pairs:
    """Pairs of disjoint, non-empty sets in groups: each begins at one of `starts` and belongs to a set in `keys`."""

    first: Numbers
    second: Numbers
    starts: Numbers
    keys: Numbers


@dataclass(frozen=True)
class _Sets:
    """Sets of readers as bit sets. Pairs of disjoint sets are grouped by their union and by the first one. `having`
    gives, by reader, the sets with it and those without it.
    """

    by_union: _Pairs
    by_first: _Pairs
    having: tuple[tuple[Numbers, Numbers], ...]


@cache
def _sets(readers: int) -> _Sets:
    first, second = np.divmod(np.arange(4**readers), 2**readers)
    apart = (first & second == 0) & (first > 0) & (second > 0)
    first, second = first[apart], second[apart]

    def grouped(key: Numbers) -> _Pairs:
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        return _Pairs(first[order], second[order], starts, key[order][starts])

    inside = [(np.arange(2**readers) >> reader & 1).astype(bool) for reader in range(readers)]
    having = tuple((np.flatnonzero(found), np.flatnonzero(~found)) for found in inside)
    return _Sets(grouped(first | second), grouped(first), having)


@dataclass(frozen=True)
class SharedCost:
    """The cost of making the layouts that readers ask of one tensor. Layouts are row numbers of the table.

    `prices[i, j]` is the price of converting the produced layout i, never more than by way of another layout. `between`
    is the price of converting a layout that was itself made, if it differs, and is no less. With at most `few` layouts,
    every choice of a produced one and two others is tried, which is quicker. A reader may ask for `nothing`, which is
    free and takes no layout's place. The same number stands for a tensor that is not made.
    """

    prices: Table
    few: int = 16
    nothing: int | None = None
    between: Table | None = None

    @property
    def onward(self) -> Table:
        """The price of converting a layout that was itself made."""
        return self.prices if self.between is None else self.between

    @property
    def is_partial(self) -> bool:
        """Whether some reader may ask for nothing."""
        return self.nothing is not None

    def least_produced(self, root: Table, readers: Sequence[Table]) -> Table:
        """The least total with each produced layout. Shape [layouts]."""
        merged = _Merged.of(root, self._served(readers))
        if not merged.possible:
            return np.full(len(root), np.inf)
        if self._few:
            return self._least_of_few(merged)[0]
        choices = merged.choices(self)
        return np.asarray((choices.rest + choices.served).min(axis=0))

    def least(self, root: Table, readers: Sequence[Table]) -> list[Table]:
        """The least total with each layout at each end: of the producer, then of each reader. Shape [layouts] each.

        `root` and `readers` are additional costs of a layout at these ends. An infinite cost excludes the layout.
        """
        served = self._served(readers)
        merged = _Merged.of(root, served)
        if not merged.possible:
            return [np.full(len(root), np.inf) for _ in (root, *readers)]
        found = merged.told_apart(self._least_of_few(merged) if self._few else merged.choices(self).least())
        if self.nothing is None:
            return found
        ends = zip(readers, served, found[1:], strict=True)
        return [found[0], *(self._asking(*end) for end in ends)]

    def least_of_each(self, root: Table, readers: Sequence[Table]) -> list[Table]:
        """`least` for several tensors with equal prices. Each tensor has a row at every end. Shape [tensors, layouts]
        each.
        """
        served = self._served(readers)
        found = _Choices(self, root.ravel(), [reader.ravel() for reader in served]).least()
        least = [table.reshape(root.shape) for table in found]
        if self.nothing is None:
            return least
        ends = zip(readers, served, least[1:], strict=True)
        return [least[0], *(self._asking(*end) for end in ends)]

    def least_produced_of_each(self, root: Table, readers: Sequence[Table]) -> Table:
        """`least_produced` for several tensors with equal prices. Shape [tensors, layouts]."""
        choices = _Choices(self, root.ravel(), [reader.ravel() for reader in self._served(readers)])
        return np.asarray((choices.rest + choices.served).min(axis=0).reshape(root.shape))

    def _served(self, readers: Sequence[Table]) -> Sequence[Table]:
        """The cost for a reader of using a layout that exists: never more than of asking for nothing."""
        if self.nothing is None:
            return readers
        return [np.minimum(reader, reader[..., self.nothing, None]) for reader in readers]

    def _asking(self, reader: Table, served: Table, least: Table) -> Table:
        """The least totals by what a reader asks for, from those by the layout that it uses."""
        others = np.full(served.shape, np.inf)
        np.subtract(least, served, out=others, where=np.isfinite(served) & np.isfinite(least))
        found = reader + others
        found[..., self.nothing] = reader[..., self.nothing] + others.min(axis=-1)
        return np.asarray(found)

    @property
    def _few(self) -> bool:
        return len(self.prices) <= self.few

    @cached_property
    def _every_choice(self) -> Table:
        """The price of making two layouts from a produced one. Shape [layouts, layouts, layouts]."""
        prices = self.prices
        making = prices[:, :, None] + np.minimum(prices[:, None, :], self.onward)
        return np.asarray(np.minimum(making, making.transpose(0, 2, 1)))

    def _least_of_few(self, merged: _Merged) -> list[Table]:
        taken = [_taken(reader) for reader in merged.readers]
        before = [self._every_choice + merged.root[:, None, None]]
        for reader in taken:
            before.append(before[-1] + reader)
        found = [np.minimum.reduce(before[-1], axis=(1, 2))]
        after: Table | float = 0.0
        for number in reversed(range(len(taken))):
            others = before[number] + after  # symmetric in the two layouts that are made
            either = np.minimum.reduce(others, axis=2)
            least = np.minimum(np.minimum.reduce(either, axis=1), np.minimum.reduce(either, axis=0))
            found.insert(1, merged.readers[number] + least)
            after = after + taken[number]
        return found

    def _few_within(self, room: float, merged: _Merged, useful: Mask) -> Numbers:
        total = self._every_choice + merged.root[:, None, None]
        for reader in merged.readers:
            total = total + _taken(reader)
        root, first, second = np.ix_(*[np.arange(len(useful))] * 3)
        alone = (first == root) & (second == root)
        once = (first != root) & (second == root) & useful[first]
        twice = (first < second) & (first != root) & (second != root) & useful[first] & useful[second]
        near = (total <= room) & np.isfinite(total)
        return np.concatenate([np.argwhere(near & held) for held in (alone, once, twice)])

    def within(self, room: float, root: Table, readers: Sequence[Table]) -> Iterator[Numbers]:
        """The choices of a produced layout and further ones that cost at most `room`. Shape [choices, 3] each.

        With fewer than two further layouts the produced one is repeated. A further layout is one that some reader may
        take.
        """
        merged, useful = _Merged.of(root, self._served(readers)), _useful(readers)
        if self.nothing is not None:
            useful[self.nothing] = False
        if self._few:
            yield self._few_within(room, merged, useful)
            return
        choices = merged.choices(self)
        rows = np.flatnonzero((choices.rest + choices.served).min(axis=0) <= room)
        near: Mask = useful & (choices.nearest_pairs(rows.tolist()) <= room)
        step = max(1, _AT_ONCE // len(root) ** 2)
        for low in range(0, len(rows), step):
            some = slice(low, low + step)
            held = materialised_from(rows[some], useful, near[some])
            cost = merged.root[held[:, 0]] + price_materialised(self.prices, held, self.onward)
            for reader in merged.readers:
                cost = cost + reader[held].min(axis=1)
            yield held[np.isfinite(cost) & (cost <= room)]


@dataclass(frozen=True)
class GroupedCost:
    """The cost of a tensor some of whose ends must have the same number, of `count`, besides their layouts.

    Tables at such an end have a row of layouts for each number, one after the other.
    """

    cost: SharedCost
    grouped: tuple[bool, ...]
    count: int

    @property
    def prices(self) -> Table:
        return self.cost.prices

    @property
    def is_partial(self) -> bool:
        return True

    def least_produced(self, root: Table, readers: Sequence[Table]) -> Table:
        """As in `SharedCost`."""
        found = np.full((self.count, len(self.prices)), np.inf)
        tables, possible = self._possible([root, *readers])
        if len(possible):
            found[possible] = self.cost.least_produced_of_each(tables[0], tables[1:])
        return found.ravel() if self.grouped[0] else np.minimum.reduce(found)

    def least(self, root: Table, readers: Sequence[Table]) -> list[Table]:
        """As in `SharedCost`."""
        every = [np.full((self.count, len(self.prices)), np.inf) for _ in (root, *readers)]
        tables, possible = self._possible([root, *readers])
        if len(possible):
            for found, least in zip(every, self.cost.least_of_each(tables[0], tables[1:]), strict=True):
                found[possible] = least
        ends = zip(self._in_group(every), every, strict=True)
        return [found.ravel() if own else np.minimum.reduce(found) for own, found in ends]

    def _possible(self, said: Sequence[Table]) -> tuple[list[Table], Numbers]:
        """The tables of all ends, with a row for each number with which no end excludes all; and these numbers."""
        shape = self.count, len(self.prices)
        ends = zip(self._in_group(said), said, strict=True)
        rows = [table.reshape(shape) if own else np.broadcast_to(table, shape) for own, table in ends]
        possible = np.logical_and.reduce([np.isfinite(table).any(axis=1) for table in rows]).nonzero()[0]
        return [table[possible] for table in rows], possible

    def _in_group(self, said: Sequence[Table]) -> tuple[bool, ...]:
        """Whether each end is in the group. Ends after the known ones are not."""
        return (*self.grouped, *(False,) * (len(said) - len(self.grouped)))


@dataclass(frozen=True)
class _Merged:
    """Readers that can take only one layout are merged if that layout is the same. If it is the only produced one, they
    become part of the root.

    `group[r]` is what reader r has become, -1 for none. `possible` says that no end excludes all layouts.
    """

    root: Table
    readers: Table
    group: tuple[int, ...]
    possible: bool

    @classmethod
    def of(cls, root: Table, readers: Sequence[Table]) -> _Merged:
        produced = _only(root)
        known: dict[int, int] = {}
        merged: list[Table] = []
        group = []
        for reader in readers:
            layout = _only(reader)
            if layout is not None and layout == produced:
                root = root + reader
                group.append(-1)
            elif layout in known:
                merged[known[layout]] = merged[known[layout]] + reader
                group.append(known[layout])
            else:
                if layout is not None:
                    known[layout] = len(merged)
                group.append(len(merged))
                merged.append(reader)
        possible = produced != _NONE and _NONE not in known
        return cls(root, np.stack(merged) if merged else np.zeros((0, len(root))), tuple(group), possible)

    def choices(self, cost: SharedCost) -> _Choices:
        return _Choices(cost, self.root, list(self.readers))

    def told_apart(self, least: list[Table]) -> list[Table]:
        """The least totals at the root and at each reader, from those at the root and at the merged readers."""
        return [least[0], *(least[1 + number] for number in self.group)]


_NONE = -1
"""Stands for the only layout of an end that excludes all layouts."""


def _only(costs: Table) -> int | None:
    """The only layout that is not excluded; None if there are several, _NONE if there is none."""
    possible = np.isfinite(costs)
    count = np.count_nonzero(possible)
    return None if count > 1 else int(possible.argmax()) if count else _NONE


class _Choices:
    """The costs of one call. A table `[set, layout]` is for the readers of a set taken together. For several tensors
    with equal prices it has the layouts of all tensors, one tensor after the other.

    The readers of some set take the produced layout. All others take one further layout, or some of them a second one.
    """

    def __init__(self, cost: SharedCost, root: Table, readers: Sequence[Table]) -> None:
        self.cost = cost
        self.root = root
        self.count = len(readers)
        self.taken = np.zeros((1, len(root)))
        for reader in readers:
            self.taken = np.concatenate([self.taken, self.taken + reader])
        self.sets = _sets(self.count)
        self.all = (1 << self.count) - 1

    @cached_property
    def made(self) -> Table:
        """The cost of a layout made for a set, by the produced one; 0 for the empty set."""
        return self._made(self.cost.prices)

    @cached_property
    def made_onward(self) -> Table:
        """The same for a layout that is made of one that was itself made."""
        return self.made if self.cost.between is None else self._made(self.cost.between)

    def _made(self, prices: Table) -> Table:
        made = np.zeros_like(self.taken)
        made[1:] = _converted(self.taken[1:], prices.T)
        return made

    @cached_property
    def rest(self) -> Table:
        """The cost of the produced layout with the readers that take it, by the set that is left to serve."""
        return self.root + self.taken[::-1]

    @cached_property
    def served(self) -> Table:
        """The cost of serving a set by further layouts, by the produced one: by one layout, by a second made of the
        first, or by two made of the produced one.
        """
        served, pairs = self.made.copy(), self.sets.by_union
        after = _converted(_least_of_groups(self.taken, pairs.first, self.made_onward, pairs), self.cost.prices.T)
        beside = _least_of_groups(self.made, pairs.first, self.made, pairs)
        served[pairs.keys] = np.minimum(np.minimum(served[pairs.keys], after), beside)
        return served

    def nearest_pairs(self, rows: Sequence[int]) -> Table:
        """A lower bound on the cost of a produced layout of `rows` with two further ones, if one of the two is given.

        Shape [rows, layouts].
        """
        rows = list(rows)
        direct, found = self.cost.prices[rows], np.inf
        arriving = np.where(np.eye(len(self.root), dtype=bool), np.inf, self.cost.onward).min(axis=0)
        for given, other in zip(self.sets.by_first.first, self.sets.by_first.second, strict=True):
            first = direct + np.minimum(self.made[other][rows, None], self.made_onward[other][None, :])
            least = self.taken[other].min()
            second = np.maximum(direct + least, self.made[other][rows, None] + arriving[None, :])
            rest = self.rest[given | other][rows, None] + self.taken[given][None, :]
            found = np.minimum(found, rest + np.minimum(first, second))
        return np.broadcast_to(found, direct.shape)

    def least(self) -> list[Table]:
        """The least totals at the root and each reader. A reader's further layout is the only one, one of two made of
        the produced layout, or the first or second of two in a row.
        """
        total, prices, pairs = self.rest + self.served, self.cost.prices, self.sets.by_first
        further, both = np.full_like(self.taken, np.inf), pairs.first | pairs.second
        further[1:] = _converted(self.rest[1:], prices)
        beside = _converted(_least_of_groups(self.rest, both, self.made, pairs), prices)
        ahead = _least_of_groups(further, both, self.made_onward, pairs)
        behind = _converted(_least_of_groups(further, both, self.taken, pairs), self.cost.onward)
        further[pairs.keys] = np.minimum.reduce([further[pairs.keys], beside, ahead, behind])
        further += self.taken
        found = [np.minimum.reduce(total)]
        for having, others in self.sets.having:
            found.append(np.minimum(np.minimum.reduce(further[having]), np.minimum.reduce(total[others])))
        return found


def _taken(reader: Table) -> Table:
    """The cost for a reader that takes the best of three layouts. Shape [layouts, layouts, layouts]."""
    return np.asarray(np.minimum(np.minimum(reader[:, None], reader)[:, :, None], reader))


def _useful(readers: Sequence[Table]) -> Mask:
    """The layouts that some reader may take."""
    return np.asarray(np.isfinite(np.stack(readers)).any(axis=0))


def materialised_from(roots: Numbers, useful: Mask, near: Mask) -> Numbers:
    """Each root alone, then each with one other useful layout, then each with every pair of layouts near it.

    `near` has a row for each root. The root is repeated where fewer than three layouts are held.
    """
    single = np.repeat(roots[:, None], 3, axis=1)
    root, other = np.meshgrid(roots, np.flatnonzero(useful), indexing="ij")
    apart = root != other
    one = np.stack([root[apart], other[apart], root[apart]], axis=1)
    some = np.flatnonzero(near.any(axis=0))
    near = near[:, some] & (some != roots[:, None])
    later = np.arange(len(some))[:, None] < np.arange(len(some))
    place, first, second = np.nonzero(near[:, :, None] & near[:, None, :] & later)
    return np.concatenate([single, one, np.stack([roots[place], some[first], some[second]], axis=1)])


def price_materialised(prices: Table, held: Numbers, onward: Table) -> Table:
    """The cheapest way to make the held layouts: each from the produced one, or at prices `onward` from the other."""
    root, first, second = held.T
    both = np.minimum(
        prices[root, first] + np.minimum(prices[root, second], onward[first, second]),
        prices[root, second] + onward[second, first],
    )
    return np.asarray(np.where(second == root, prices[root, first], both), dtype=np.float64)


def _converted(costs: Table, prices: Table) -> Table:
    """The tables at the other end of a conversion: the (min, +) product with the prices, tensor by tensor."""
    return min_plus(costs.reshape(-1, len(prices)), prices).reshape(costs.shape)


def min_plus(costs: Table, prices: Table) -> Table:
    """The product in the (min, +) semiring: `result[s, j]` is the least of costs[s, i] + prices[i, j]."""
    if costs.size * prices.shape[1] > _FEW_SUMS:
        possible = np.flatnonzero(np.isfinite(costs).any(axis=0))
        if len(possible) < costs.shape[1]:
            prices, costs = prices[possible], costs[:, possible]
    if len(costs) <= prices.shape[1]:
        return _least_sums(costs, prices)
    # NumPy is quicker with the longer dimension innermost.
    return np.ascontiguousarray(_least_sums(prices.T, np.ascontiguousarray(costs.T)).T)


def _least_sums(costs: Table, prices: Table) -> Table:
    """`min_plus`, some sums at a time."""
    if len(costs) * prices.shape[1] >= _WIDE:
        return _least_sums_at_once(costs, prices)
    if 0 < costs.size * prices.shape[1] <= _IN_CACHE:
        return np.asarray(np.minimum.reduce(costs[:, :, None] + prices, axis=1))
    result = np.full((len(costs), prices.shape[1]), np.inf)
    rows = max(1, min(len(prices), _IN_CACHE // max(prices.shape[1], 1)))
    step = max(1, _IN_CACHE // max(rows * prices.shape[1], 1))
    for low in range(0, len(costs), step):
        found = result[low : low + step]
        for first in range(0, len(prices), rows):
            part = slice(first, first + rows)
            sums = costs[low : low + step, part, None] + prices[part]
            np.minimum(found, np.minimum.reduce(sums, axis=1), out=found)
    return result


def _least_sums_at_once(costs: Table, prices: Table) -> Table:
    """`min_plus`, with the sums of one column and one row at a time."""
    found = np.full((len(costs), prices.shape[1]), np.inf)
    sums = OuterSums(*found.shape)
    for column, row in zip(finite(costs).T, finite(prices), strict=True):
        np.minimum(found, sums.of(column, row), out=found)
    restore_infinity(found)
    return found


def _least_of_groups(first: Table, left: Numbers, second: Table, pairs: _Pairs) -> Table:
    """The least of first[left] + second[pairs.second] in each group, some layouts at a time."""
    width = first.shape[1]
    if 0 < len(left) * width <= _IN_CACHE:
        return np.asarray(np.minimum.reduceat(first[left] + second[pairs.second], pairs.starts, axis=0))
    step = max(1, _AT_ONCE // max(1, len(left)))
    result = np.empty((len(pairs.starts), width))
    for low in range(0, width, step) if len(left) else ():
        part = slice(low, low + step)
        result[:, part] = np.minimum.reduceat(first[left, part] + second[pairs.second, part], pairs.starts, axis=0)
    return result

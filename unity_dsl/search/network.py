"""A cost network with pairwise links through keys, and a lower bound on its minimum that says what cannot be optimal.

A variable's value has keys (a node's configuration: the layout it reads or produces). A link between two variables
costs what the cheapest pair of their keys costs, so it is evaluated on keys (layouts), which are fewer than values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .elimination import Factor, Table

Keys = npt.NDArray[np.intp]
"""Shape [values, width]: the keys of every value of a variable. Of several keys the cheapest counts."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Link:
    """`cost[i, j]` for key i of variable `first` and key j of variable `second`; infinite where they do not fit."""

    first: int
    second: int
    first_keys: Keys
    second_keys: Keys
    cost: Table

    def restricted(self, first: Mask | None, second: Mask | None) -> Link:
        """The link between what is left of its variables, without the keys that nothing has any more."""
        first_keys, rows = _compressed(self.first_keys, first)
        second_keys, columns = _compressed(self.second_keys, second)
        return Link(self.first, self.second, first_keys, second_keys, self.cost[np.ix_(rows, columns)])

    def table(self) -> Table:
        """The cost of every pair of values."""
        rows = self.cost[self.first_keys].min(axis=1)
        return np.asarray(rows[:, self.second_keys].min(axis=2), dtype=np.float64)


def _compressed(keys: Keys, mask: Mask | None) -> tuple[Keys, npt.NDArray[np.intp]]:
    kept = keys if mask is None else keys[mask]
    used, inverse = np.unique(kept, return_inverse=True)
    return inverse.reshape(kept.shape).astype(np.intp), used


@dataclass
class Network:
    """Variables with a cost per value, and links. `names` are for messages only."""

    costs: list[Table] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def add(self, cost: Table, name: str) -> int:
        self.costs.append(cost)
        self.names.append(name)
        return len(self.costs) - 1

    @property
    def sizes(self) -> list[int]:
        return [len(cost) for cost in self.costs]

    def factors(self) -> list[Factor]:
        """The network as plain tables, for elimination."""
        unary = [Factor((variable,), cost) for variable, cost in enumerate(self.costs)]
        return unary + [Factor((link.first, link.second), link.table()) for link in self.links]


class _Side:
    """One end of a link: from values to keys and back, both taking the cheapest."""

    def __init__(self, variable: int, keys: Keys, count: int) -> None:
        self.variable = variable
        self.keys = keys[:, 0] if keys.shape[1] == 1 else keys
        flat = keys.ravel()
        order = np.argsort(flat, kind="stable")
        self._values = order // keys.shape[1]
        ordered = flat[order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._present = ordered[self._starts]
        self._count = count

    def collapse(self, costs: Table) -> Table:
        """Cheapest value of each key."""
        result = np.full(self._count, np.inf)
        if len(self._starts):
            result[self._present] = np.minimum.reduceat(costs[self._values], self._starts)
        return result

    def expand(self, costs: Table) -> Table:
        """Cheapest key of each value."""
        found = costs[self.keys]
        return found if found.ndim == 1 else found.min(axis=1)


class _Edge:
    """A link with its two messages: what has been moved from the link's cost to the costs of its ends."""

    def __init__(self, link: Link) -> None:
        self.ends = (
            _Side(link.first, link.first_keys, link.cost.shape[0]),
            _Side(link.second, link.second_keys, link.cost.shape[1]),
        )
        self.cost = link.cost
        self.moved = [np.zeros(len(link.first_keys)), np.zeros(len(link.second_keys))]

    def cheapest(self, end: int, costs: Table) -> Table:
        """Per value of the other end: the least of `costs` (over this end's values) plus the link's cost."""
        collapsed = self.ends[end].collapse(costs)
        if end == 0:
            reached = (collapsed[:, None] + self.cost).min(axis=0)
        else:
            reached = (self.cost + collapsed[None, :]).min(axis=1)
        return self.ends[1 - end].expand(reached)


_FARTHEST = 1e6
"""Messages stay finite: seconds that no plan takes stand for impossible."""


class Relaxation:
    """A lower bound on a network's minimum, raised by moving costs between links and variables.

    Every state of the messages is a way to write the same total cost as a sum of parts, so the sum of the parts' minima
    is a lower bound whatever the messages are: that it is valid does not rest on how they were found. They are found by
    sequential tree-reweighted message passing (Kolmogorov 2006).
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.edges = [_Edge(link) for link in network.links]
        self.incident: list[list[tuple[_Edge, int, int]]] = [[] for _ in network.costs]
        for edge in self.edges:
            first, second = edge.ends[0].variable, edge.ends[1].variable
            self.incident[first].append((edge, 0, second))
            self.incident[second].append((edge, 1, first))

        self._drop_impossible()

    def _drop_impossible(self) -> None:
        """Makes values infinite that go together with no value of a linked variable, until none is left."""
        costs = self.network.costs
        waiting = set(range(len(costs)))
        while waiting:
            variable = min(waiting)
            waiting.remove(variable)
            for edge, end, other in self.incident[variable]:
                reached = np.isfinite(edge.cheapest(end, costs[variable]))
                if (np.isfinite(costs[other]) & ~reached).any():
                    costs[other] = np.where(reached, costs[other], np.inf)
                    waiting.add(other)

    def settled(self, variable: int) -> Table:
        """The variable's cost with what its links have moved to it."""
        total = self.network.costs[variable].copy()
        for edge, end, _ in self.incident[variable]:
            total += edge.moved[end]
        return total

    def sweep(self) -> None:
        """One pass through the variables and one back."""
        count = len(self.network.costs)
        for variable in range(count):
            self._send(variable, forward=True)
        for variable in reversed(range(count)):
            self._send(variable, forward=False)

    def _send(self, variable: int, forward: bool) -> None:
        chosen = [entry for entry in self.incident[variable] if (entry[2] > variable) == forward]
        if not chosen:
            return
        share = self.settled(variable) / self._parts(variable)
        for edge, end, _ in chosen:
            message = edge.cheapest(end, share - edge.moved[end])
            least = message.min()
            if np.isfinite(least):
                edge.moved[1 - end] = np.minimum(message - least, _FARTHEST)

    def _parts(self, variable: int) -> int:
        later = sum(other > variable for _, _, other in self.incident[variable])
        return max(1, later, len(self.incident[variable]) - later)

    def shares(self) -> tuple[list[Table], list[tuple[Table, Table]]]:
        """The network's cost as a sum of parts: of each variable, and of each link's cost what its two ends add to it.

        A variable gives a share of its settled cost to each link to an earlier variable and keeps the rest.
        """
        kept = []
        given = [[-edge.moved[0], -edge.moved[1]] for edge in self.edges]
        number = {id(edge): i for i, edge in enumerate(self.edges)}
        for variable in range(len(self.network.costs)):
            settled = self.settled(variable)
            earlier = [entry for entry in self.incident[variable] if entry[2] < variable]
            share = settled / self._parts(variable)
            for edge, end, _ in earlier:
                given[number[id(edge)]][end] = given[number[id(edge)]][end] + share
            left = 1 - len(earlier) / self._parts(variable)
            kept.append(settled * left if left else np.where(np.isfinite(settled), 0.0, np.inf))
        return kept, [(first, second) for first, second in given]

    def bound(self) -> tuple[float, list[Table]]:
        """A lower bound, and per value of each variable how much more any assignment with that value costs at least."""
        kept, given = self.shares()
        lower = 0.0
        slacks = []
        for cost in kept:
            least = cost.min()
            lower += float(least)
            slacks.append(cost - least if np.isfinite(least) else cost)
        for edge, ends in zip(self.edges, given, strict=True):
            least = 0.0
            for end in (0, 1):
                margin = edge.cheapest(1 - end, ends[1 - end]) + ends[end]
                least = float(margin.min())
                slacks[edge.ends[end].variable] += margin - least if np.isfinite(least) else margin
            lower += least
        return lower, slacks

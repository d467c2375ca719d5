"""Cost networks (weighted constraint networks) and lower bounds on them by tree-reweighted message passing.

TRW-S (V. Kolmogorov, PAMI 28, 2006): variables in a fixed order send a share of their cost and of the messages they got
to the variables after them, then to those before. Hubs (costs of more than two variables) act like that method's
factors.

A variable's value has keys (a node's configuration: the layout it reads or produces). A link between two variables
costs as much as the cheapest pair of their keys. It is evaluated on keys (layouts), which are fewer than values. A hub
joins all variables that produce and read one tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from ..search_end import check_end
from .bucket_elimination import Factor, Table
from .shared_conversions import GroupedCost, SharedCost

Keys = npt.NDArray[np.intp]
"""Shape [values, width]: the keys of every value of a variable. If a value has several keys, the cheapest counts."""
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
        """The link between the values that the masks leave, without keys that no value has any more."""
        first_keys, rows = _compressed(self.first_keys, first, len(self.cost))
        second_keys, columns = _compressed(self.second_keys, second, self.cost.shape[1])
        return Link(self.first, self.second, first_keys, second_keys, self.cost[np.ix_(rows, columns)])

    def table(self) -> Table:
        """The cost of every pair of values."""
        rows = self.cost[self.first_keys].min(axis=1)
        return np.asarray(rows[:, self.second_keys].min(axis=2), dtype=np.float64)


def _compressed(keys: Keys, mask: Mask | None, count: int) -> tuple[Keys, npt.NDArray[np.intp]]:
    """The keys as places among the used ones, and which of the `count` keys these are."""
    kept = keys if mask is None else keys[mask]
    used = np.zeros(count, dtype=bool)
    used[kept] = True
    return (used.cumsum() - 1)[kept], used.nonzero()[0]


@dataclass(frozen=True)
class Hub:
    """The cost of a shared tensor. `ends` are the variable that produces it and those that read it.

    `keys[e]` are the layouts of the values of an end. An end in a group has separate keys for each number of the group,
    one number after the other. `always` are costs by layout of readers that are no variables.
    """

    ends: tuple[int, ...]
    keys: tuple[npt.NDArray[np.intp], ...]
    cost: SharedCost | GroupedCost
    always: tuple[Table, ...] = ()

    def count(self, end: int) -> int:
        """How many keys an end may have."""
        grouped = isinstance(self.cost, GroupedCost) and self.cost.grouped[end]
        return len(self.cost.prices) * (self.cost.count if grouped and isinstance(self.cost, GroupedCost) else 1)


@dataclass
class Network:
    """Variables with a cost per value, links and hubs. `names` are for messages only."""

    costs: list[Table] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    hubs: list[Hub] = field(default_factory=list)

    def add(self, cost: Table, name: str) -> int:
        self.costs.append(cost)
        self.names.append(name)
        return len(self.costs) - 1

    @property
    def sizes(self) -> list[int]:
        return [len(cost) for cost in self.costs]

    def factors(self) -> list[Factor]:
        """The network as plain tables, for elimination. It must have no hubs."""
        unary = [Factor((variable,), cost) for variable, cost in enumerate(self.costs)]
        return unary + [Factor((link.first, link.second), link.table()) for link in self.links]


class _Side:
    """One end of a link: maps costs from values to keys and back, taking the cheapest."""

    def __init__(self, variable: int, keys: Keys, count: int) -> None:
        self.variable = variable
        self.keys = keys[:, 0] if keys.shape[1] == 1 else keys
        self._count = count

    @cached_property
    def _groups(self) -> tuple[Keys, Keys, Keys] | None:
        """The values sorted by key, where each key begins among them, and the keys; None if no values share a key."""
        flat = self.keys.ravel()
        order = flat.argsort(kind="stable")
        ordered = flat[order]
        begins = np.ones(len(flat), dtype=bool)
        np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
        (starts,) = begins.nonzero()
        if self.keys.ndim == 1:
            return None if len(starts) == len(flat) else (order, starts, ordered[starts])
        return order // self.keys.shape[1], starts, ordered[starts]

    def collapse(self, costs: Table) -> Table:
        """The cost of the cheapest value of each key."""
        result = np.empty(self._count)
        result.fill(np.inf)
        if self._groups is None:
            result[self.keys] = costs
        elif self.keys.size:
            values, starts, keys = self._groups
            result[keys] = np.minimum.reduceat(costs[values], starts)
        return result

    def expand(self, costs: Table) -> Table:
        """The cost of the cheapest key of each value."""
        found = costs[self.keys]
        return found if found.ndim == 1 else np.minimum.reduce(found, axis=1)


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
            reached = np.minimum.reduce(collapsed[:, None] + self.cost, axis=0)
        else:
            reached = np.minimum.reduce(self.cost + collapsed[None, :], axis=1)
        return self.ends[1 - end].expand(reached)


_FARTHEST = 1e6
"""Upper limit of a message, in seconds: no plan takes that long. It stands for impossible and keeps messages finite."""


class _Joint:
    """A hub with its messages: `moved` is what it has moved to each end, by value, and `said` what each end says, by
    layout.

    `lowest` is the minimum of the hub's part of the cost in the last bound.
    """

    def __init__(self, hub: Hub) -> None:
        self.cost = hub.cost
        self.always = hub.always
        ends = enumerate(zip(hub.ends, hub.keys, strict=True))
        self.ends = [_Side(variable, keys[:, None], hub.count(end)) for end, (variable, keys) in ends]
        self.moved = [np.zeros(len(keys)) for keys in hub.keys]
        self.lowest = 0.0
        self.said = [end.collapse(np.zeros(len(keys))) for end, keys in zip(self.ends, hub.keys, strict=True)]

    def least(self, said: Sequence[Table]) -> list[Table]:
        """By end, the least total with each layout there."""
        return self.cost.least(said[0], [*said[1:], *self.always])[: len(self.ends)]

    def send(self, ends: Sequence[int], parts: int) -> None:
        """Moves to each of these ends an equal part of what the other ends say."""
        if list(ends) == [0]:
            least = [self.cost.least_produced(self.said[0], [*self.said[1:], *self.always])]
        else:
            least = self.least(self.said)
        for end in ends:
            known = np.isfinite(self.said[end])
            message = np.where(known, least[end] / parts - np.where(known, self.said[end], 0.0), np.inf)
            if np.isfinite(lowest := np.minimum.reduce(message)):
                self.moved[end] = self.ends[end].expand(np.minimum(message - lowest, _FARTHEST))


@dataclass(frozen=True)
class Shares:
    """The network's cost as a sum of parts: what each variable keeps, and what its ends give to each link and hub."""

    kept: list[Table]
    links: list[list[Table]]
    hubs: list[list[Table]]


class Relaxation:
    """A lower bound on a network's minimum, raised by moving costs between links and variables.

    Any state of the messages writes the same total cost as a sum of parts. The sum of the parts' minima is therefore a
    lower bound, however the messages were found. Sequential tree-reweighted message passing (Kolmogorov 2006) finds
    them, in an order in which producers come before readers. A hub is then like a variable right after its producer.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.edges = [_Edge(link) for link in network.links]
        self.joints = [_Joint(hub) for hub in network.hubs]
        self.rank = _ranks(network)
        self.incident: list[list[tuple[_Edge, int, int]]] = [[] for _ in network.costs]
        for edge in self.edges:
            first, second = edge.ends[0].variable, edge.ends[1].variable
            self.incident[first].append((edge, 0, self.rank[second]))
            self.incident[second].append((edge, 1, self.rank[first]))
        self.joined: list[list[tuple[_Joint, int, int]]] = [[] for _ in network.costs]
        for joint in self.joints:
            rank = self._rank(joint)
            for end, side in enumerate(joint.ends):
                self.joined[side.variable].append((joint, end, rank))
        linked = [
            variable for variable in range(len(network.costs)) if self.incident[variable] or self.joined[variable]
        ]
        entries: list[int | _Joint] = [*linked, *self.joints]
        self._order = sorted(
            entries,
            key=lambda entry: self._rank(entry) if isinstance(entry, _Joint) else self.rank[entry],
        )
        self._receivers = {
            variable: (self._beyond(variable, False), self._beyond(variable, True)) for variable in linked
        }
        self._parts = [1] * len(network.costs)
        for variable, both in self._receivers.items():
            self._parts[variable] = max(1, *(len(edges) + len(joints) for edges, joints in both))
        self._drop_impossible()

    def adopt(self, before: Relaxation, kept: Sequence[Mask]) -> None:
        """Continues from the messages of a larger network, whose `kept` values this one has. Any messages are sound."""
        for old, new in zip(before.edges, self.edges, strict=True):
            new.moved = [m[kept[side.variable]] for m, side in zip(old.moved, old.ends, strict=True)]
        for old_joint, joint in zip(before.joints, self.joints, strict=True):
            joint.moved = [m[kept[side.variable]] for m, side in zip(old_joint.moved, old_joint.ends, strict=True)]
        for variable, joined in enumerate(self.joined):
            if not joined:
                continue
            share = self.settled(variable) / self._parts[variable]
            for joint, end, _ in joined:
                joint.said[end] = joint.ends[end].collapse(share - joint.moved[end])

    def _rank(self, joint: _Joint) -> int:
        """Right after the producer: variables have even ranks."""
        return self.rank[joint.ends[0].variable] + 1

    def _drop_impossible(self) -> None:
        """Gives values an infinite cost that fit no value of a linked variable, until none is left. The same holds for
        hubs whose readers may ask for nothing.
        """
        while True:
            self._drop_unlinked()
            dropped = [self._drop_from(joint) for joint in self.joints if joint.cost.is_partial]
            if not any(dropped):
                return

    def _drop_from(self, joint: _Joint) -> bool:
        """Drops values that fit nothing at the other ends of a hub. Returns whether there were any."""
        costs, dropped = self.network.costs, False
        said = [end.collapse(np.where(np.isfinite(costs[end.variable]), 0.0, np.inf)) for end in joint.ends]
        for end, least in zip(joint.ends, joint.least(said), strict=True):
            cost, reached = costs[end.variable], np.isfinite(end.expand(least))
            if (np.isfinite(cost) & ~reached).any():
                costs[end.variable], dropped = np.where(reached, cost, np.inf), True
        return dropped

    def _drop_unlinked(self) -> None:
        costs = self.network.costs
        queue = [variable for variable, incident in enumerate(self.incident) if incident]
        waiting = set(queue)
        while queue:
            variable = heappop(queue)
            waiting.remove(variable)
            for edge, end, _ in self.incident[variable]:
                other = edge.ends[1 - end].variable
                reached = np.isfinite(edge.cheapest(end, costs[variable]))
                if (np.isfinite(costs[other]) & ~reached).any():
                    costs[other] = np.where(reached, costs[other], np.inf)
                    if other not in waiting:
                        waiting.add(other)
                        heappush(queue, other)

    def settled(self, variable: int) -> Table:
        """The variable's cost plus what its links and hubs have moved to it."""
        total = self.network.costs[variable].copy()
        for edge, end, _ in self.incident[variable]:
            total += edge.moved[end]
        for joint, end, _ in self.joined[variable]:
            total += joint.moved[end]
        return total

    def sweep(self) -> None:
        """One pass through the variables and one back."""
        for forward in (True, False):
            check_end()
            for entry in self._order if forward else reversed(self._order):
                if isinstance(entry, _Joint):
                    self._send_joint(entry, forward)
                else:
                    self._send(entry, forward)

    def _send(self, variable: int, forward: bool) -> None:
        edges, joints = self._receivers[variable][forward]
        if not edges and not joints:
            return
        share = self.settled(variable) / self._parts[variable]
        for edge, end in edges:
            message = edge.cheapest(end, share - edge.moved[end])
            least = np.minimum.reduce(message)
            if np.isfinite(least):
                edge.moved[1 - end] = np.minimum(message - least, _FARTHEST)
        for joint, end in joints:
            joint.said[end] = joint.ends[end].collapse(share - joint.moved[end])

    def _send_joint(self, joint: _Joint, forward: bool) -> None:
        rank = self._rank(joint)
        later = [self.rank[side.variable] > rank for side in joint.ends]
        chosen = [end for end, after in enumerate(later) if after == forward]
        if chosen:
            joint.send(chosen, max(1, sum(later), len(later) - sum(later)))

    def _beyond(self, variable: int, forward: bool) -> tuple[list[tuple[_Edge, int]], list[tuple[_Joint, int]]]:
        """The links and hubs that come after a variable, or before it, each with the end that the variable is."""
        rank = self.rank[variable]
        edges = [(edge, end) for edge, end, other in self.incident[variable] if (other > rank) == forward]
        joints = [(joint, end) for joint, end, other in self.joined[variable] if (other > rank) == forward]
        return edges, joints

    def shares(self) -> Shares:
        """Splits the cost into parts. A variable gives a share of its settled cost to each link and hub before it, and
        keeps the rest.
        """
        kept = []
        every: list[_Edge | _Joint] = [*self.edges, *self.joints]
        # Impossible values are infinite in every part: their messages end at _FARTHEST, which would look possible.
        impossible = [~np.isfinite(cost) for cost in self.network.costs]
        given = {id(part): [-moved for moved in part.moved] for part in every}
        for whole in every:
            for side, costs in zip(whole.ends, given[id(whole)], strict=True):
                costs[impossible[side.variable]] = np.inf
        for variable in range(len(self.network.costs)):
            entries = (*self.incident[variable], *self.joined[variable])
            if not entries:
                kept.append(self.network.costs[variable])
                continue
            settled, parts, rank = self.settled(variable), self._parts[variable], self.rank[variable]
            earlier = [entry for entry in entries if entry[2] < rank]
            for part, end, _ in earlier:
                given[id(part)][end] = given[id(part)][end] + settled / parts
            left = 1 - len(earlier) / parts
            kept.append(settled * left if left else np.where(np.isfinite(settled), 0.0, np.inf))
        return Shares(kept, [given[id(edge)] for edge in self.edges], [given[id(joint)] for joint in self.joints])

    def bound(self) -> tuple[float, list[Table]]:
        """A lower bound, and by value of each variable, how much more any assignment with that value costs at least."""
        parts = self.shares()
        lower = 0.0
        slacks = []
        for cost in parts.kept:
            least = cost.min()
            lower += float(least)
            slacks.append(cost - least if np.isfinite(least) else cost)
        for edge, ends in zip(self.edges, parts.links, strict=True):
            margins = [(edge.ends[end].variable, edge.cheapest(1 - end, ends[1 - end]) + ends[end]) for end in (0, 1)]
            lower += _add_margins(slacks, margins)
        for joint, ends in zip(self.joints, parts.hubs, strict=True):
            joint.lowest = _add_margins(slacks, list(_joint_margins(joint, ends)))
            lower += joint.lowest
        return lower, slacks


def _joint_margins(joint: _Joint, given: Sequence[Table]) -> Iterator[tuple[int, Table]]:
    """By variable, the least cost of a hub with each of its values. A variable that reads twice has the greater of
    both.
    """
    said = [side.collapse(costs) for side, costs in zip(joint.ends, given, strict=True)]
    found: dict[int, Table] = {}
    for side, least, own, costs in zip(joint.ends, joint.least(said), said, given, strict=True):
        others = np.where(np.isfinite(own), least - np.where(np.isfinite(own), own, 0.0), np.inf)
        margin = side.expand(others) + costs
        found[side.variable] = np.maximum(found.get(side.variable, -np.inf), margin)
    yield from found.items()


def _add_margins(slacks: list[Table], margins: Sequence[tuple[int, Table]]) -> float:
    """Adds to `slacks` how much more than its minimum a part costs with each value. Returns the minimum."""
    least = max(float(margin.min()) for _, margin in margins)
    for variable, margin in margins:
        slacks[variable] += margin - least if np.isfinite(least) else margin
    return least


def _ranks(network: Network) -> list[int]:
    """An even number per variable: producers before readers where links define an order, otherwise by number."""
    after: list[list[int]] = [[] for _ in network.costs]
    for link in network.links:
        after[link.first].append(link.second)
    for hub in network.hubs:
        after[hub.ends[0]] += hub.ends[1:]
    order: list[int] = []
    state = [0] * len(after)
    for start in reversed(range(len(after))):
        pending = [start]
        while pending:
            variable = pending[-1]
            if state[variable] == 0:
                state[variable] = 1
                pending += [other for other in sorted(after[variable], reverse=True) if state[other] == 0]
                continue
            pending.pop()
            if state[variable] == 1:
                state[variable] = 2
                order.append(variable)
    rank = [0] * len(after)
    for place, variable in enumerate(reversed(order)):
        rank[variable] = 2 * place
    return rank

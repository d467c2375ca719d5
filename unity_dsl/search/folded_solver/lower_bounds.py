"""Lower bounds on problems with repeats, and the reduced cost of every value.

A body that is executed N times costs at least `N * least + h(first layout) - h(last layout)`. Here `h` is any potential
of the carried layouts. `least` is a lower bound of one body with `h` added at its exit and subtracted at its entry. The
potentials cancel from each iteration to the next. A value that costs one iteration more than the gap between the best
known plan and the bound is in no optimal plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..cost_network.bucket_elimination import Table, TooLarge
from ..cost_network.message_passing import Hub, Link, Mask, Network, Relaxation, Shares
from ..cost_network.shared_conversions import MOST_READERS, GroupedCost, SharedCost
from .materialised_layouts import MOST_MATERIALISED, always, conversion_link, unary
from .problem_part import Domains, Layouts, Limits, Part, Port, Tensor

_MOST = 1 << 20
"""Prices that one message of a hub may look at. With more layouts, fewer readers are joined in a hub."""


@dataclass(frozen=True)
class Sharing:
    """A shared tensor by number, the layouts that the tables of its hubs are about, and the numbers of its hubs."""

    tensor: int
    layouts: Layouts
    hubs: range


@dataclass
class Bound:
    """A lower bound of a part. `least` bounds one execution with the potentials of its ports. `slacks` give, by value
    of each variable, the least additional cost with that value (infinite if it is excluded). `masks` are the bounded
    domain.
    """

    least: float
    slacks: list[Table]
    entries: tuple[Table, ...]
    captured: tuple[Table, ...]
    bodies: list[Bound]
    counts: tuple[int, ...]
    relaxation: Relaxation
    shared: list[Sharing]
    masks: list[Mask]

    def within(self, domains: Domains, gap: float, *, steadily: bool = False) -> Domains:
        """The domains without everything that costs more than `gap` above the bound. In a body one iteration alone must
        cost that much more, or, if `steadily`, all iterations together.
        """
        masks = [mask & (slack <= gap) for mask, slack in zip(domains.masks, self.slacks, strict=True)]
        inner = [
            bound.within(body, gap / count if steadily else gap, steadily=steadily)
            for bound, body, count in zip(self.bodies, domains.bodies, self.counts, strict=True)
        ]
        return Domains(masks, inner)


def bound_part(part: Part, domains: Domains, sweeps: int, before: Bound | None = None) -> Bound:
    """A lower bound of a part. It continues from the bound `before` of a domain that contains this one."""
    earlier: Sequence[Bound | None] = before.bodies if before is not None else [None] * len(part.repeats)
    bodies = [
        bound_part(repeat.body, body, sweeps, inner)
        for repeat, body, inner in zip(part.repeats, domains.bodies, earlier, strict=True)
    ]
    network = Network()
    for cost, name, mask in zip(part.costs, part.names, domains.masks, strict=True):
        network.add(cost[mask], name)
    for repeat, body in zip(part.repeats, bodies, strict=True):
        for port, potential in zip(repeat.initial, body.entries, strict=True):
            _charge(network, domains, port, potential)
        for port, potential in zip(repeat.results, body.entries, strict=True):
            _charge(network, domains, port, -potential)
        for port, potential in zip(repeat.captured, body.captured, strict=True):
            _charge(network, domains, port, repeat.count * potential)
    shared = _add_conversions(part, domains, network, before.shared if before is not None else None)
    entries = before.entries if before is not None else _carried_potentials(part, domains, network, sweeps)
    for entry, exit_, potential in zip(part.entries, part.exits, entries, strict=True):
        _charge(network, domains, entry, -potential)
        _charge(network, domains, exit_, potential)
    relaxation = Relaxation(network)
    if before is not None:
        kept = [mask[old] for mask, old in zip(domains.masks, before.masks, strict=True)]
        relaxation.adopt(before.relaxation, kept)
    for _ in range(sweeps):
        relaxation.sweep()
    captured = tuple(_settle_captured(relaxation, domains.inside(port)) for port in part.captured)
    lower, slacks = relaxation.bound()
    lower += sum(repeat.count * body.least for repeat, body in zip(part.repeats, bodies, strict=True))
    spread = [_spread(mask, slack) for mask, slack in zip(domains.masks, slacks, strict=True)]
    counts = tuple(repeat.count for repeat in part.repeats)
    return Bound(lower, spread, entries, captured, bodies, counts, relaxation, shared, domains.masks)


def _spread(mask: np.ndarray, slack: Table) -> Table:
    result = np.full(len(mask), np.inf)
    result[mask] = slack
    return result


def _charge(network: Network, domains: Domains, port: Port, potential: Table) -> None:
    """Adds a cost by layout to the variable that decides the layout."""
    network.costs[port.variable] = network.costs[port.variable] + potential[domains.inside(port).layouts]


def _add_conversions(part: Part, domains: Domains, network: Network, before: Sequence[Sharing] | None) -> list[Sharing]:
    """Adds a link for a conversion with one reader, and hubs where it may be shared: the same number as in `before`."""
    shared: list[Sharing] = []
    for number, tensor in enumerate(part.tensors):
        if tensor.shared:
            groups = None if before is None else len(before[len(shared)].hubs)
            layouts, hubs = _hubs(tensor, domains, groups)
            shared.append(Sharing(number, layouts, range(len(network.hubs), len(network.hubs) + len(hubs))))
            network.hubs += hubs
        elif tensor.reads:
            network.links.append(_restricted(conversion_link(tensor, tensor.reads[0]), domains))
        else:
            _charge(network, domains, tensor.produced, unary(tensor))
    return shared


def _hubs(tensor: Tensor, domains: Domains, groups: int | None) -> tuple[Layouts, list[Hub]]:
    """The tensor's conversions, between the layouts that it is produced in and those that some reader asks for.

    Many readers are split into groups, each at a share of the prices. Together the groups pay no more than all readers
    do.
    """
    produced, *reads = (_End.of(tensor, number, domains) for number in (0, *_distinct(tensor.reads)))
    used = [*(end.layouts for end in (produced, *reads)), np.array(tensor.fixed, dtype=np.intp)]
    layouts = tensor.closed(np.concatenate(used))
    readers: list[_End | Table] = [*reads, *(cost[layouts] for cost in always(tensor))]
    most = int(np.clip(np.log2(_MOST / len(layouts) ** 2), 2, MOST_READERS))
    count = groups or -(-len(readers) // most)
    hubs = []
    for group in (readers[i::count] for i in range(count)):
        share = len(group) / len(readers)
        joined = [produced, *(reader for reader in group if isinstance(reader, _End))]
        cost: SharedCost | GroupedCost = tensor.cost(layouts, share if count > 1 else 1.0)
        grouped = tuple(end.common is not None for end in joined)
        if sum(grouped) > 1:
            cost = GroupedCost(tensor.cost(layouts, share if count > 1 else 1.0), grouped, tensor.numbers)
        keys = tuple(end.keys(layouts, isinstance(cost, GroupedCost)) for end in joined)
        others = tuple(reader for reader in group if not isinstance(reader, _End))
        hubs.append(Hub(tuple(end.variable for end in joined), keys, cost, others))
    return layouts, hubs


@dataclass(frozen=True)
class _End:
    """An end of a tensor: the layouts of its variable's values that are left, and their numbers in a group, if any."""

    variable: int
    layouts: Layouts
    common: Layouts | None

    @staticmethod
    def of(tensor: Tensor, number: int, domains: Domains) -> _End:
        port = (tensor.produced, *tensor.reads)[number]
        mask, common = domains.masks[port.variable], tensor.common[number] if tensor.common else None
        return _End(port.variable, port.layouts[mask], None if common is None else common[mask])

    def keys(self, layouts: Layouts, grouped: bool) -> Layouts:
        """The places of its values' layouts. In a group, each number of the group has its own range of places."""
        places = np.searchsorted(layouts, self.layouts)
        return places + self.common * len(layouts) if grouped and self.common is not None else places


def _distinct(reads: Sequence[Port]) -> Iterator[int]:
    """The numbers of a tensor's reading ends, from 1 on: only the first of those that always ask for the same."""
    for number, port in enumerate(reads):
        earlier = (other for other in reads[:number] if other.variable == port.variable)
        if not any(np.array_equal(port.layouts, other.layouts) for other in earlier):
            yield 1 + number


def _restricted(link: Link, domains: Domains) -> Link:
    return link.restricted(domains.masks[link.first], domains.masks[link.second])


def _carried_potentials(part: Part, domains: Domains, network: Network, sweeps: int) -> tuple[Table, ...]:
    """Potentials of the carried layouts, from a body whose exit is its own entry.

    They are the messages that a relaxation of that loop sends along it. Any potentials are valid; these make the bound
    tight.
    """
    if not part.entries:
        return ()
    loop = Network(list(network.costs), network.names, list(network.links))
    loops = []
    for entry, exit_ in zip(map(domains.inside, part.entries), map(domains.inside, part.exits), strict=True):
        steady = np.isin(entry.layouts, exit_.layouts)
        loop.costs[entry.variable] = np.where(steady, loop.costs[entry.variable], np.inf)
        if entry.variable != exit_.variable:
            same = np.where(np.eye(entry.count, dtype=bool), 0.0, np.inf)
            keys = entry.layouts[:, None], exit_.layouts[:, None]
            loop.links.append(Link(entry.variable, exit_.variable, *keys, same))
        loops.append((entry, steady, len(loop.links) - 1 if entry.variable != exit_.variable else None))
    relaxation = Relaxation(loop)
    for _ in range(sweeps):
        relaxation.sweep()
    potentials = []
    for entry, steady, link in loops:
        steady &= np.isfinite(loop.costs[entry.variable])
        message = relaxation.edges[link].moved[0] if link is not None else np.zeros(len(entry.layouts))
        potentials.append(_potential(part, entry, steady, message))
    return tuple(potentials)


def _potential(part: Part, entry: Port, steady: np.ndarray, message: Table) -> Table:
    """The cost still to be paid from a carried layout on. A layout that the loop does not keep is first converted to
    one that it keeps. All entries are finite: infinite ones would not cancel, and would exclude layouts from which no
    conversion leads into the loop.
    """
    # After contraction a table may lead from the carried layouts to those of another tensor, perhaps fewer.
    own = (t for t in part.tensors if t.produced.variable == entry.variable and len(t.prices.T) == entry.count)
    tensor = next(own, None)
    if tensor is None or not steady.any():
        return np.zeros(entry.count)
    kept, remaining = entry.layouts[steady], -message[steady]
    potential = (tensor.prices[:, kept] + remaining[None, :]).min(axis=1)
    potential[kept] = remaining
    reached = np.isfinite(potential)
    return np.asarray(np.where(reached, potential, potential[reached].max(initial=-np.inf)), dtype=np.float64)


def _settle_captured(relaxation: Relaxation, port: Port) -> Table:
    """The cost of a captured layout in the body, moved from the body to the variable that chooses the layout."""
    potential = np.full(port.count, np.inf)
    settled = relaxation.settled(port.variable)
    potential[port.layouts] = settled
    relaxation.network.costs[port.variable] = relaxation.network.costs[port.variable] - settled
    return potential


# ------------------------------------------------------------------------------------- choices of held layouts


def limit_materialised(part: Part, bound: Bound, near: Domains, gap: float) -> Limits:
    """The choices of held layouts that fit values of `near` and cost at most `gap` above the bound.

    Raises TooLarge if there are too many.
    """
    parts = bound.relaxation.shares()
    left = [mask[old] for mask, old in zip(near.masks, bound.masks, strict=True)]
    held = {
        shared.tensor: _limit_tensor(part.tensors[shared.tensor], bound.relaxation, shared, parts, left, gap)
        for shared in bound.shared
    }
    inner = [
        limit_materialised(repeat.body, found, body, gap)
        for repeat, found, body in zip(part.repeats, bound.bodies, near.bodies, strict=True)
    ]
    return Limits(held, inner)


def _limit_tensor(
    tensor: Tensor, relaxation: Relaxation, shared: Sharing, parts: Shares, left: Sequence[Mask], gap: float
) -> Layouts:
    """The choices of a tensor's held layouts that its hubs, and the costs that its ends keep, leave."""
    root, readers, seen = np.zeros(len(shared.layouts)), [], set[int]()
    for number in shared.hubs:
        joint = relaxation.joints[number]
        gap += joint.lowest
        said = []
        for side, given in zip(joint.ends, parts.hubs[number], strict=True):
            own = parts.kept[side.variable]
            first = side.variable not in seen
            seen.add(side.variable)
            charged = given + (own - own.min()) if first else given
            collapsed = side.collapse(np.where(left[side.variable], charged, np.inf))
            said.append(collapsed.reshape(-1, len(shared.layouts)).min(axis=0))
        root = root + said[0]
        readers += [*said[1:], *joint.always]
    layouts = tensor.closed(shared.layouts[np.isfinite(np.stack([root, *readers])).any(axis=0)])
    used = np.searchsorted(shared.layouts, layouts)
    cost = tensor.cost(layouts)
    found, count = [], 0
    for held in cost.within(gap, root[used], [reader[used] for reader in readers]):
        found.append(layouts[held])
        count += len(held)
        if count > MOST_MATERIALISED:
            raise TooLarge(count)
    return np.concatenate(found) if found else np.zeros((0, 3), dtype=np.intp)

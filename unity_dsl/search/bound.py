"""Lower bounds on parts with repeats, and what they exclude.

A body that is executed N times costs at least `N * least + h(first layout) - h(last layout)`, where `h` is any
potential of the carried layouts and `least` a lower bound of one body with `h` added at its exit and taken away at its
entry: the potentials cancel from each iteration to the next. What costs one iteration more than the gap between the
best plan known and the bound is in no optimal plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .elimination import Table
from .holding import Holding, add_tensors, conversion_link, held_from, price_held, unary, wanted, with_returns
from .network import Link, Network, Relaxation
from .part import Domains, Layouts, Limits, Part, Port, Tensor


@dataclass
class Bound:
    """`least` bounds one execution with the potentials of its ports; `slacks` say, per value of each variable, how much
    more it costs at least with that value (infinite for excluded ones), `held` the same of choices of held layouts.
    """

    least: float
    slacks: list[Table]
    held: dict[int, tuple[Layouts, Table]]
    entries: tuple[Table, ...]
    captured: tuple[Table, ...]
    bodies: list[Bound]
    counts: tuple[int, ...]
    relaxation: Relaxation
    stars: dict[int, list[int]]

    def within(self, domains: Domains, limits: Limits, gap: float, *, steadily: bool = False) -> tuple[Domains, Limits]:
        """What is left when everything that costs more than `gap` above the bound is excluded: in a body, where one
        iteration does so, or, `steadily`, where all do.
        """
        masks = [mask & (slack <= gap) for mask, slack in zip(domains.masks, self.slacks, strict=True)]
        held = limits.held | {tensor: choices[slack <= gap] for tensor, (choices, slack) in self.held.items()}
        inner = [
            bound.within(body, limit, gap / count if steadily else gap, steadily=steadily)
            for bound, body, limit, count in zip(self.bodies, domains.bodies, limits.bodies, self.counts, strict=True)
        ]
        return Domains(masks, [body for body, _ in inner]), Limits(held, [limit for _, limit in inner])


def bound_part(part: Part, domains: Domains, limits: Limits, sweeps: int, star: bool) -> Bound:
    """A lower bound of a part. With `star` a shared conversion is charged to each reader at an equal share, which is
    never more than sharing costs; otherwise sharing is exact, by variables of held layouts.
    """
    bodies = [
        bound_part(repeat.body, body, limit, sweeps, star)
        for repeat, body, limit in zip(part.repeats, domains.bodies, limits.bodies, strict=True)
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
    stars, holdings = _add_conversions(part, domains, limits, network, star)
    entries = _carried_potentials(part, domains, network, sweeps)
    for entry, exit_, potential in zip(part.entries, part.exits, entries, strict=True):
        _charge(network, domains, entry, -potential)
        _charge(network, domains, exit_, potential)
    relaxation = Relaxation(network)
    for _ in range(sweeps):
        relaxation.sweep()
    captured = tuple(_settle_captured(relaxation, domains.inside(port)) for port in part.captured)
    lower, slacks = relaxation.bound()
    lower += sum(repeat.count * body.least for repeat, body in zip(part.repeats, bodies, strict=True))
    spread = [_spread(mask, slack) for mask, slack in zip(domains.masks, slacks, strict=False)]
    held = {found.tensor: (found.held, slacks[found.variable]) for found in holdings}
    counts = tuple(repeat.count for repeat in part.repeats)
    return Bound(lower, spread, held, entries, captured, bodies, counts, relaxation, stars)


def _spread(mask: np.ndarray, slack: Table) -> Table:
    result = np.full(len(mask), np.inf)
    result[mask] = slack
    return result


def _charge(network: Network, domains: Domains, port: Port, potential: Table) -> None:
    """Adds a cost by layout to the variable that decides the layout."""
    network.costs[port.variable] = network.costs[port.variable] + potential[domains.inside(port).layouts]


def _add_conversions(
    part: Part, domains: Domains, limits: Limits, network: Network, star: bool
) -> tuple[dict[int, list[int]], list[Holding]]:
    if not star:
        return {}, add_tensors(part, domains, network, limits.held)
    stars: dict[int, list[int]] = {}
    for number, tensor in enumerate(part.tensors):
        share = star_share(tensor)
        stars[number] = []
        for read in tensor.reads:
            stars[number].append(len(network.links))
            network.links.append(_restricted(conversion_link(tensor, read, share), domains))
        _charge(network, domains, tensor.produced, star_root(tensor))
    return stars, []


def star_share(tensor: Tensor) -> float:
    """The part of a conversion that each reader is charged, so that all together pay no more than they share."""
    if not tensor.shared:
        return 1.0
    return 1 / (len(tensor.reads) + len(tensor.fixed) + (tensor.leaving is not None))


def star_root(tensor: Tensor) -> Table:
    """What a star charges by the produced layout alone: layouts that are always asked for, and leaving."""
    if not tensor.shared:
        return unary(tensor) if not tensor.reads else np.zeros(len(tensor.direct))
    share = star_share(tensor)
    charged = sum((tensor.cheapest[:, layout] * share for layout in tensor.fixed), np.zeros(len(tensor.direct)))
    if tensor.leaving is not None:
        charged = charged + (tensor.cheapest * share + tensor.leaving[None, :]).min(axis=1)
    return charged


def _restricted(link: Link, domains: Domains) -> Link:
    return link.restricted(domains.masks[link.first], domains.masks[link.second])


def _carried_potentials(part: Part, domains: Domains, network: Network, sweeps: int) -> tuple[Table, ...]:
    """Potentials of the carried layouts, from a body whose exit is its own entry.

    They are the messages that a relaxation of that loop sends along it. Any would do; these make the bound tight.
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
    """What is still to be paid from a carried layout on; from one the loop does not keep, by way of one it does."""
    tensor = next((tensor for tensor in part.tensors if tensor.produced.variable == entry.variable), None)
    if tensor is None or not steady.any():
        return np.zeros(entry.count)
    kept, remaining = entry.layouts[steady], -message[steady]
    potential = (tensor.cheapest[:, kept] + remaining[None, :]).min(axis=1)
    potential[kept] = remaining
    return np.asarray(potential, dtype=np.float64)


def _settle_captured(relaxation: Relaxation, port: Port) -> Table:
    """What a captured layout costs in the body, moved from the body to where the layout is chosen."""
    potential = np.full(port.count, np.inf)
    settled = relaxation.settled(port.variable)
    potential[port.layouts] = settled
    relaxation.network.costs[port.variable] = relaxation.network.costs[port.variable] - settled
    return potential


# ------------------------------------------------------------------------------------- choices of held layouts


def limit_holdings(part: Part, domains: Domains, bound: Bound, gap: float) -> Limits:
    """The choices of held layouts that cost at most `gap` above a bound made of stars, with sharing charged exactly.

    In the bound, the links of one tensor's star give way to the exact price of a choice; what the star had moved to its
    ends is taken back. The rest of the bound stands.
    """
    held = {
        number: _limit_holding(part, domains, bound, number, gap)
        for number, tensor in enumerate(part.tensors)
        if tensor.shared
    }
    inner = [
        limit_holdings(repeat.body, body, found, gap)
        for repeat, body, found in zip(part.repeats, domains.bodies, bound.bodies, strict=True)
    ]
    return Limits(held, inner)


def _limit_holding(part: Part, domains: Domains, bound: Bound, number: int, gap: float) -> Layouts:
    tensor = part.tensors[number]
    produced, reads = domains.inside(tensor.produced), [domains.inside(read) for read in tensor.reads]
    kept, given = bound.relaxation.shares()
    total = -gap
    root = kept[produced.variable] - kept[produced.variable].min()
    seen: set[int] = set()
    reading = []
    for read, link in zip(reads, bound.stars[number], strict=True):
        edge, (first, second) = bound.relaxation.edges[link], given[link]
        total -= float((edge.cheapest(0, first) + second).min())
        root = root + first
        if read.variable not in seen:
            second = second + kept[read.variable] - kept[read.variable].min()
            seen.add(read.variable)
        reading.append(_by_layout(read, second))
    root = root - star_root(tensor)[produced.layouts]
    rooted = _by_layout(produced, root)
    choices = wanted(tensor, reads)
    least = sum(float(by_layout.min()) for by_layout in reading)
    extra = _extra(tensor, reading)
    left = []
    for layout in np.unique(produced.layouts):
        room = -(total + rooted[layout] + least)
        held = held_from(layout, choices[tensor.cheapest[layout, choices] + extra[choices] <= room])
        cost = with_returns(tensor, held, price_held(tensor, held)) + (total + rooted[layout])
        for by_layout in reading:
            cost = cost + by_layout[held].min(axis=1)
        left.append(held[cost <= 0])
    return np.concatenate(left)


def _extra(tensor: Tensor, reading: list[Table]) -> Table:
    """What a further layout costs its readers at least: it is held only if somebody reads it, or to leave."""
    if tensor.leaving is not None:
        return np.zeros(len(tensor.direct))
    extra = np.min([by_layout - by_layout.min() for by_layout in reading], axis=0)
    extra[list(tensor.fixed)] = 0.0
    return np.asarray(extra, dtype=np.float64)


def _by_layout(port: Port, costs: Table) -> Table:
    result = np.full(port.count, np.inf)
    np.minimum.at(result, port.layouts, costs)
    return result

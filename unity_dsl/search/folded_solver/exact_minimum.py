"""Exact minimum of a part on given domains: bucket elimination, with repeats as (min, +) matrix powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import numpy as np

from ..cost_network.bucket_elimination import (
    LARGEST_WORK,
    Elimination,
    Factor,
    Table,
    TooLarge,
    eliminate,
    elimination_order,
)
from ..cost_network.message_passing import Network
from ..search_end import check_end
from .materialised_layouts import add_tensors
from .problem_part import Domains, Layouts, Limits, Part, Port, Repeat

LARGEST_POWER = 1 << 27
"""Sums in the squarings of a body's table; `TooLarge` is raised if there are more."""
_AT_ONCE = 1 << 15
"""Entries of tables that are squared together."""


@dataclass(frozen=True)
class Solved:
    """The chosen value of every variable of a part, and per repeat the plan of each iteration."""

    values: tuple[int, ...]
    repeats: tuple[tuple[Solved, ...], ...] = ()


class Solver:
    """Exact minimum of a part on domains. `table` is the cost by layouts at the ports, `solution` a plan that attains
    an entry.

    Tables are made on first use.
    """

    def __init__(
        self, part: Part, domains: Domains, limits: Limits, steadily: bool = False, most: int = LARGEST_WORK
    ) -> None:
        """Raises TooLarge, before any table is made, if the tables of a part or of a body would have more than `most`
        entries together. If `steadily`, all iterations of a repeat do the same.
        """
        self.part = part
        self.kept_values = [np.flatnonzero(mask) for mask in domains.masks]
        self._network = Network()
        for cost, name, mask in zip(part.costs, part.names, domains.masks, strict=True):
            self._network.add(cost[mask], name)
        add_tensors(part, domains, self._network, limits.materialised)
        self._borders = _borders(part, domains, steadily)
        self.layouts = list(map(_common, self._borders))
        self._sizes = [*self._network.sizes, *map(len, self.layouts)]
        self.kept = list(range(len(self._network.sizes), len(self._sizes)))
        self._matches = [
            (port, Port(variable, choices, port.count))
            for border, variable, choices in zip(self._borders, self.kept, self.layouts, strict=True)
            for port in border
        ]
        self._repeated = [
            self._ports(repeat, body, domains, steadily)
            for repeat, body in zip(part.repeats, domains.bodies, strict=True)
        ]
        scopes: list[tuple[int, ...]] = [(link.first, link.second) for link in self._network.links]
        scopes += [_scope(pair) for pair in self._matches]
        scopes += list(map(_scope, self._repeated))
        self._order = elimination_order(self._sizes, scopes, self.kept, most)
        self.bodies = [
            Solver(repeat.body, body, limit, steadily, most)
            for repeat, body, limit in zip(part.repeats, domains.bodies, limits.bodies, strict=True)
        ]
        kind = Steady if steadily else Powers
        self.powers = [kind(repeat, body) for repeat, body in zip(part.repeats, self.bodies, strict=True)]

    def _ports(self, repeat: Repeat, body: Domains, domains: Domains, steadily: bool) -> list[Port]:
        """The ports of a repeat's table. If `steadily`, one new variable for each carried value replaces both ends."""
        initial, results, captured = (
            list(map(domains.inside, ports)) for ports in (repeat.initial, repeat.results, repeat.captured)
        )
        if not steadily:
            return [*initial, *results, *captured]
        states = []
        for border, first, last in zip(_borders(repeat.body, body, steadily), initial, results, strict=False):
            states.append(Port(len(self._sizes), _common(border), first.count))
            self._sizes.append(len(states[-1].layouts))
            self._matches += [(first, states[-1]), (last, states[-1])]
        return [*states, *captured]

    @cached_property
    def elimination(self) -> Elimination:
        factors = self._network.factors()
        for ports, powers in zip(self._repeated, self.powers, strict=True):
            factors.append(_port_factor(ports, powers.table, powers.layouts))
        for first, second in self._matches:
            match = np.where(first.layouts[:, None] == second.layouts[None, :], 0.0, np.inf)
            factors.append(Factor((first.variable, second.variable), match))
        return eliminate(self._sizes, factors, self.kept, self._order)

    @property
    def table(self) -> Table:
        return self.elimination.table

    def solution(self, ports: Sequence[int] = ()) -> Solved:
        """The plan of least cost, given the layouts at the ports. Deterministic: ties go to the first value."""
        given = {
            variable: int(np.searchsorted(choices, layout))
            for variable, choices, layout in zip(self.kept, self.layouts, ports, strict=True)
        }
        assignment = self.elimination.assignment(given)
        values = tuple(int(kept[assignment[i]]) for i, kept in enumerate(self.kept_values))
        repeats = []
        for repeat, powers in zip(self.part.repeats, self.powers, strict=True):
            found = [
                [int(port.layouts[values[port.variable]]) for port in ports]
                for ports in (repeat.initial, repeat.results, repeat.captured)
            ]
            repeats.append(powers.solution(*found))
        return Solved(values, tuple(repeats))


def _borders(part: Part, domains: Domains, steadily: bool) -> list[tuple[Port, ...]]:
    """The ports of a body, grouped if they must have the same layout: both ends of what is carried, if `steadily`."""
    entries, exits, captured = (list(map(domains.inside, p)) for p in (part.entries, part.exits, part.captured))
    carried = list(zip(entries, exits, strict=True)) if steadily else [(port,) for port in (*entries, *exits)]
    return [*carried, *((port,) for port in captured)]


def _common(ports: Sequence[Port]) -> Layouts:
    """The layouts that every one of these ports can have."""
    return reduce(np.intersect1d, [np.unique(port.layouts) for port in ports])


def _scope(ports: Sequence[Port]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(port.variable for port in ports))


def _port_factor(ports: Sequence[Port], table: Table, layouts: Sequence[Layouts]) -> Factor:
    """Turns a table over layouts into one over the variables that decide them. One variable may decide several."""
    scope = _scope(ports)
    if not ports:  # a body whose tensors have one layout each
        return Factor(scope, table)
    index = []
    for port, choices in zip(ports, layouts, strict=True):
        place = np.searchsorted(choices, port.layouts)
        place = np.where(np.isin(port.layouts, choices), place, len(choices))
        shape = [1] * len(scope)
        shape[scope.index(port.variable)] = len(place)
        index.append(place.reshape(shape))
    padded = np.pad(table, [(0, 1)] * table.ndim, constant_values=np.inf)
    return Factor(scope, padded[tuple(index)])


class Steady:
    """A body executed several times, where all iterations do the same: a multiple of its table."""

    def __init__(self, repeat: Repeat, body: Solver) -> None:
        self.repeat = repeat
        self.body = body
        self.layouts = tuple(body.layouts)

    @property
    def table(self) -> Table:
        return self.body.table * self.repeat.count

    def solution(self, initial: Sequence[int], results: Sequence[int], captured: Sequence[int]) -> tuple[Solved, ...]:
        """The plan of each iteration, given the layouts at both ends, which are the same."""
        return (self.body.solution((*initial, *captured)),) * self.repeat.count


class Powers:
    """A body executed several times: powers of its table in the (min, +) semiring, over the carried layouts."""

    def __init__(self, repeat: Repeat, body: Solver) -> None:
        """Raises TooLarge."""
        self.repeat = repeat
        self.body = body
        carried = len(repeat.initial)
        ends = body.layouts[:carried], body.layouts[carried : 2 * carried]
        self.states = [np.union1d(entry, exit_) for entry, exit_ in zip(*ends, strict=True)]
        captured = body.layouts[2 * carried :]
        self.layouts = (*self.states, *self.states, *captured)
        self.count = prod(len(state) for state in self.states)
        between = prod(len(np.intersect1d(entry, exit_)) for entry, exit_ in zip(*ends, strict=True))
        sums = between**2 * (self.count + between * repeat.count.bit_length()) + between * self.count**2
        work = prod(map(len, captured)) * sums
        if work > LARGEST_POWER:
            raise TooLarge(work)

    @cached_property
    def step(self) -> Table:
        """Shape [captured, states, states]."""
        table = np.full(tuple(map(len, self.layouts)), np.inf)
        places = (np.searchsorted(a, b) for a, b in zip(self.layouts, self.body.layouts, strict=True))
        table[np.ix_(*places)] = self.body.table
        return np.ascontiguousarray(np.moveaxis(table.reshape(self.count, self.count, -1), -1, 0))

    @cached_property
    def table(self) -> Table:
        some = max(1, _AT_ONCE // self.count**2)
        blocks = [self.step[low : low + some] for low in range(0, len(self.step), some)]
        powered = np.concatenate([open_power(block, self.repeat.count) for block in blocks])
        return np.moveaxis(powered, 0, -1).reshape(tuple(map(len, self.layouts)))

    def solution(self, initial: Sequence[int], results: Sequence[int], captured: Sequence[int]) -> tuple[Solved, ...]:
        """The plan of each iteration, given the layouts at both ends. A carried layout is kept where that costs no
        more.
        """
        step = self.step[self._number(captured, self.layouts[2 * len(self.states) :])]
        ahead = [np.full(self.count, np.inf)]
        ahead[0][self._number(results, self.states)] = 0.0
        for _ in range(self.repeat.count - 1):
            ahead.append((step + ahead[-1][None, :]).min(axis=1))
        state = self._number(initial, self.states)
        found: dict[tuple[int, int], Solved] = {}
        solved = []
        for rest in reversed(ahead):
            costs = step[state] + rest
            best = costs.min()
            following = state if costs[state] <= best * (1 + 1e-12) else int(np.argmin(costs))
            if (state, following) not in found:
                ends = (*self._layouts(state), *self._layouts(following), *captured)
                found[state, following] = self.body.solution(ends)
            solved.append(found[state, following])
            state = following
        return tuple(solved)

    def _number(self, chosen: Sequence[int], choices: Sequence[Layouts]) -> int:
        number = 0
        for layout, among in zip(chosen, choices, strict=True):
            number = number * len(among) + int(np.searchsorted(among, layout))
        return number

    def _layouts(self, state: int) -> tuple[int, ...]:
        places = np.unravel_index(state, tuple(map(len, self.states))) if self.states else ()
        return tuple(int(choices[place]) for choices, place in zip(self.states, places, strict=True))


def open_power(step: Table, count: int) -> Table:
    """`power` of tables in which few states can be both entered and left: only these can be between two steps. Shape
    [..., n, n].
    """
    possible = np.isfinite(step.reshape(-1, *step.shape[-2:]))
    between = np.flatnonzero(possible.any(axis=(0, 2)) & possible.any(axis=(0, 1)))
    if count < 2 or len(between) == step.shape[-1]:
        return power(step, count)
    first, last = step[..., between], step[..., between, :]
    if count > 2:
        first = _product(first, power(step[..., between[:, None], between], count - 2))
    return _product(first, last)


def power(step: Table, count: int) -> Table:
    """The count-th power of square tables in the (min, +) semiring, by repeated squaring. Shape [..., n, n]."""
    result: Table | None = None
    while True:
        if count & 1:
            result = step if result is None else _product(result, step)
        count >>= 1
        if not count:
            assert result is not None
            return result
        step = _product(step, step)


def _product(left: Table, right: Table) -> Table:
    """The product of tables in the (min, +) semiring. Shapes [..., i, j] and [..., j, k]."""
    result = np.full((*left.shape[:-1], right.shape[-1]), np.inf)
    sums = np.empty_like(result)
    for middle in range(left.shape[-1]):
        check_end()
        np.add(left[..., :, middle, None], right[..., None, middle, :], out=sums)
        np.minimum(result, sums, out=result)
    return result

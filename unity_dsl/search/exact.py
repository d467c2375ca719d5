"""The exact optimum of a part on given domains: by elimination, repeats being powers of their body's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from .elimination import Factor, Table, TooLarge, eliminate, elimination_order
from .holding import add_tensors
from .network import Network
from .part import Domains, Layouts, Limits, Part, Port, Repeat

LARGEST_POWER = 1 << 27
"""Sums in the squarings of a body's table; beyond it `TooLarge` is raised."""


@dataclass(frozen=True)
class Solved:
    """The chosen value of every variable of a part, and per repeat the plan of each iteration."""

    values: tuple[int, ...]
    repeats: tuple[tuple[Solved, ...], ...] = ()


class Solver:
    """Exact minimum of a part on domains. `table` is the cost by ports, `solution` a plan that attains an entry."""

    def __init__(self, part: Part, domains: Domains, limits: Limits, steadily: bool = False) -> None:
        """Raises TooLarge, where it can before any table is made. See Powers for `steadily`."""
        self.part = part
        self.domains = domains
        self.kept_values = [np.flatnonzero(mask) for mask in domains.masks]
        network = Network()
        for cost, name, mask in zip(part.costs, part.names, domains.masks, strict=True):
            network.add(cost[mask], name)
        add_tensors(part, domains, network, limits.held)
        repeats = [
            [domains.inside(port) for port in (*repeat.initial, *repeat.results, *repeat.captured)]
            for repeat in part.repeats
        ]
        borders = [domains.inside(port) for port in (*part.entries, *part.exits, *part.captured)]
        self.layouts = [np.unique(port.layouts) for port in borders]
        sizes = [*network.sizes, *map(len, self.layouts)]
        self.kept = list(range(len(network.sizes), len(sizes)))
        scopes: list[tuple[int, ...]] = [(link.first, link.second) for link in network.links]
        scopes += [tuple(dict.fromkeys(port.variable for port in ports)) for ports in repeats]
        scopes += [(port.variable, variable) for port, variable in zip(borders, self.kept, strict=True)]
        elimination_order(sizes, scopes, self.kept)
        self.bodies = [
            Solver(repeat.body, body, limit, steadily)
            for repeat, body, limit in zip(part.repeats, domains.bodies, limits.bodies, strict=True)
        ]
        self.powers = [Powers(repeat, body, steadily) for repeat, body in zip(part.repeats, self.bodies, strict=True)]
        factors = network.factors()
        for ports, powers in zip(repeats, self.powers, strict=True):
            factors.append(_port_factor(ports, powers.table, powers.layouts))
        for port, variable, choices in zip(borders, self.kept, self.layouts, strict=True):
            match = np.where(port.layouts[:, None] == choices[None, :], 0.0, np.inf)
            factors.append(Factor((port.variable, variable), match))
        self.elimination = eliminate(sizes, factors, self.kept)
        self.table: Table = self.elimination.table

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


def _port_factor(ports: Sequence[Port], table: Table, layouts: Sequence[Layouts]) -> Factor:
    """A table over layouts as a table over the variables that decide them; a variable may decide several."""
    scope = tuple(dict.fromkeys(port.variable for port in ports))
    index = []
    for port, choices in zip(ports, layouts, strict=True):
        place = np.searchsorted(choices, port.layouts)
        place = np.where(np.isin(port.layouts, choices), place, len(choices))
        shape = [1] * len(scope)
        shape[scope.index(port.variable)] = len(place)
        index.append(place.reshape(shape))
    padded = np.pad(table, [(0, 1)] * table.ndim, constant_values=np.inf)
    return Factor(scope, padded[tuple(index)] if index else table)


class Powers:
    """A body executed several times: powers of its table in the (min, +) semiring, over the carried layouts."""

    def __init__(self, repeat: Repeat, body: Solver, steadily: bool) -> None:
        """Raises TooLarge. If all iterations `steadily` do the same, a power is a multiple of the diagonal."""
        self.steadily = steadily
        self.repeat = repeat
        self.body = body
        carried = len(repeat.initial)
        ends = body.layouts[:carried], body.layouts[carried : 2 * carried]
        self.states = [np.union1d(entry, exit_) for entry, exit_ in zip(*ends, strict=True)]
        captured = body.layouts[2 * carried :]
        self.layouts = (*self.states, *self.states, *captured)
        table = np.full(tuple(map(len, self.layouts)), np.inf)
        table[np.ix_(*(np.searchsorted(a, b) for a, b in zip(self.layouts, body.layouts, strict=True)))] = body.table
        self.count = prod(len(state) for state in self.states)
        work = prod(map(len, captured)) * self.count**3 * repeat.count.bit_length()
        if work > LARGEST_POWER and not steadily:
            raise TooLarge(work)
        self.step = np.moveaxis(table.reshape(self.count, self.count, -1), -1, 0)
        powered = np.stack(
            [_multiple(step, repeat.count) if steadily else power(step, repeat.count) for step in self.step]
        )
        self.table = np.moveaxis(powered, 0, -1).reshape(table.shape)

    def solution(self, initial: Sequence[int], results: Sequence[int], captured: Sequence[int]) -> tuple[Solved, ...]:
        """The plan of each iteration, given the layouts at both ends. Where it costs nothing a layout is kept."""
        if self.steadily:
            return (self.body.solution((*initial, *results, *captured)),) * self.repeat.count
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


def _multiple(step: Table, count: int) -> Table:
    return np.where(np.eye(len(step), dtype=bool), step * count, np.inf)


def power(step: Table, count: int) -> Table:
    """The count-th power of a square table in the (min, +) semiring, by repeated squaring."""
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
    result = np.full((left.shape[0], right.shape[1]), np.inf)
    for middle in range(left.shape[1]):
        np.minimum(result, left[:, middle, None] + right[None, middle, :], out=result)
    return result

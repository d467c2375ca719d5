"""Eliminates variables of degree one and two, and tensors with at most one end that has a choice.

The tensors come first: their price becomes part of the cost of the end that has a choice.

A variable that reads one tensor and makes another with one reader (a normalisation, an activation) becomes a price by
the layouts before and after it. A variable that is linked to one other variable only (a statistic that is kept) becomes
part of that variable's cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..cost_network.bucket_elimination import Table
from ..cost_network.shared_conversions import MOST_READERS, min_plus
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.materialised_layouts import always, possible, unary
from ..folded_solver.problem_part import Domains, Layouts, Part, Port, Tensor
from ..search_end import check_end


@dataclass(frozen=True)
class _Side:
    """A link of a variable: `cost[k, l]` by the key of its own value and the key of the `other` variable's value."""

    other: Port
    own_keys: Layouts
    cost: Table
    source: tuple[int, bool]
    """Equal for links of equal cost: the identity of the price table, and whether the own keys are its rows."""


@dataclass(frozen=True)
class _Removed:
    """An eliminated variable with its own costs, and what it costs by the values of others."""

    variable: int
    costs: Table
    sides: tuple[_Side, ...]

    def best(self, values: list[int]) -> int:
        """The first of the cheapest values, given those of the others."""
        total = self.costs
        for side in self.sides:
            total = total + side.cost[side.own_keys, side.other.layouts[values[side.other.variable]]]
        return int(np.argmin(total))


@dataclass(frozen=True)
class Contracted:
    """A part from which variables were eliminated: each of these has one value left. The least cost is unchanged.

    `bodies` are those of its repeats.
    """

    part: Part
    domains: Domains
    removed: tuple[_Removed, ...]
    bodies: tuple[Contracted, ...]

    def restored(self, solved: Solved) -> Solved:
        """The plan of the original part, of the same cost."""
        values = list(solved.values)
        for removed in reversed(self.removed):
            values[removed.variable] = removed.best(values)
        repeats = []
        for body, iterations in zip(self.bodies, solved.repeats, strict=True):
            found = {iteration: body.restored(iteration) for iteration in dict.fromkeys(iterations)}
            repeats.append(tuple(found[iteration] for iteration in iterations))
        return Solved(tuple(values), tuple(repeats))


def contract(part: Part, domains: Domains) -> Contracted:
    """Eliminates all variables that it can. Variables at borders, and those of tensors with several readers, stay."""
    return _Contraction(part, domains, {}).run()


class _Contraction:
    """Contracts a part. It shares `tables` with its bodies, since written-out iterations are copies of them."""

    def __init__(self, part: Part, domains: Domains, tables: dict[object, Table]) -> None:
        self.part = part
        self.domains = domains
        self.costs = [np.where(mask, cost, np.inf) for cost, mask in zip(part.costs, domains.masks, strict=True)]
        self.tensors: dict[int, Tensor] = {}
        self.around: list[set[int]] = [set() for _ in self.costs]
        self.fixed = {port.variable for port in _borders(part)}
        self.removed: list[_Removed] = []
        self.tables = tables
        settled = [np.count_nonzero(np.isfinite(cost)) == 1 for cost in self.costs]
        for tensor in part.tensors:
            open_ends = [port for port in _ends(tensor) if not settled[port.variable]]
            if not tensor.reads and not tensor.shared:
                self._charge(tensor.produced, unary(tensor))
            elif len(open_ends) > 1 or tensor.common or len(tensor.reads) + len(tensor.fixed) > MOST_READERS:
                self._add(tensor)
                self.fixed |= {port.variable for port in _ends(tensor)} if tensor.shared else set()
            else:
                end = open_ends[0] if open_ends else tensor.produced
                self._charge(end, self._settled(tensor, end))

    def _charge(self, port: Port, cost: Table) -> None:
        """Adds a cost by layout to that of the variable that decides it."""
        self.costs[port.variable] = self.costs[port.variable] + cost[port.layouts]

    def _settled(self, tensor: Tensor, end: Port) -> Table:
        """The tensor's price by the layout at one end, where no other end has a choice."""
        if not tensor.shared:
            made, read = (port.layouts[np.isfinite(self.costs[port.variable])] for port in _ends(tensor))
            rows, axis = (tensor.prices[:, read], 1) if end is tensor.produced else (tensor.prices[made], 0)
            return np.asarray(rows.min(axis=axis, initial=np.inf), dtype=np.float64)
        count = len(tensor.prices)
        said = [possible(self.costs, port, count) for port in _ends(tensor)]
        least = tensor.cost(np.arange(count)).least(said[0], [*said[1:], *always(tensor)])
        return least[next(number for number, port in enumerate(_ends(tensor)) if port is end)]

    def _add(self, tensor: Tensor) -> None:
        number = len(self.tensors)
        self.tensors[number] = tensor
        for port in _ends(tensor):
            self.around[port.variable].add(number)

    def run(self) -> Contracted:
        waiting = [variable for variable in range(len(self.costs)) if variable not in self.fixed]
        while waiting:
            check_end()
            variable = waiting.pop()
            numbers = self.around[variable]
            others = {self._other(variable, number).variable for number in numbers}
            if variable in others or not (len(others) == 1 or len(others) == len(numbers) == 2):
                continue
            self._remove(variable, [self._side(variable, number) for number in sorted(numbers)])
            waiting += sorted(others - self.fixed)
        gone = {removed.variable for removed in self.removed}
        costs = [np.zeros(1) if number in gone else cost for number, cost in enumerate(self.costs)]
        masks = [np.ones(1, dtype=bool) if number in gone else np.isfinite(cost) for number, cost in enumerate(costs)]
        left = set().union(*self.around)
        tensors = tuple(self.tensors[number] for number in sorted(left))
        inner = zip(self.part.repeats, self.domains.bodies, strict=True)
        bodies = tuple(_Contraction(repeat.body, domains, self.tables).run() for repeat, domains in inner)
        repeats = tuple(replace(r, body=body.part) for r, body in zip(self.part.repeats, bodies, strict=True))
        part = replace(self.part, costs=tuple(costs), tensors=tensors, repeats=repeats)
        return Contracted(part, Domains(masks, [body.domains for body in bodies]), tuple(self.removed), bodies)

    def _other(self, variable: int, number: int) -> Port:
        """The end of a tensor with one reader that is not the variable."""
        tensor = self.tensors[number]
        return tensor.reads[0] if tensor.produced.variable == variable else tensor.produced

    def _side(self, variable: int, number: int) -> _Side:
        tensor, other = self.tensors[number], self._other(variable, number)
        if other is tensor.produced:
            return _Side(other, tensor.reads[0].layouts, tensor.prices.T, (id(tensor.prices), False))
        return _Side(other, tensor.produced.layouts, tensor.prices, (id(tensor.prices), True))

    def _remove(self, variable: int, sides: list[_Side]) -> None:
        costs = self.costs[variable]
        self.removed.append(_Removed(variable, costs, tuple(sides)))
        for number in list(self.around[variable]):
            for port in _ends(self.tensors[number]):
                self.around[port.variable].discard(number)
        first, second = sides[0].other, sides[-1].other
        if first.variable == second.variable:
            total = costs[:, None]
            for side in sides:
                total = total + side.cost[side.own_keys][:, side.other.layouts]
            self.costs[first.variable] = self.costs[first.variable] + total.min(axis=0)
        else:
            table = self._table(costs, sides[0], sides[1])
            self._add(Tensor(self.part.names[variable], first, (second,), table))

    def _table(self, costs: Table, first: _Side, second: _Side) -> Table:
        """The least cost of a variable with two links, by the layouts of the two others. Copies of the variable share
        it.
        """
        sides = first, second
        used = [np.unique(side.other.layouts[np.isfinite(self.costs[side.other.variable])]) for side in sides]
        places = [(side.own_keys.tobytes(), keys.tobytes()) for side, keys in zip(sides, used, strict=True)]
        key = costs.tobytes(), first.source, second.source, *places
        if key not in self.tables:
            own = np.flatnonzero(np.isfinite(costs))
            before, after = (
                side.cost[np.ix_(side.own_keys[own], keys)] for side, keys in zip(sides, used, strict=True)
            )
            table = np.full((first.cost.shape[1], second.cost.shape[1]), np.inf)
            table[np.ix_(*used)] = min_plus(before.T, after + costs[own, None])
            self.tables[key] = table
        return self.tables[key]


def _ends(tensor: Tensor) -> tuple[Port, ...]:
    return (tensor.produced, *tensor.reads)


def _borders(part: Part) -> Iterator[Port]:
    """The ports on which repeats and the part around this one depend."""
    yield from (*part.entries, *part.exits, *part.captured)
    for repeat in part.repeats:
        yield from (*repeat.initial, *repeat.results, *repeat.captured)

"""The choice of configurations as an integer linear programme, solved by HiGHS.

One value of every variable is chosen, x in {0, 1}. A conversion between the layouts of a producer and a reader costs
the product of their choices. It is linear in continuous variables e >= 0 whose marginals are the choices (Zheng et al.,
Alpa, OSDI 2022, section 4). Every reader pays for its own conversion: none is shared. Iterations of a repeat are
identical; the values that enter the first one may be converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Domains, Part, Port, Tensor
from ..layout_problem.model_problem import Problem
from ..search_end import seconds_left
from .operator_sites import Choice, Trail, sites_of

SCALE = 1e4
"""Objective to which the sum of the cheapest choices is scaled, as the solver's tolerances are absolute."""
GAP = 1e-6
"""Relative optimality gap of the solver."""

Costs = Mapping[tuple[Trail, int], Table]
"""Replacement costs of variables, by value: keyed by the body and index of a variable."""


@dataclass(frozen=True)
class Solution:
    """The option of every operator, and its cost: the minimum, if that was `proved` within the time limit."""

    choice: Choice
    cost: float
    proved: bool


def solve_programme(problem: Problem, domains: Domains, seconds: float, costs: Costs | None = None) -> Solution | None:
    """The cheapest choice of a problem within domains; None if there is none, or none was found in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    programme = _Programme(costs or {})
    programme.add_part(problem.part, domains, (), 1)
    if not programme.feasible:
        return None
    if not (count := len(programme.objective)):
        return Solution({}, 0.0, True)
    objective = np.array(programme.objective)
    scale = SCALE / programme.least if programme.least > 0 else 1.0
    rows, columns, values = (np.array(part) for part in (programme.rows, programme.columns, programme.values))
    matrix = coo_array((values, (rows, columns)), shape=(len(programme.sides), count)).tocsr()
    sides = np.array(programme.sides)
    found = milp(
        objective * scale,
        integrality=np.array(programme.integral, dtype=np.uint8),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, sides, sides),
        options={"time_limit": seconds_left(seconds), "mip_rel_gap": GAP},
    )
    if found.x is None:
        return None
    choice = {site.path: programme.chosen(found.x, site.trail, site.variable) for site in sites_of(problem)}
    return Solution(choice, float(objective @ found.x), found.status == 0)


@dataclass
class _Values:
    """The remaining values of a variable, one for each set of values that decide the same layouts, and the first
    column.
    """

    numbers: npt.NDArray[np.intp]
    first: int


@dataclass
class _Programme:
    """Columns with their objective, and equations as sparse coordinates. `least` is a lower bound on the variables'
    cost.
    """

    costs: Costs
    objective: list[float] = field(default_factory=list)
    integral: list[bool] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sides: list[float] = field(default_factory=list)
    least: float = 0.0
    feasible: bool = True
    _variables: dict[tuple[Trail, int], _Values] = field(default_factory=dict)

    def add_part(self, part: Part, domains: Domains, trail: Trail, times: int) -> None:
        """Adds the variables, conversions and borders of a part that is executed `times` times."""
        ports: dict[int, list[Port]] = {}
        for port in _ports(part):
            ports.setdefault(port.variable, []).append(port)
        for variable, mask in enumerate(domains.masks):
            cost = self.costs.get((trail, variable), part.costs[variable])
            self._add_variable(trail, variable, mask & np.isfinite(cost), cost * times, ports.get(variable, ()))
        for tensor in part.tensors:
            self._add_tensor(tensor, trail, times)
        for number, (repeat, body) in enumerate(zip(part.repeats, domains.bodies, strict=True)):
            inner = (*trail, number)
            self.add_part(repeat.body, body, inner, times * repeat.count)
            made = {tensor.produced.variable: tensor for tensor in repeat.body.tensors}
            rows = zip(repeat.initial, repeat.results, repeat.body.entries, repeat.body.exits, strict=True)
            for initial, result, entry, exit_ in rows:
                self._equal((trail, result), (inner, exit_))
                self._equal((inner, entry), (inner, exit_))
                self._convert((trail, initial), (inner, entry), made[entry.variable].prices * times)
            for own, given in zip(repeat.body.captured, repeat.captured, strict=True):
                self._equal((trail, given), (inner, own))

    def chosen(self, solution: npt.NDArray[np.float64], trail: Trail, variable: int) -> int:
        """The value of a variable in a solution."""
        of = self._variables[trail, variable]
        return int(of.numbers[np.argmax(solution[of.first : of.first + len(of.numbers)])])

    def _add_variable(
        self, trail: Trail, variable: int, mask: npt.NDArray[np.bool_], cost: Table, ports: Sequence[Port]
    ) -> None:
        best: dict[tuple[int, ...], int] = {}
        for value in np.flatnonzero(mask).tolist():
            key = tuple(int(port.layouts[value]) for port in ports)
            if key not in best or cost[value] < cost[best[key]]:
                best[key] = value
        numbers = np.array(sorted(best.values()), dtype=np.intp)
        self.feasible &= bool(len(numbers))
        self._variables[trail, variable] = _Values(numbers, len(self.objective))
        if len(numbers):
            self.least += float(cost[numbers].min())
            self._equation([(self._column(float(cost[number]), True), 1.0) for number in numbers], 1.0)

    def _add_tensor(self, tensor: Tensor, trail: Trail, times: int) -> None:
        prices = tensor.prices * times
        for layout in tensor.fixed:
            for made, columns in self._marginal(trail, tensor.produced).items():
                for column in columns:
                    self.objective[column] += min(float(prices[made, layout]), SCALE**2)
        for read in tensor.reads:
            self._convert((trail, tensor.produced), (trail, read), prices)

    def _convert(self, first: tuple[Trail, Port], second: tuple[Trail, Port], prices: Table) -> None:
        """Adds the price of a conversion between the layouts at two ports."""
        left, right = self._marginal(*first), self._marginal(*second)
        columns = {
            (source, target): self._column(float(prices[source, target]), False)
            for source in left
            for target in right
            if prices[source, target] < inf
        }
        for source, chosen in left.items():
            pairs = [(column, 1.0) for (made, _), column in columns.items() if made == source]
            self._equation([*pairs, *((column, -1.0) for column in chosen)], 0.0)
        for target, chosen in right.items():
            pairs = [(column, 1.0) for (_, read), column in columns.items() if read == target]
            self._equation([*pairs, *((column, -1.0) for column in chosen)], 0.0)

    def _equal(self, first: tuple[Trail, Port], second: tuple[Trail, Port]) -> None:
        """Adds the constraint that both ports have the same layout."""
        left, right = self._marginal(*first), self._marginal(*second)
        for layout in sorted({*left, *right}):
            ones = [(column, 1.0) for column in left.get(layout, ())]
            self._equation([*ones, *((column, -1.0) for column in right.get(layout, ()))], 0.0)

    def _marginal(self, trail: Trail, port: Port) -> dict[int, list[int]]:
        """The columns of a variable's values, by the layout that they have at a port."""
        of = self._variables[trail, port.variable]
        found: dict[int, list[int]] = {}
        for place, layout in enumerate(port.layouts[of.numbers].tolist()):
            found.setdefault(layout, []).append(of.first + place)
        return found

    def _column(self, objective: float, integral: bool) -> int:
        self.objective.append(objective)
        self.integral.append(integral)
        return len(self.objective) - 1

    def _equation(self, terms: Sequence[tuple[int, float]], side: float) -> None:
        for column, factor in terms:
            self.rows.append(len(self.sides))
            self.columns.append(column)
            self.values.append(factor)
        self.sides.append(side)


def _ports(part: Part) -> Iterator[Port]:
    """All ports of a part."""
    for tensor in part.tensors:
        yield from (tensor.produced, *tensor.reads)
    for repeat in part.repeats:
        yield from (*repeat.initial, *repeat.results, *repeat.captured)
    yield from (*part.entries, *part.exits, *part.captured)

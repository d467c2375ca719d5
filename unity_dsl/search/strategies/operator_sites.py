"""The operators of a problem as decision sites, and the cost of a joint decision for all of them.

A choice at a site holds for all iterations of the repeats around it. The rest of a plan follows at the least cost: the
layouts in which values cross the border of a body, and the storage of values that several operators read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from ...graph.graph import Node
from ...graph.layout_typing import Configuration, TypedOperator
from ..choices.operator_options import Options
from ..choices.restriction import node_path
from ..cost_network.bucket_elimination import TooLarge
from ..exact_search.bounded_search import Optimum, optimise
from ..folded_solver.exact_minimum import Solved, Solver
from ..folded_solver.problem_part import Domains, Part, Tensor, everything, no_limits
from ..layout_problem.model_problem import Problem
from ..layout_problem.plan_assembly import cheapest_tree, tree_price
from ..layout_problem.starting_domains import undivided_domain
from ..layout_problem.variable_meaning import Meaning
from .border_layouts import narrowed

Trail = tuple[int, ...]
"""The indices of the repeats around a body, outermost first."""


@dataclass(frozen=True)
class Site:
    """A decision site: an operator by its path, its options, and its variable in its body."""

    path: str
    node: Node
    options: Options
    trail: Trail
    variable: int


def sites_of(problem: Problem) -> tuple[Site, ...]:
    """Every operator that has a variable, in the order of the model."""
    return tuple(_sites(problem.meaning, "", ()))


def _sites(meaning: Meaning, prefix: str, trail: Trail) -> Iterator[Site]:
    inner = iter(enumerate(meaning.bodies))
    for step in meaning.graph.steps:
        if isinstance(step, Node):
            if step.name in meaning.nodes:
                variable, options = meaning.nodes[step.name]
                yield Site(node_path(prefix, step), step, options, trail, variable)
        else:
            number, body = next(inner)
            yield from _sites(body, f"{prefix}{step.name}.", (*trail, number))


def domain_at(domains: Domains, trail: Trail) -> Domains:
    """The domains of the body at a trail."""
    for number in trail:
        domains = domains.bodies[number]
    return domains


def part_at(part: Part, trail: Trail) -> Part:
    """The body at a trail."""
    for number in trail:
        part = part.repeats[number].body
    return part


Allows = Callable[[Site, TypedOperator], bool]


def allowed_domains(problem: Problem, allows: Allows) -> Domains:
    """The domains in which operators have only configurations that a strategy allows and that have a finite price. An
    operator without any such configuration keeps all of its own.
    """
    domains = everything(problem.part)
    for site in sites_of(problem):
        mask = domain_at(domains, site.trail).masks[site.variable]
        some = mask & np.array([allows(site, typed) for typed in site.options.typed], dtype=bool)
        if some.any():
            mask[:] = some
    return domains


def configured(problem: Problem, wanted: Mapping[str, Configuration]) -> Domains:
    """The domains in which operators have the `wanted` configurations, by path, if these are among theirs."""
    return allowed_domains(problem, lambda site, typed: wanted.get(site.path) in (None, typed.configuration))


def first_plan(problem: Problem, domains: Domains, wanted: Mapping[str, Configuration]) -> Optimum:
    """The best plan within domains in which operators have the `wanted` configurations. Without such a plan, the best
    that is found in all of the domains, or one that divides nothing.
    """
    part = problem.part
    starts = (configured(problem, wanted) if wanted else None, domains, undivided_domain(problem))
    for start in starts:
        if start is not None and not (narrower := domains.intersected(start)).empty:
            found = optimise(part, narrower)
            if found.plan is not None:
                return found
    return Optimum(None, inf, -inf, False)


def chosen_at(problem: Problem, plan: Solved) -> dict[str, int]:
    """The option of every operator in the last iteration, by path."""
    return {site.path: solved_at(plan, site.trail).values[site.variable] for site in sites_of(problem)}


def solved_at(plan: Solved, trail: Trail) -> Solved:
    """The plan of a body in the last iteration."""
    for number in trail:
        plan = plan.repeats[number][-1]
    return plan


Choice = dict[str, int]
"""The index of the chosen option of every operator, by path."""


@dataclass(frozen=True)
class Assignments:
    """Plans of a problem within some domains, given by the choices for all operators."""

    problem: Problem
    domains: Domains
    _known: dict[tuple[object, ...], float] = field(default_factory=dict)
    _costs: dict[tuple[int, ...], float] = field(default_factory=dict)

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        return sites_of(self.problem)

    @cached_property
    def left(self) -> dict[str, list[int]]:
        """The remaining options of every operator."""
        return {
            site.path: np.flatnonzero(domain_at(self.domains, site.trail).masks[site.variable]).tolist()
            for site in self.sites
        }

    def of(self, choice: Choice) -> Domains:
        """The domains restricted to a choice."""
        masks = _copied(self.domains)
        for site in self.sites:
            mask = domain_at(masks, site.trail).masks[site.variable]
            mask[:] = False
            mask[choice[site.path]] = True
        return narrowed(self.problem.part, masks).agreed(self.problem.part)

    @property
    def priced(self) -> int:
        """The number of choices whose whole plan was priced."""
        return len(self._costs)

    def cost(self, choice: Choice) -> float:
        """The cost of the cheapest plan of a choice with identical iterations, or else of any; infinite without one."""
        key = tuple(choice.values())
        if key not in self._costs:
            self._costs[key] = self._cost(self.of(choice))
        return self._costs[key]

    def _cost(self, domains: Domains) -> float:
        if domains.empty:
            return inf
        part = self.problem.part
        for steadily in (True, False):
            with suppress(TooLarge):
                cost = float(Solver(part, domains, no_limits(part), steadily).table)
                if cost < inf:
                    return cost
        return optimise(part, domains).cost

    def best(self, choice: Choice) -> tuple[Solved | None, float]:
        """The cheapest plan with this choice and its cost; None if there is no plan."""
        found = optimise(self.problem.part, self.of(choice))
        return found.plan, found.cost

    def difference(self, choice: Choice, site: Site, option: int) -> float:
        """The increase in cost if one operator has another option; infinite without such a plan.

        If the choices of operators alone decide the cost, only the operator and the tensors that it touches are priced
        again.
        """
        body = self._bodies[site.trail]
        if site.variable in body.crossing:
            return self.cost({**choice, site.path: option}) - self.cost(choice)
        before = self._touching(body, site, choice)
        return body.times * (self._touching(body, site, {**choice, site.path: option}) - before)

    def _touching(self, body: _Body, site: Site, choice: Choice) -> float:
        """Seconds of an operator and of the conversions of its operands and results."""
        total = float(body.part.costs[site.variable][choice[site.path]])
        for number in body.tensors[site.variable]:
            tensor = body.part.tensors[number]
            produced, *reads = (
                int(port.layouts[choice[body.paths[port.variable]]]) for port in (tensor.produced, *tensor.reads)
            )
            needed = frozenset((*reads, *tensor.fixed)) - {produced}
            key = site.trail, number, produced, needed
            if key not in self._known:
                self._known[key] = _converted(tensor, produced, sorted(needed))
            total += self._known[key]
        return total

    @cached_property
    def _bodies(self) -> dict[Trail, _Body]:
        paths: dict[Trail, dict[int, str]] = {}
        for site in self.sites:
            paths.setdefault(site.trail, {})[site.variable] = site.path
        return {trail: _body(part_at(self.problem.part, trail), of, self._times(trail)) for trail, of in paths.items()}

    def _times(self, trail: Trail) -> int:
        times, part = 1, self.problem.part
        for number in trail:
            times, part = times * part.repeats[number].count, part.repeats[number].body
        return times


@dataclass(frozen=True)
class _Body:
    """A body that is executed `times` times. By variable, `paths` are its operators and `tensors` the indices of the
    tensors that they touch. `crossing` are variables whose choice also affects layouts that no operator of the body
    decides.
    """

    part: Part
    paths: Mapping[int, str]
    times: int
    tensors: Mapping[int, Sequence[int]]
    crossing: frozenset[int]


def _body(part: Part, paths: Mapping[int, str], times: int) -> _Body:
    outside = (port for repeat in part.repeats for port in (*repeat.initial, *repeat.results, *repeat.captured))
    crossing = {port.variable for port in (*part.entries, *part.exits, *part.captured, *outside)}
    tensors: dict[int, list[int]] = {variable: [] for variable in paths}
    for number, tensor in enumerate(part.tensors):
        touched = {port.variable for port in (tensor.produced, *tensor.reads)}
        if not touched <= paths.keys():
            crossing |= touched
        for variable in touched & paths.keys():
            tensors[variable].append(number)
    return _Body(part, paths, times, tensors, frozenset(crossing))


def _converted(tensor: Tensor, produced: int, needed: Sequence[int]) -> float:
    """Seconds of a tensor's conversions; infinite if they need more than two layouts besides the produced one."""
    if len(needed) > 2 or not all(np.isfinite(tensor.prices[produced, layout]) for layout in needed):
        return inf
    tree = cheapest_tree(tensor.prices, produced, needed, tensor.between)
    return tree_price(tensor.prices, produced, tree, tensor.between)


def _copied(domains: Domains) -> Domains:
    return Domains([mask.copy() for mask in domains.masks], list(map(_copied, domains.bodies)))

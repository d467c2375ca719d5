"""Costs of communication alone, for strategies that assume equal computation for all choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...graph.layout_typing import TypedOperator
from ...graph.precision import arithmetic
from ...machine.operator_price import price_inner
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Part
from ..layout_problem.model_problem import Problem
from .layout_programme import Costs
from .operator_sites import Site, Trail, part_at, sites_of
from .strategy import Space

TIE = 1e-3
"""Fraction of the computation that still counts: it decides between choices with equal communication."""


def communication_costs(space: Space, problem: Problem) -> Costs:
    """For each option, the cost of its communication and stored weights, plus a small fraction `TIE` of its
    computation.
    """
    costs = {}
    for site in sites_of(problem):
        every = part_at(problem.part, site.trail).costs[site.variable]
        computed = site.options.seconds - _collectives(space, problem, site)
        costs[site.trail, site.variable] = every - (1 - TIE) * np.maximum(computed, 0.0)
    return costs


def _collectives(space: Space, problem: Problem, site: Site) -> Table:
    """Seconds of the collectives within an operator, for each configuration."""
    node, mesh = site.node, problem.spaces.mesh

    def seconds(typed: TypedOperator) -> float:
        if not typed.inner:
            return 0.0
        dtype = arithmetic(node, typed.native, space.library)
        return price_inner(node.instance, typed, dtype, mesh, space.machine, any(node.gradients))

    return np.array(list(map(seconds, site.options.typed)))


def with_costs(part: Part, costs: Costs, trail: Trail = ()) -> Part:
    """The part with replaced costs of variables, keyed by body and index."""
    own = tuple(costs.get((trail, variable), cost) for variable, cost in enumerate(part.costs))
    repeats = tuple(
        replace(repeat, body=with_costs(repeat.body, costs, (*trail, number)))
        for number, repeat in enumerate(part.repeats)
    )
    return replace(part, costs=own, repeats=repeats)

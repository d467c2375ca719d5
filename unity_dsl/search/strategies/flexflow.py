"""Strategy `flexflow`: Markov chain Monte Carlo over the configurations of operators (Jia, Zaharia and Aiken, Beyond
Data and Model Parallelism for Deep Neural Networks, MLSys 2019).

A configuration divides dimensions of an operator's output: sample, attribute or parameter. No sum is divided, and no
weight is gathered: a device stores what it reads. A Metropolis-Hastings chain starts from data parallelism. It proposes
another configuration of one operator, drawn uniformly, and accepts it with the probability min(1, exp(β (cost before −
cost after))). It ends when the budget is spent, or when half of it has brought no better plan. The cost of a step is
that of the search in place of the authors' simulator.
"""

from __future__ import annotations

from math import exp, inf
from random import Random

from ...graph.layout import Invariant, Partial
from ...graph.layout_typing import Along, Configuration, TypedOperator, Uniformly
from ..model_variants.rewritten_model import Variant
from ..search_end import SearchEnded, check_end, ended_by
from .kept_storage import KeptAsRead
from .operator_sites import Assignments, Choice, Site, allowed_domains, chosen_at, first_plan
from .recipes import batch_configurations
from .strategy import Chosen, Space, no_plan

BUDGET = 4_000
"""Most proposals. The authors set a time limit, which would not give the same plan twice."""
ANEW = 600
"""Most proposals that price a whole step: those at operators next to the border of a repeat."""
SEED = 0
BETA = 20.0
"""A proposal that adds 1/BETA of the first plan's cost is accepted with the probability 1/e."""


def flexflow(space: Space) -> Chosen:
    """A random walk from data parallelism over the configurations of operators, by MCMC."""
    held = KeptAsRead()
    mesh = space.meshes[0]
    problem = space.problem(space.model, mesh, held=held)
    start = batch_configurations(space, mesh) or {}
    domains = allowed_domains(problem, lambda site, typed: divides_outputs(site, typed, start.get(site.path)))
    first = first_plan(problem, domains, start)
    if first.plan is None:
        raise no_plan("flexflow", "no configurations that divide outputs alone go together")
    assignments = Assignments(problem, domains)
    best = _walk(assignments, chosen_at(problem, first.plan), BUDGET, Random(SEED))
    with ended_by(None):
        plan, cost = assignments.best(best)
    if plan is None or cost >= first.cost:
        cost, plan = first.cost, first.plan
    note = f"{BUDGET} proposals of a random walk at most, seed {SEED}"
    return Chosen(Variant(space.model), problem, plan, cost, held, (note,))


def divides_outputs(site: Site, typed: TypedOperator, first: Configuration | None) -> bool:
    """Whether a configuration divides only dimensions of outputs, or is that of data parallelism."""
    if typed.configuration == first:
        return True
    whole = Uniformly(Invariant())
    divided = all(role == whole or isinstance(role, Along) for role in typed.configuration)
    return divided and not typed.inner and not any(layout.where(Partial) for layout in typed.results)


def _walk(assignments: Assignments, start: Choice, budget: int, rng: Random) -> Choice:
    """The best choice of the walk, including the first one."""
    open_sites = [site for site in assignments.sites if len(assignments.left[site.path]) > 1]
    first = assignments.cost(start)
    if not open_sites or first == inf:
        return start
    now, best = dict(start), dict(start)
    above, lowest, since = 0.0, 0.0, 0
    for _ in range(budget):
        site = rng.choice(open_sites)
        option = rng.choice(assignments.left[site.path])
        since += 1
        if since > budget // 2 or assignments.priced > ANEW:
            break
        if option == now[site.path]:
            continue
        try:
            check_end()
            more = assignments.difference(now, site, option)
        except SearchEnded:
            break
        if more <= 0 or rng.random() < exp(-BETA * more / first):
            now[site.path] = option
            above += more
            if above < lowest - 1e-12 * first:
                best, lowest, since = dict(now), above, 0
    return best

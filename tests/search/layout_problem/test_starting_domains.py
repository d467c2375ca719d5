"""The small subspaces that a search begins with."""

from __future__ import annotations

from unity_dsl.graph.layout import Shard
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction, places
from unity_dsl.search.exact_search.bounded_search import optimise
from unity_dsl.search.folded_solver.problem_part import everything
from unity_dsl.search.layout_pins import apply_pins
from unity_dsl.search.layout_problem.model_problem import build_problem
from unity_dsl.search.layout_problem.problem_context import prices_on
from unity_dsl.search.layout_problem.starting_domains import KnownChoices, known_domain, undivided_domain
from unity_dsl.search.layout_problem.variable_meaning import Impossible

from ..conftest import FOUR, Build

LOOPS = """
model m[b = 4, t = 4, d = 8]
  input x: f32[b, t, d]
  input gate: int<2>[]
  input target: f32[b, t, d]
  weight w: f32[d, d] ~ normal(0.4)
  weight memory: f32[b, d] ~ normal(0.4)
  h = memory
  k = memory * 0
  scan x_t in x along 1 as step
    before = h
    h = tanh(linear(h, w) + x_t)
    scan column in h along 1 as inner
      k = k + before * 0.1
      collect column * 2 as columns along -1
    repeat 2 as twice
      k = k * 1.1
    cond gate as skip
      weight v: f32[d] ~ normal(0.4)
      k = tanh(k) + v
    collect columns + k as y
  loss mse(y, target) + reduce_mean(k[b, d] -> [])
"""


def test_whatever_is_pinned_there_is_a_plan_that_divides_nothing_else(build: Build, library: Library) -> None:
    """The search falls back on this plan if the tables of the whole space are too large."""
    model = build(LOOPS)
    prices = prices_on(FOUR, load_machine("dgx-a100"), library, ShardingTheorems(library))
    tried = 0
    for place in places(model):
        if place.stored or place.given or len(place.value.shape) < 2:
            continue
        pins = {place.path: tuple(Shard(dim) for dim in (1, 0))}
        try:
            restriction = apply_pins(Restriction(), pins, model, FOUR, library)
            problem = build_problem(model, prices, restriction)
        except Impossible:
            continue
        tried += 1
        domains = everything(problem.part).intersected(undivided_domain(problem))
        assert optimise(problem.part, domains).plan is not None, place.path
    assert tried > 8


def test_what_a_plan_of_another_model_lacks_keeps_its_choices(build: Build, library: Library) -> None:
    text = (
        "model m[b = 4, d = 8]\n  input x: f32[b, d]\n  input target: f32[b, d]\n  weight w: f32[d, d] ~ normal(0.4)\n"
    )
    prices = prices_on(FOUR, load_machine("dgx-a100"), library, ShardingTheorems(library))
    less, more = (
        build_problem(build(f"{text}  y = {value}\n  loss mse(y, target)\n"), prices, Restriction())
        for value in ("linear(x, w)", "tanh(linear(x, w))")
    )
    plan = optimise(less.part, everything(less.part)).plan
    assert plan is not None
    choices = KnownChoices()
    choices.add(less, plan)
    domains = known_domain(more, choices)
    assert set(more.meaning.nodes) - set(choices.chosen), "the models have different operators"
    for name, (variable, options) in more.meaning.nodes.items():
        left = int(domains.masks[variable].sum())
        assert left == (1 if name in choices.chosen else len(options.typed)), name
    best = optimise(more.part, everything(more.part).intersected(domains))
    assert best.plan is not None

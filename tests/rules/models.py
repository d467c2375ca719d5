"""Models for testing rules: laws that hold for all tensors, models of left sides, and evaluation of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from random import Random

import numpy as np

from tests.graph.evaluation import Array, Returned, evaluate_model
from tests.prove.cases import library, rule_of
from unity_dsl.graph.graph import Graph, Model, Segment, Value
from unity_dsl.prove.refutation.numeric_run import IllShaped, Run, small_sizes, witness_sizes
from unity_dsl.prove.translation.rule_forms import Ranks, views_at
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.rewrite import rewrite
from unity_dsl.rules.substitution import Substitution, substitution_of
from unity_dsl.syntax.parse_rules import RuleDecl

from .side_models import SizedRule, build

LAWS = """
rule distribute(x: [b.., i], w: [o, i], v: [o, i])
  linear(x, w) + linear(x, v) => linear(x, w + v)
---
rule share(x: [b, i], w: [o, i], v: [q, i])
  y = linear(x, concat(w, v; dim=0))
  first = slice(y; dim=1, start=0, stop=o)
  second = slice(y; dim=1, start=o, stop=o + q)
  linear(x, w), linear(x, v) => first, second
---
rule associate(x: [b.., i], w: [h, i], v: [o, h])
  linear(linear(x, w), v) => linear(x, matmul(v, w))
---
rule idle(x: [b..])
  relu(x) => relu(relu(x))
---
rule as_product(x: [b, i], w: [o, i])
  linear(x, w) => matmul(x, w[o, i] -> [i, o])
---
rule turned(x: [b.., c])
  softmax(x) => softmax(2 + x)
---
rule scaled(x: [b, c], y: [b, c])
  x + y => 0.5 * (2 * x + 2 * y)
---
rule both(x: [b.., c])
  tanh(x), relu(x) => tanh(x), relu(1 * x)
""".strip().split("---\n")
"""Laws that hold for all tensors; some match almost any model."""


@cache
def substitution(rule: RuleDecl) -> Substitution:
    found = substitution_of(rule, library())
    assert isinstance(found, Substitution), found
    return found


def model_of(found: Substitution, ranks: Ranks, seed: int) -> Model:
    """The left side of a rule as a model, whose weights are the rule's inputs (integer inputs stay inputs)."""
    rule, declared = found.with_operands
    for choose in (partial(witness_sizes, seed=seed), partial(small_sizes, least=2 + seed)):
        sizes = choose(found.claim, found.names(ranks))
        assert sizes is not None
        views = views_at(rule, found.claim, declared, ranks, sizes)
        with suppress(IllShaped):  # Many sizes, pairwise different, make a tensor too large.
            assert Run(rule, found.claim, declared, ranks, views, sizes).difference(0) is None
            return build(SizedRule(found, ranks, sizes, whole=False).left)
    raise AssertionError("no sizes are small enough")


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws the elements of a float tensor of a shape."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Positive numbers, in the domain of roots, logarithms and quotients."""
    return np.abs(rng.normal(size=shape))


def coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Integer multiples of 2**12: float64 adds them to integers up to 2**63 without rounding."""
    return 4096.0 * rng.integers(-1000, 1000, shape)


def evaluated(model: Model, seed: int, draw: Draw = normal) -> Returned:
    """The results of a model for weights and inputs drawn from the seed.

    Models with the same inputs and stored tensors get the same numbers.
    """
    rng = np.random.default_rng(seed)
    drawn = {}
    for source in sorted(model.graph.inputs, key=lambda source: source.value.name):
        value = source.value
        bound = value.integer_range
        drawn[value.name] = draw(rng, value.shape) if bound is None else rng.integers(0, bound, value.shape)
    stored = {
        name: draw(rng, value.shape) for name, value in sorted(_stored(model.graph, ""), key=lambda entry: entry[0])
    }
    return evaluate_model(model, library(), drawn, stored)


def rewritten(rule: str | RuleDecl, model: Model) -> list[Model | str]:
    """The rewritten model for every match of a rule, or the reason why the match is not applied."""
    found = substitution(rule if isinstance(rule, RuleDecl) else rule_of(rule))
    return [rewrite(model, match) for match in matches(found, model)]


def random_rewritings(model: Model, rng: Random) -> Iterator[Model]:
    """Equivalent models, each made from the previous one by a random law at a random match."""
    while made := [new for law in LAWS for new in rewritten(law, model) if isinstance(new, Model)]:
        model = rng.choice(made)
        yield model


def _stored(graph: Graph, prefix: str) -> Iterator[tuple[str, Value]]:
    """Weights and buffers by their full names."""
    yield from ((prefix + weight.value.name, weight.value) for weight in graph.weights)
    yield from ((prefix + buffer.value.name, buffer.value) for buffer in graph.buffers)
    for step in graph.steps:
        if isinstance(step, Segment):
            for iteration in range(step.count):
                yield from _stored(step.body, f"{prefix}{step.name}.{iteration}.")

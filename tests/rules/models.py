"""The left side of a rule as the text of a model, at numbers for its sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from random import Random

import numpy as np

from tests.graph.evaluation import Array, Returned, evaluate_model
from tests.prove.cases import library, rule_of
from unity_dsl.graph.graph import Graph, Model, Segment, Value
from unity_dsl.graph.model_graph import build_model
from unity_dsl.prove.normal_form.polynomial import product
from unity_dsl.prove.refutation.numeric_run import IllShaped, Run, small_sizes, witness_sizes
from unity_dsl.prove.translation.real_conditions import drawn_reals, numbers_at, value_at
from unity_dsl.prove.translation.rule_forms import (
    Ranks,
    attribute_value,
    expressions,
    input_dims,
    number_of,
    views_at,
)
from unity_dsl.prove.translation.symbolic_sizes import valued
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.rewrite import rewrite
from unity_dsl.rules.substitution import Substitution, substitution_of
from unity_dsl.syntax.ast import Name
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from unity_dsl.syntax.span import Source

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
"""True of all tensors; some of them fit almost any model."""


@cache
def substitution(rule: RuleDecl) -> Substitution:
    found = substitution_of(rule, library())
    assert isinstance(found, Substitution), found
    return found


def build(text: str) -> Model:
    return build_model(parse_model(Source("model.udl", text)), library())


def model_of(found: Substitution, ranks: Ranks, seed: int) -> Model:
    """The left side of a rule, its inputs being weights (or inputs, where they are integers)."""
    for choose in (partial(witness_sizes, seed=seed), partial(small_sizes, least=2 + seed)):
        sizes = choose(found.claim, found.names(ranks))
        assert sizes is not None
        with suppress(IllShaped):  # Many sizes, pairwise different, make a tensor too large.
            return build(_Text(found, ranks, sizes).model())
    raise AssertionError("no sizes are small enough")


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Numbers for a tensor of floats of a shape."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """In the domain of roots, logarithms and quotients."""
    return np.abs(rng.normal(size=shape))


def coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Whole multiples of 2**12: float64 adds them to whole numbers of 2**63 at most without rounding."""
    return 4096.0 * rng.integers(-1000, 1000, shape)


def evaluated(model: Model, seed: int, draw: Draw = normal) -> Returned:
    """What a model returns for weights and inputs drawn from the seed, the same for the same stored tensors."""
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
    """What every match of a rule makes of the model, or why it does not."""
    found = substitution(rule if isinstance(rule, RuleDecl) else rule_of(rule))
    return [rewrite(model, match) for match in matches(found, model)]


def random_rewritings(model: Model, rng: Random) -> Iterator[Model]:
    """Models of the same meaning, each from the one before by one of the laws at one of its places."""
    while made := [new for law in LAWS for new in rewritten(law, model) if isinstance(new, Model)]:
        model = rng.choice(made)
        yield model


def _stored(graph: Graph, prefix: str) -> Iterator[tuple[str, Value]]:
    """Weights and buffers under their full names."""
    yield from ((prefix + weight.value.name, weight.value) for weight in graph.weights)
    yield from ((prefix + buffer.value.name, buffer.value) for buffer in graph.buffers)
    for step in graph.steps:
        if isinstance(step, Segment):
            for iteration in range(step.count):
                yield from _stored(step.body, f"{prefix}{step.name}.{iteration}.")


class _Text:
    def __init__(self, found: Substitution, ranks: Ranks, sizes: Mapping[str, int]) -> None:
        self.found = found
        self.ranks = ranks
        self.sizes = sizes
        views = found.views(ranks)
        assert views is not None
        self.views = views
        self.numbers = self.drawn()

    def drawn(self) -> Mapping[str, Fraction]:
        """Real numbers for which all attributes are floats."""
        found = self.found
        calls = [expr for expr in expressions(found.rule) if isinstance(expr, GraphCall)]
        real = [value for call in calls for _, value in call.attributes if found.is_real(value)]
        for seed in range(100):
            drawn = drawn_reals(found.claim, sorted(found.claim.reals), self.sizes, seed)
            assert drawn is not None
            reals = {name: Fraction(value) for name, value in drawn.items()}
            numbers = numbers_at(found.claim, self.sizes, reals)
            with suppress(ZeroDivisionError):
                values = [value_at(expr, numbers) for expr in real]
                if all(value.denominator.bit_count() == 1 for value in values) and all(reals.values()):
                    return numbers
        raise AssertionError("no numbers are found")

    def model(self) -> str:
        rule, declared = self.found.with_operands
        views = views_at(rule, self.found.claim, declared, self.ranks, self.sizes)
        run = Run(rule, self.found.claim, declared, self.ranks, views, self.sizes)
        assert run.difference(0) is None
        lines = ["model left[unused = 1]"]
        for tensor in self.found.rule.inputs:
            dims = input_dims(tensor, self.found.claim, self.ranks)
            shape = ", ".join(str(valued(product(dim), self.sizes)) for dim in dims)
            if tensor.integer_range is not None:
                bound = valued(self.found.claim.size(tensor.integer_range), self.sizes)
                lines.append(f"  input {tensor.name}: int<{bound}>[{shape}]")
            else:
                lines.append(f"  weight {tensor.name}: f32[{shape}] ~ normal(1)")
        definitions = dict(self.found.rule.definitions)
        for name, expr in definitions.items():
            names = [name]
            if isinstance(expr, GraphCall) and expr.results > 1:
                parts = [replace(expr, result=position) for position in range(expr.results)]
                names = [next(n for n, other in definitions.items() if other == part) for part in parts]
            if name == names[0]:
                lines.append(f"  {', '.join(names)} = {self.text(expr)}")
        losses = []
        for number, expr in enumerate(self.found.rule.left):
            made = run.value(rule.left[number])
            shape = list(made.array.shape)
            lines += self.result(f"result{number}", expr)
            compared = f"result{number}"
            if made.integer_range is not None:  # a loss is of floats: those of a row for each number
                lines.append(f"  weight rows{number}: f32[{made.integer_range}, 2] ~ normal(1)")
                compared, shape = f"embedding({compared}, rows{number})", [*shape, 2]
            lines.append(f"  input target{number}: f32[{', '.join(map(str, shape))}]")
            losses.append(f"mse({compared}, target{number})")
        lines.append(f"  loss {' + '.join(losses)}")
        lines += [f"  output result{number}" for number in range(len(losses))]
        return "\n".join(lines) + "\n"

    def result(self, name: str, expr: GraphExpr) -> Iterator[str]:
        """The lines that make one tensor of the left side; a call of several results is made once."""
        if not isinstance(expr, GraphCall) or expr.results == 1:
            yield f"  {name} = {self.text(expr)}"
            return
        stem = f"call{next(n for n, other in enumerate(self.found.left) if other == replace(expr, result=0))}"
        if expr.result == 0:
            yield f"  {', '.join(f'{stem}_{n}' for n in range(expr.results))} = {self.text(expr)}"
        yield f"  {name} = shift({stem}_{expr.result}; by=0)"

    def text(self, expr: GraphExpr) -> str:
        match expr:
            case Name(name):
                return name
            case GraphView(operand, source, target):
                axes = self.views[id(expr)]
                sizes = {name: valued(product(factors), self.sizes) for name, factors in axes.items()}
                sides = (self.pattern(source, sizes), self.pattern(target, {}))
                inner = self.text(operand)
                return f"{f'({inner})' if isinstance(operand, GraphView) else inner}[{sides[0]}] -> [{sides[1]}]"
            case GraphCall(name, arguments):
                claim = self.found.claim
                given = [
                    (key, float(value_at(value, self.numbers)))
                    if self.found.is_real(value)
                    else (key, number_of(attribute_value(value, claim), self.sizes))
                    for key, value in expr.attributes
                ]
                settings = ", ".join(f"{key}={value}" for key, value in given)
                return f"{name}({', '.join(map(self.text, arguments))}{'; ' if given else ''}{settings})"
        raise TypeError(expr)

    @staticmethod
    def pattern(side: tuple[tuple[str | int, ...], ...], sizes: Mapping[str, int]) -> str:
        dims = []
        for names in side:
            factors = " ".join(f"{name}={sizes[str(name)]}" if str(name) in sizes else str(name) for name in names)
            dims.append(factors if len(names) == 1 and factors == str(names[0]) else f"({factors})")
        return ", ".join(dims)

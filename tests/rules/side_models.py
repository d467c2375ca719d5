"""Builds either side of a rule as a model, at concrete sizes.

Float inputs of the rule become weights, integers become inputs, and results become outputs. The loss multiplies every
element of the results by an input element, which is therefore the element's gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from tests.prove.cases import library
from unity_dsl.graph.graph import Model, Value
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.prove.normal_form.polynomial import product
from unity_dsl.prove.translation.real_conditions import drawn_reals, numbers_at, value_at
from unity_dsl.prove.translation.rule_forms import (
    Ranks,
    Views,
    attribute_value,
    expressions,
    input_dims,
    number_of,
)
from unity_dsl.prove.translation.symbolic_sizes import valued
from unity_dsl.rules.substitution import Substitution
from unity_dsl.syntax.ast import Expr, Name
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleInput
from unity_dsl.syntax.span import Source

Side = tuple[GraphExpr, ...]
DRAWS = 100
"""Attempts to draw real numbers for which all attributes are exact floats."""


def build(text: str, declared: Library | None = None) -> Model:
    """The model of a text, with the declarations of the tests or with `declared`. Raises InputError."""
    return build_model(parse_model(Source("model.udl", text)), declared or library())


@dataclass(frozen=True)
class SizedRule:
    """A rule at given ranks of its groups and sizes of the prover's symbols. Weights are initialised by `initial`.

    With `whole` the loss also reads the weights directly. Both sides then have all weights, and no gradient consists
    only of rounding errors around 0, as the gradient of layer_norm along a dimension of 1 does.
    """

    found: Substitution
    ranks: Ranks
    sizes: Mapping[str, int]
    initial: str = "normal(1)"
    whole: bool = True

    @cached_property
    def left(self) -> str:
        """The text of the left side's model. Raises InputError if the side has no meaning at these sizes."""
        return self._text_of(self.found.rule.left)

    @cached_property
    def right(self) -> str:
        """The text of the right side's model. Raises InputError if the side has no meaning at these sizes."""
        return self._text_of(self.found.rule.right)

    @cached_property
    def numbers(self) -> Mapping[str, Fraction]:
        """Numbers for the names of the rule such that all real attributes are exact floats."""
        claim = self.found.claim
        calls = [expr for expr in expressions(self.found.rule) if isinstance(expr, GraphCall)]
        real = [value for call in calls for _, value in call.attributes if self.found.is_real(value)]
        for seed in range(DRAWS):
            drawn = drawn_reals(claim, sorted(claim.reals), self.sizes, seed)
            assert drawn is not None
            reals = {name: Fraction(value) for name, value in drawn.items()}
            numbers = numbers_at(claim, self.sizes, reals)
            with suppress(ZeroDivisionError):
                values = [value_at(expr, numbers) for expr in real]
                if all(value.denominator.bit_count() == 1 for value in values) and all(reals.values()):
                    return numbers
        raise AssertionError("no numbers are found")

    @cached_property
    def _views(self) -> Views:
        return self.found.views(self.ranks) or {}

    # ------------------------------------------------------------------------------------------ the model

    def _text_of(self, side: Side) -> str:
        made = "".join(f"  {line}\n" for line in self._made(side))
        outputs = "".join(f"  output result{number}\n" for number in range(len(side)))
        kept = "".join(f"  output {given.name}\n" for given in self._floats)
        # The shapes of the results follow from the declarations.
        shapes = build(f"model side[unused = 1]\n{made}{outputs}{kept}").outputs[: len(side)]
        loss = "".join(f"  {line}\n" for line in self._loss(side, shapes))
        return f"model side[unused = 1]\n{made}{loss}{outputs}"

    def _made(self, side: Side) -> Iterator[str]:
        """The lines of the inputs, definitions and results."""
        reached = set(self._reached(side))
        yield from (self._input(given) for given in self.found.rule.inputs)
        for name, expr in self.found.rule.definitions:
            names = [name]
            if isinstance(expr, GraphCall) and expr.results > 1:
                parts = [replace(expr, result=position) for position in range(expr.results)]
                names = [next(n for n, other in self.found.rule.definitions if other == part) for part in parts]
            if name == names[0] and reached & set(names):
                yield f"{', '.join(names)} = {self._text(expr)}"
        for number, expr in enumerate(side):
            yield from self._result(side, number, expr)

    def _reached(self, side: Side) -> Iterator[str]:
        """The inputs and local names that a side reads, directly or through other local names."""
        definitions = self.found.definitions
        for expr in expressions(replace(self.found.rule, definitions=(), left=side, right=())):
            if isinstance(expr, Name):
                yield expr.name
                if expr.name in definitions:
                    yield from self._reached((definitions[expr.name],))

    @property
    def _floats(self) -> tuple[RuleInput, ...]:
        """The float inputs that the loss reads directly."""
        inputs = self.found.rule.inputs if self.whole else ()
        return tuple(given for given in inputs if given.integer_range is None)

    def _input(self, given: RuleInput) -> str:
        shape = list(self.shape(given))
        if given.integer_range is None:
            return f"weight {given.name}: f32{shape} ~ {self.initial}"
        return f"input {given.name}: int<{valued(self.found.claim.size(given.integer_range), self.sizes)}>{shape}"

    def shape(self, given: RuleInput) -> tuple[int, ...]:
        dims = input_dims(given, self.found.claim, self.ranks)
        return tuple(valued(product(dim), self.sizes) for dim in dims)

    def _result(self, side: Side, number: int, expr: GraphExpr) -> Iterator[str]:
        """The lines that compute one tensor of a side. A call with several results is computed once."""
        if not isinstance(expr, GraphCall) or expr.results == 1:
            yield f"result{number} = {self._text(expr)}"
            return
        stem = f"call{next(n for n, other in enumerate(side) if other == replace(expr, result=0))}"
        if expr.result == 0:
            yield f"{', '.join(f'{stem}_{n}' for n in range(expr.results))} = {self._text(expr)}"
        yield f"result{number} = shift({stem}_{expr.result}; by=0)"

    def _loss(self, side: Side, results: tuple[Value, ...]) -> Iterator[str]:
        """The loss: a weighted sum of all results. Integer results select rows of a weight, which are added instead."""
        terms = []
        for number, result in enumerate(results):
            name, shape = f"result{number}", result.shape
            if result.integer_range is not None:
                yield f"weight rows{number}: f32[{result.integer_range}, 2] ~ normal(1)"
                name, shape = f"embedding({name}, rows{number})", (*shape, 2)
            yield f"input weights{number}: f32{list(shape)}"
            terms.append(_summed(f"({name} * weights{number})", len(shape)))
        for given in self._floats:
            shape = self.shape(given)
            yield f"input weights_{given.name}: f32{list(shape)}"
            terms.append(_summed(f"({given.name} * weights_{given.name})", len(shape)))
        yield f"loss {' + '.join(terms)}"

    # ------------------------------------------------------------------------------------------ expressions

    def _text(self, expr: GraphExpr) -> str:
        match expr:
            case Name(name):
                return name
            case GraphView(operand, source, target):
                axes = self._views.get(id(expr), {})
                sizes = {name: valued(product(factors), self.sizes) for name, factors in axes.items()}
                inner = self._text(operand)
                read = f"({inner})" if isinstance(operand, GraphView) else inner
                return f"{read}[{_pattern(source, sizes)}] -> [{_pattern(target, {})}]"
            case GraphCall(name, arguments):
                given = [f"{key}={self._attribute(value)}" for key, value in expr.attributes]
                return f"{name}({', '.join(map(self._text, arguments))}{'; ' if given else ''}{', '.join(given)})"
        raise TypeError(expr)

    def _attribute(self, value: Expr) -> int | float | Fraction:
        if self.found.is_real(value):
            return float(value_at(value, self.numbers))
        return number_of(attribute_value(value, self.found.claim), self.sizes)


def _summed(text: str, rank: int) -> str:
    axes = ", ".join(f"i{axis}" for axis in range(rank))
    return f"reduce_sum({text}[{axes}] -> [])" if rank else text


def _pattern(side: tuple[tuple[str | int, ...], ...], sizes: Mapping[str, int]) -> str:
    dims = []
    for names in side:
        factors = " ".join(f"{name}={sizes[str(name)]}" if str(name) in sizes else str(name) for name in names)
        dims.append(factors if len(names) == 1 and factors == str(names[0]) else f"({factors})")
    return ", ".join(dims)

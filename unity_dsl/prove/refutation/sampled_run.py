"""Evaluates both sides of a rule at sampled positions of their results.

This serves rules whose conditions force tensors that are too large to be evaluated as a whole. Elements of inputs are
computed from their positions, so that no tensor is stored. A difference depends only on the elements that its position
reads: as many of these as possible are set to 0, and so are all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import nan, prod
from zlib import crc32

import numpy as np

from ...index.equations.instance import Instance
from ...index.evaluation.rounding_bounds import Bounded, exact
from ...index.evaluation.sampled import Places, Sampling
from ...index.evaluation.uniform import uniform
from ...syntax.ast import Name, OperatorDecl
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView
from ..normal_form.form import Unsupported
from ..normal_form.polynomial import product
from ..normal_form.step_limit import OutOfSteps, spend
from ..translation.real_conditions import drawn_reals, meets
from ..translation.rule_forms import call_pattern, declaration, input_dims
from ..translation.symbolic_sizes import valued
from .numeric_run import ELEMENTS, MAX_ELEMENTS, SPARSE, Array, Difference, IllShaped, InputValues, Run

POSITIONS = 24
"""Sampled positions of a result: its corners, and others drawn at random."""
MAX_POSITION = 2_000_000
"""Limit of the elements of one equation that a sampled position needs."""
KEPT = (1, 2, 4, 16, 64, 512)
"""How many elements of each input are kept, in the order tried; the others are set to 0."""
ZEROED = 40
"""Limit of the evaluations that try to set elements of a counterexample to 0."""
MOST_SHOWN = MAX_ELEMENTS
"""Limit of the nonzero elements of a counterexample. Inputs of at most this size are recorded in full."""


@dataclass(frozen=True)
class _Input:
    """An input: its shape, its range, and its elements: a hash of the position with `seed`, else `values` at `places`.

    Without `seed` the elements at all other positions are 0.
    """

    shape: tuple[int, ...]
    integer_range: int | None
    seed: int | None
    places: Places = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    values: Array = field(default_factory=lambda: np.zeros(0))

    def at(self, name: str, places: Places) -> Array:
        if self.seed is not None:
            return _hashed(name, places, self.seed, self.integer_range)
        if not len(self.places):
            return np.zeros(places.shape)
        found = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return np.where(self.places[found] == places, self.values[found], 0.0)


def _hashed(name: str, places: Places, seed: int, integer_range: int | None) -> Array:
    """Numbers by seed as `numeric_run` draws them: small integers, 0, -1, or generic ones of both signs."""
    number = uniform(places, seed, site=crc32(name.encode()))
    if integer_range is not None:
        return np.floor(number * (1 if seed == SPARSE else integer_range))
    if seed >= SPARSE:
        least, most = {0: (0, 0), 1: (-1, -1)}.get(seed - SPARSE, (-1, 1))
        return least + np.floor(number * (most - least + 1))
    if seed % 3 == 2:
        return np.floor(number * 5) - 2
    return np.round((number - 0.5) * 2**12) / 2**10


@dataclass
class SampledRun(Run):
    """A run that computes tensors only at the positions that are asked for."""

    given: dict[str, _Input] = field(default_factory=dict)
    touched: dict[str, list[Places]] = field(default_factory=dict)

    def difference(self, seed: int) -> Difference | None:
        """The first difference at the sampled positions. Raises IllShaped and Unsupported."""
        self.given = dict(self._drawn(seed))
        for output in range(len(self.rule.left)):
            left, right = self.rule.left[output], self.rule.right[output]
            shape, other = self._type(left)[0], self._type(right)[0]
            if shape != other:
                self.given = {name: replace(one, seed=None) for name, one in self.given.items()}
                return self._told(Difference(self.sizes, output, (), prod(shape), prod(other), shapes=(shape, other)))
            for place in _sampled(shape, seed):
                sides = self._differs(output, place)
                if sides is not None:
                    return self._simplest(output, place, sides)
        return None

    def difference_at_places(self, found: Difference) -> Difference | None:
        """The difference at the inputs and the position of a known one; None where the sides agree."""
        for one in found.inputs:
            places = np.arange(len(one.values)) if one.places is None else np.array(one.places, dtype=np.int64)
            self.given[one.name] = _Input(one.shape, one.integer_range, None, places, np.array(one.values, dtype=float))
        shape = self._type(self.rule.left[found.output])[0]
        if found.shapes is not None:
            other = self._type(self.rule.right[found.output])[0]
            return found if found.shapes == (shape, other) and shape != other else None
        sides = self._differs(found.output, int(np.ravel_multi_index(found.position, shape)) if shape else 0)
        return None if sides is None else replace(found, left=sides[0], right=sides[1])

    # ------------------------------------------------------------------------------------------ positions

    def _differs(self, output: int, place: int) -> tuple[float, float] | None:
        """Both values at a position if they certainly differ, else None."""
        self.touched = {}
        sides = (self.rule.left[output], self.rule.right[output])
        left, right = (self._at(side, np.array([place])) for side in sides)
        with np.errstate(all="ignore"):
            apart = np.abs(left.value - right.value) > left.error + right.error
        if not (left.decided & (right.undefined | apart))[0]:
            return None
        other = float(right.value[0])
        return float(left.value[0]), nan if np.isnan(other) or right.undefined[0] else other

    def _simplest(self, output: int, place: int, sides: tuple[float, float]) -> Difference:
        """The difference at a position, with as many input elements as possible 0 and the others ±1 if that suffices.

        Raises Unsupported where too many are left to be shown.
        """
        best = dict(self._needed()), sides
        try:
            for given in self._fewer(best[0]):
                found = self._with(given, output, place)
                if found is not None:
                    best = given, found
                    break
            best = self._halved(best, output, place)
            for name in best[0]:
                signs = {**best[0], name: replace(best[0][name], values=np.sign(best[0][name].values))}
                found = None if name in self.claim.reals else self._with(signs, output, place)
                best = best if found is None else (signs, found)
        except OutOfSteps:
            pass  # the best one found so far is returned
        self.given, sides = best
        if sum(len(one.places) for one in self.given.values()) > MOST_SHOWN:
            raise Unsupported("a counterexample of so many elements")
        shape = self._type(self.rule.left[output])[0]
        position = tuple(int(part) for part in np.unravel_index(place, shape)) if shape else ()
        return self._told(Difference(self.sizes, output, position, *sides))

    def _needed(self) -> Iterator[tuple[str, _Input]]:
        """The inputs with the elements that the last position has read; all others are 0."""
        for name, one in self.given.items():
            parts = self.touched.get(name, [])
            places = np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
            values = one.at(name, places)
            chosen = values != 0
            yield name, replace(one, seed=None, places=places[chosen], values=values[chosen])

    def _fewer(self, given: Mapping[str, _Input]) -> Iterator[dict[str, _Input]]:
        """Only the first elements of each input, since first elements of different inputs are multiplied together."""
        for count in KEPT:
            yield {
                name: one
                if name in self.claim.reals
                else replace(one, places=one.places[:count], values=one.values[:count])
                for name, one in given.items()
            }

    def _halved(
        self, best: tuple[dict[str, _Input], tuple[float, float]], output: int, place: int
    ) -> tuple[dict[str, _Input], tuple[float, float]]:
        """Sets all elements of an input, halves, quarters and so on to 0, as in delta debugging."""
        tries = ZEROED
        for name in best[0]:
            pieces = 1
            while name not in self.claim.reals and pieces <= len(best[0][name].places):
                one, smaller = best[0][name], False
                for part in np.array_split(np.arange(len(one.places)), pieces):
                    if not tries:
                        return best
                    tries -= 1
                    less = replace(one, places=np.delete(one.places, part), values=np.delete(one.values, part))
                    found = self._with({**best[0], name: less}, output, place)
                    if found is not None:
                        best, smaller = ({**best[0], name: less}, found), True
                        break
                pieces = pieces if smaller else 2 * pieces
        return best

    def _with(self, given: dict[str, _Input], output: int, place: int) -> tuple[float, float] | None:
        """Both values with these inputs if they differ, else None."""
        self.given = given
        return self._differs(output, place)

    def _told(self, found: Difference) -> Difference:
        """The difference with the ranks, inputs, written sizes and real numbers at which it occurs."""
        zero = np.zeros(1, dtype=np.int64)
        drawn = {
            name: Fraction(float(one.at(name, zero)[0])) for name, one in self.given.items() if name in self.claim.reals
        }
        inputs = tuple(self._recorded())
        written = self.claim.written(self.sizes)
        return replace(found, ranks=dict(self.ranks), inputs=inputs, written=written, reals=self._reals(drawn))

    def _recorded(self) -> Iterator[InputValues]:
        """The inputs; small ones with all of their elements, others with their listed elements."""
        for name, one in self.given.items():
            kind = int if one.integer_range is not None else float
            if prod(one.shape) <= MOST_SHOWN:
                values = one.at(name, np.arange(prod(one.shape))).tolist()
                yield InputValues(name, (), one.shape, tuple(map(kind, values)), one.integer_range)
            else:
                values = one.values.tolist()
                places = tuple(map(int, one.places))
                yield InputValues(name, (), one.shape, tuple(map(kind, values)), one.integer_range, places)

    # ------------------------------------------------------------------------------------------ tensors

    def _drawn(self, seed: int) -> Iterator[tuple[str, _Input]]:
        reals = drawn_reals(self.claim, [tensor.name for tensor in self.rule.inputs if tensor.real], self.sizes, seed)
        if reals is None:
            raise IllShaped("no numbers are found that meet the conditions")
        if not meets(self.claim, self.sizes, {name: Fraction(value) for name, value in reals.items()}):
            raise IllShaped("no numbers are found that meet the conditions")
        zero = np.zeros(1, dtype=np.int64)
        for tensor in self.rule.inputs:
            if tensor.real:
                yield tensor.name, _Input((), None, None, zero, np.array([reals[tensor.name]]))
                continue
            if any(dim.device for dim in tensor.dims):
                raise Unsupported("a tensor over devices that is too large")
            shape = tuple(valued(product(part), self.sizes) for part in input_dims(tensor, self.claim, self.ranks))
            ends = tensor.integer_range
            yield tensor.name, _Input(shape, None if ends is None else valued(self.claim.size(ends), self.sizes), seed)

    def _type(self, expr: GraphExpr) -> tuple[tuple[int, ...], int | None]:
        """The shape of a tensor, and the bound of its integers."""
        if isinstance(expr, Name):
            made = dict(self.rule.definitions).get(expr.name)
            one = self.given.get(expr.name)
            return self._type(made) if made is not None else (one.shape, one.integer_range) if one else ((), None)
        call, instance = self._instance_of(expr)
        output = instance.outputs[call.result]
        return instance.shape(output), output.integer_range

    def _instance_of(self, expr: GraphExpr) -> tuple[GraphCall, Instance]:
        call = GraphCall("rearrange", (expr,), span=expr.span) if isinstance(expr, GraphView) else expr
        assert isinstance(call, GraphCall)
        decl = declaration(call, self.library)
        if not isinstance(decl, OperatorDecl) or decl.extern:
            raise Unsupported("an operator whose tensors are too large")
        pattern = call_pattern(call, decl)
        key = id(expr)
        if key not in self.instances:
            types = [self._type(part) for part in self._operands(call, pattern)]
            self.instances[key] = self._instance(call, pattern, [one[0] for one in types], [one[1] for one in types])
        return call, self.instances[key]

    def _operands(self, call: GraphCall, pattern: GraphView | None) -> tuple[GraphExpr, ...]:
        return (pattern.operand,) if pattern is not None else call.arguments

    def _at(self, expr: GraphExpr, places: Places) -> Bounded:
        if isinstance(expr, Name):
            made = dict(self.rule.definitions).get(expr.name)
            if made is not None:
                return self._at(made, places)
            self.touched.setdefault(expr.name, []).append(places)
            return exact(self.given[expr.name].at(expr.name, places))
        call, instance = self._instance_of(expr)
        pattern = call_pattern(call, declaration(call, self.library))
        parts = dict(zip((one.name for one in instance.inputs), self._operands(call, pattern), strict=True))
        sampling = Sampling(instance, lambda name, needed: self._at(parts[name], needed), self.library, _spend)
        return sampling.at(instance.outputs[call.result].name, places)


def _spend(elements: int) -> None:
    if elements > MAX_POSITION:
        raise Unsupported(f"a position that needs {elements:,} elements")
    spend(1 + elements // ELEMENTS)


def _sampled(shape: tuple[int, ...], seed: int) -> list[int]:
    """Row-major positions of a tensor, each once: first, last, some at ends or middles of dimensions, random ones."""
    count = prod(shape)
    if not shape:
        return [0]
    random = np.random.default_rng(seed)
    index = np.array([random.choice([0, 1, 2, size // 2, size - 2, size - 1], POSITIONS) % size for size in shape])
    spread = random.integers(0, count, POSITIONS // 3)
    found = [0, count - 1, *np.ravel_multi_index(tuple(index), shape).tolist(), *spread.tolist()]
    return list(dict.fromkeys(found))[:POSITIONS]

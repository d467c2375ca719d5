"""Evaluates both sides of a rule at some positions of their results, where conditions force tensors that are too large.

Elements of inputs are numbers made of their positions, so that no tensor is stored. A difference needs the elements that
its position reads: of these as many as can be are made 0, and all others are.
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
from ..normal_form.step_limit import spend
from ..translation.real_conditions import drawn_reals, meets
from ..translation.rule_forms import call_pattern, declaration, input_dims
from ..translation.symbolic_sizes import valued
from .numeric_run import ELEMENTS, SPARSE, Array, Difference, IllShaped, InputValues, Run

POSITIONS = 24
"""Sampled positions of a result: its corners, and others drawn at random."""
MAX_POSITION = 2_000_000
"""Limit of elements of one equation that the sampled positions need."""
ZEROED = 40
"""Evaluations that make elements of a counterexample 0."""
MOST_SHOWN = 200_000


@dataclass(frozen=True)
class _Input:
    """An input: its shape, range, and its elements, by place or by a hash of it; `default` elsewhere."""

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
    """A run whose tensors are asked for at positions."""

    given: dict[str, _Input] = field(default_factory=dict)
    touched: dict[str, list[Places]] = field(default_factory=dict)

    def difference(self, seed: int) -> Difference | None:
        """The first difference at the sampled positions. Raises IllShaped and Unsupported."""
        self.given = dict(self._drawn(seed))
        for output in range(len(self.rule.left)):
            left, right = self.rule.left[output], self.rule.right[output]
            shape, other = self._type(left)[0], self._type(right)[0]
            if shape != other:
                inputs = tuple(self._recorded({}))
                return self._told(Difference(self.sizes, output, (), prod(shape), prod(other), shapes=(shape, other)), inputs)
            for place in _sampled(shape, seed):
                if self._differs(output, place) is not None:
                    return self._simplest(output, place)
        return None

    def difference_at_places(self, found: Difference) -> Difference | None:
        """The difference at the inputs and the position of a known one, None where there is none."""
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
        """Both values at a position where they certainly differ."""
        self.touched = {}
        sides = (self.rule.left[output], self.rule.right[output])
        left, right = (self._at(side, np.array([place])) for side in sides)
        with np.errstate(all="ignore"):
            apart = np.abs(left.value - right.value) > left.error + right.error
        if not (left.decided & (right.undefined | apart))[0]:
            return None
        other = float(right.value[0])
        return float(left.value[0]), nan if np.isnan(other) or right.undefined[0] else other

    def _simplest(self, output: int, place: int) -> Difference:
        """The difference with as many elements of inputs 0 as are found: halves, quarters, …, then the others ±1."""
        self._differs(output, place)
        kept = {name: np.unique(np.concatenate(parts)) for name, parts in self.touched.items()}
        for name, one in self.given.items():
            places = kept.get(name, np.zeros(0, dtype=np.int64))
            values = one.at(name, places)
            self.given[name] = replace(one, seed=None, places=places[values != 0], values=values[values != 0])
        tries = ZEROED
        for name in self.given:
            pieces = 1
            while tries and len(self.given[name].places) and pieces <= 2 * len(self.given[name].places):
                before, smaller = self.given[name], False
                for part in np.array_split(np.arange(len(before.places)), min(pieces, len(before.places))):
                    if not tries:
                        break
                    tries -= 1
                    left = np.delete(np.arange(len(before.places)), part)
                    self.given[name] = replace(before, places=before.places[left], values=before.values[left])
                    if self._differs(output, place) is not None:
                        smaller = True
                        break
                    self.given[name] = before
                pieces = pieces if smaller else 2 * pieces
        for name, one in self.given.items():
            if name in self.claim.reals:
                continue
            self.given[name] = replace(one, values=np.sign(one.values))
            if self._differs(output, place) is None:
                self.given[name] = one
        sides = self._differs(output, place)
        assert sides is not None
        shape = self._type(self.rule.left[output])[0]
        position = tuple(int(part) for part in np.unravel_index(place, shape)) if shape else ()
        return self._told(Difference(self.sizes, output, position, *sides), tuple(self._recorded(self.given)))

    def _told(self, found: Difference, inputs: tuple[InputValues, ...]) -> Difference:
        drawn = {name: Fraction(float(one.at(name, np.zeros(1, dtype=np.int64))[0])) for name, one in self._reals_given()}
        written = self.claim.written(self.sizes)
        return replace(found, ranks=dict(self.ranks), inputs=inputs, written=written, reals=self._reals(drawn))

    def _reals_given(self) -> Iterator[tuple[str, _Input]]:
        return ((name, one) for name, one in self.given.items() if name in self.claim.reals)

    def _recorded(self, given: Mapping[str, _Input]) -> Iterator[InputValues]:
        for name, one in self.given.items():
            known = given.get(name, replace(one, seed=None))
            kind = int if one.integer_range is not None else float
            values = tuple(kind(value) for value in known.values)
            yield InputValues(name, (), one.shape, values, one.integer_range, tuple(map(int, known.places)))

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
    """The first positions, corners and others of a tensor, each once, row-major."""
    count = prod(shape)
    if not shape:
        return [0]
    random = np.random.default_rng(seed)
    index = np.array([random.choice([0, 1, 2, size // 2, size - 2, size - 1], POSITIONS) % size for size in shape])
    spread = random.integers(0, count, POSITIONS // 3)
    found = [0, count - 1, *np.ravel_multi_index(tuple(index), shape).tolist(), *spread.tolist()]
    return list(dict.fromkeys(found))[:POSITIONS]

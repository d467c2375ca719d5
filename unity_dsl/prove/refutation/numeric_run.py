"""Evaluates both sides of a rule at numbers, by the reference evaluation, and finds where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product as combinations
from math import ceil, isfinite, isinf, isnan, nan, prod
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from ...index.equations.instance import Instance
from ...index.equations.term import walk
from ...index.evaluation.evaluate import evaluate
from ...index.evaluation.rounding_bounds import Bounded, evaluate_bounded
from ...index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from ...index.library import Library
from ...syntax.ast import Name, Number, OperatorDecl, ParallelDecl
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ..normal_form.form import Unsupported
from ..normal_form.guard import Relation
from ..normal_form.polynomial import number, product
from ..normal_form.step_limit import spend
from ..translation.real_conditions import drawn_reals, meets, numbers_at
from ..translation.rule_forms import (
    Ranks,
    Views,
    attribute_value,
    call_pattern,
    calls,
    declaration,
    input_dims,
    number_of,
    taken,
    view_binding,
)
from ..translation.size_assumptions import Claim
from ..translation.symbolic_sizes import Factors, valued

Array = npt.NDArray[Any]
TOLERANCE = 1e-9
SPARSE = 100
"""Seeds from here on draw inputs of 0, of -1, then of -1, 0 and 1. At this seed integers are 0 too: masks are empty."""
LARGE = 200
"""Seeds from here on draw inputs of magnitude up to a million."""
LONG = 75
"""A size large enough for masks that act at large indices only."""
CALLING, ELEMENTS = 4, 1_000
"""Steps counted for each call, and the number of elements counted as one more step."""
MAX_ELEMENTS, MAX_POSITIONS = 200_000, 2_000_000
"""Limits of the elements of a tensor and of the index spaces of a call: the reference evaluates by brute force."""


class IllShaped(Exception):
    """The rule is ill-shaped at these sizes. The first argument says why."""


class TooLarge(IllShaped):
    """A tensor or the index space of an equation is too large to be evaluated as a whole."""


@dataclass(frozen=True)
class Numbers:
    """A tensor of numbers; its leading dimensions are its device axes, in order.

    `error` bounds the distance of each element from its true value, if tracked. `undefined` marks elements without a
    value.
    """

    devices: tuple[str, ...]
    array: Array
    integer_range: int | None = None
    error: Array | None = None
    undefined: Array | None = None

    def in_order(self, devices: tuple[str, ...]) -> Numbers:
        """The tensor with these device axes first, in this order, followed by its others."""
        order = [self.devices.index(name) for name in devices if name in self.devices]
        order += [axis for axis in range(self.array.ndim) if axis not in order]
        error, undefined = (None if a is None else a.transpose(order) for a in (self.error, self.undefined))
        return replace(self, array=self.array.transpose(order), error=error, undefined=undefined)

    def at(self, place: tuple[int, ...]) -> Bounded:
        """The slice of one device."""
        return self.bounded.map(lambda part: part[place])

    @property
    def bounded(self) -> Bounded:
        error = np.zeros(self.array.shape) if self.error is None else self.error
        undefined = np.asarray(False) if self.undefined is None else self.undefined
        return Bounded(self.array, error, undefined)


@dataclass(frozen=True)
class InputValues:
    """The elements of an input in row-major order. The leading dimensions are its device axes, in their order.

    With `places`, `values` are only the elements at these positions, in order; all others are 0.
    """

    name: str
    devices: tuple[str, ...]
    shape: tuple[int, ...]
    values: tuple[float, ...]
    integer_range: int | None = None
    places: tuple[int, ...] | None = None

    def numbers(self) -> Numbers:
        kind = np.float64 if self.integer_range is None else np.int64
        if self.places is not None:
            dense = np.zeros(prod(self.shape), dtype=kind)
            dense[list(self.places)] = self.values
            return Numbers(self.devices, dense.reshape(self.shape), self.integer_range)
        return Numbers(self.devices, np.array(self.values, dtype=kind).reshape(self.shape), self.integer_range)

    def to_json(self) -> dict[str, Any]:
        """The input as JSON values. An input with `places` lists only these and the values there."""
        found = {
            "name": self.name,
            "device_axes": list(self.devices),
            "integer_range": self.integer_range,
            "shape": list(self.shape),
        }
        if self.places is None:
            return {**found, "values": self.numbers().array.tolist()}
        places = [[int(part) for part in np.unravel_index(place, self.shape)] for place in self.places if self.shape]
        return {**found, "places": places, "values": list(self.values)}


@dataclass(frozen=True)
class Difference:
    """A place where the two sides differ: sizes, output, position (device axes first), both values, and the inputs.

    `sizes` are keyed by the prover's symbols, `written` by the names in the rule's text. If the shapes differ, `shapes`
    holds both, the position is empty, and the values are the numbers of elements. `ranks` are those of the rule's rest
    groups; axes of a group `b` have sizes `b.0`, `b.1`, … With `evaluation` the operators' `eval` clauses apply. If the
    right side has no value, `right` is the object `math.nan`, so that equal differences compare as equal. `reals` are
    the real numbers of the rule; those that no condition determines are inputs as well.
    """

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    left: float
    right: float
    ranks: Ranks = field(default_factory=dict)
    inputs: tuple[InputValues, ...] = ()
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    evaluation: bool = False
    written: Mapping[str, int] = field(default_factory=dict)
    reals: Mapping[str, Fraction] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values; numbers that are not finite as texts (`inf`, `nan`)."""
        found: dict[str, Any] = {
            "sizes": dict(self.written),
            "ranks": dict(self.ranks),
            "inputs": [given.to_json() for given in self.inputs if given.name not in self.reals],
            "output": self.output,
            "index": list(self.position),
            "left": _finite(self.left),
            "right": _finite(self.right),
        }
        if self.reals:
            found["numbers"] = {name: float(value) for name, value in self.reals.items()}
        if self.evaluation:
            found["evaluation"] = True
        if self.shapes is not None:
            found["shapes"] = {"left": list(self.shapes[0]), "right": list(self.shapes[1])}
        return found


def _finite(value: float) -> float | str:
    return value if isfinite(value) else str(value)


@dataclass
class Run:
    """The evaluation of a rule at numeric sizes."""

    rule: RuleDecl
    claim: Claim
    library: Library
    ranks: Ranks
    views: Views
    sizes: Mapping[str, int]
    tensors: dict[str, Numbers] = field(default_factory=dict)
    instances: dict[int, Instance] = field(default_factory=dict)

    def difference(self, seed: int) -> Difference | None:
        """The first difference on random inputs. Raises IllShaped and Unsupported."""
        return self.difference_at(dict(self.inputs(seed)))

    def difference_at(self, inputs: Mapping[str, Numbers]) -> Difference | None:
        """The first difference on these inputs. Raises IllShaped and Unsupported.

        None where real numbers among the inputs do not meet the conditions.
        """
        drawn = {name: Fraction(float(given.array)) for name, given in inputs.items() if name in self.claim.reals}
        if not meets(self.claim, self.sizes, drawn):
            return None
        self.tensors = dict(inputs)
        for name, expr in self.rule.definitions:
            self.tensors[name] = self.value(expr)
        for output, (left, right) in enumerate(zip(self.rule.left, self.rule.right, strict=True)):
            found = self._compare(output, self.value(left), self.value(right), inputs)
            if found is not None:
                return replace(
                    found,
                    ranks=dict(self.ranks),
                    inputs=tuple(_recorded(inputs)),
                    written=self.claim.written(self.sizes),
                    reals=self._reals(drawn),
                )
        return None

    def _reals(self, drawn: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """The real numbers of the rule, including those that conditions determine."""
        names = {*drawn, *(name for name, _ in self.claim.real_values)}
        numbers = numbers_at(self.claim, self.sizes, drawn)
        return {name: numbers[name] for name in sorted(names)}

    def _compare(self, output: int, left: Numbers, right: Numbers, inputs: Mapping[str, Numbers]) -> Difference | None:
        """The first difference of one output.

        Refinement: where the left side has a value, the right side must have the same.
        """
        if set(left.devices) != set(right.devices):
            raise IllShaped("the two sides have other device axes")
        first, second = left.array, right.in_order(left.devices).array
        if first.shape != second.shape:
            sizes = float(first.size), float(second.size)
            return Difference(self.sizes, output, (), *sizes, shapes=(first.shape, second.shape))
        with np.errstate(all="ignore"):
            scale = max(1.0, float(np.max(np.abs(first), where=np.isfinite(first), initial=0.0)))
            close = np.isclose(first, second, rtol=TOLERANCE, atol=TOLERANCE * scale)
        apart = ~close & self._has_value(first)
        if np.any(apart) and not any(_is_extern(declaration(call, self.library)) for call in calls(self.rule)):
            apart &= self._certain(output, inputs)
        if not np.any(apart):
            return None
        position = tuple(int(part) for part in np.argwhere(apart)[0])
        found, other = float(first[position]), float(second[position])
        return Difference(self.sizes, output, position, found, nan if isnan(other) else other)

    def _certain(self, output: int, inputs: Mapping[str, Numbers]) -> Array:
        """Elements whose difference is not due to rounding.

        The left side certainly has a value; the right side certainly has none, or one farther away than both error
        bounds.
        """
        bounded = BoundedRun(
            self.rule, self.claim, self.library, self.ranks, self.views, self.sizes, dict(inputs), self.instances
        )
        for name, expr in self.rule.definitions:
            bounded.tensors[name] = bounded.value(expr)
        first = bounded.value(self.rule.left[output])
        left, right = first.bounded, bounded.value(self.rule.right[output]).in_order(first.devices).bounded
        with np.errstate(all="ignore"):
            apart = np.abs(left.value - right.value) > left.error + right.error
        return np.asarray(left.decided & (right.undefined | apart))

    def _has_value(self, array: Array) -> Array:
        """Whether each element has a value. Infinity is one only if an operator contains `inf`.

        Else it is a quotient by 0.
        """
        decls = (declaration(call, self.library) for call in calls(self.rule))
        nodes = (node for decl in decls for made in decl.statements for node in walk(made.value))
        infinite = any(isinstance(node, Number) and isinf(node.value) for node in nodes)
        return ~np.isnan(array) if infinite else np.isfinite(array)

    def inputs(self, seed: int) -> Iterator[tuple[str, Numbers]]:
        """Random inputs. Raises IllShaped where they are too large, Unsupported where a size is not an integer."""
        random = np.random.default_rng(seed)
        numbers = [tensor.name for tensor in self.rule.inputs if tensor.real]
        reals = drawn_reals(self.claim, numbers, self.sizes, seed)
        if reals is None:
            raise IllShaped("no numbers are found that meet the conditions")
        yield from ((name, Numbers((), np.array(value))) for name, value in reals.items())
        for tensor in self.rule.inputs[: len(self.rule.inputs) - len(numbers)]:
            names = tuple(dim.size.name for dim in tensor.dims if dim.device and isinstance(dim.size, Name))
            dims = [valued(product(part), self.sizes) for part in input_dims(tensor, self.claim, self.ranks)]
            shape = (*map(self.degree, names), *dims)
            if prod(shape) > MAX_ELEMENTS:
                raise TooLarge("too large")
            if tensor.integer_range is None:
                yield tensor.name, Numbers(names, _floats(random, shape, seed))
            else:
                bound = valued(self.claim.size(tensor.integer_range), self.sizes)
                yield tensor.name, Numbers(names, random.integers(0, 1 if seed == SPARSE else bound, shape), bound)

    def degree(self, name: str) -> int:
        return valued(self.claim.degree(name), self.sizes)

    # ------------------------------------------------------------------------------------------ calls

    def value(self, expr: GraphExpr) -> Numbers:
        match expr:
            case Name(name):
                return self.tensors[name]
            case GraphView():
                return self._call(GraphCall("rearrange", (expr,), span=expr.span))
            case GraphCall():
                return self._call(expr)
        raise TypeError("a number is no tensor")

    def _call(self, call: GraphCall) -> Numbers:
        decl = declaration(call, self.library)
        pattern = call_pattern(call, decl)
        operands = [self.value(part) for part in ((pattern.operand,) if pattern is not None else call.arguments)]
        own = taken(call, decl)
        mapped = tuple(name for name in operands[0].devices if name not in own)
        new = self._new_devices(call)
        if any(set(operand.devices) != {*mapped, *own} for operand in operands):
            raise IllShaped(f"the operands of `{call.name}` have other device axes")
        if not set(new).isdisjoint(mapped):
            raise IllShaped(f"`{call.name}` makes a device axis that is there already")
        parts = [operand.in_order(mapped) for operand in operands]
        # Parallel ops apply to integers as to floats.
        moved = None if call.degrees is None else operands[0].integer_range
        ranges = [None if call.degrees is not None else operand.integer_range for operand in operands]
        # Shapes depend on sizes alone, so the instance of a call is the same for all inputs.
        key = id(call) if pattern is None else id(pattern)
        if key not in self.instances:
            shapes = [part.array.shape[len(mapped) :] for part in parts]
            self.instances[key] = self._instance(call, pattern, shapes, ranges)
        instance = self.instances[key]
        lead = tuple(map(self.degree, mapped))
        positions = sum(prod(instance.sizes[axis] for axis in equation.space) for equation in instance.equations)
        if positions > MAX_POSITIONS:
            raise TooLarge("too large")
        spend(prod(lead) * (CALLING + positions // ELEMENTS))
        results = [
            self._evaluated(instance, [part.at(place) for part in parts], call.result)
            for place in combinations(*map(range, lead))
        ]
        output = instance.outputs[call.result]
        shape = (*lead, *results[0].value.shape)
        stacked, error, undefined = (
            np.stack([np.broadcast_to(part, results[0].value.shape) for part in each]).reshape(shape)
            for each in zip(*((r.value, r.error, r.undefined) for r in results), strict=True)
        )
        if moved is not None:
            return Numbers((*mapped, *new), stacked.astype(np.int64), moved, error, undefined)
        return Numbers((*mapped, *new), stacked, output.integer_range, error, undefined)

    def _evaluated(self, instance: Instance, operands: Sequence[Bounded], result: int) -> Bounded:
        """One result of an operator on one device."""
        value = evaluate(instance, [operand.value for operand in operands], self.library)[result]
        return Bounded(value, np.zeros(value.shape))

    def _new_devices(self, call: GraphCall) -> tuple[str, ...]:
        decl = declaration(call, self.library)
        if not isinstance(decl, ParallelDecl):
            return ()
        degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
        return tuple(degrees[dim.name] for dim in decl.outputs[0].dims if dim.device)

    def _instance(
        self,
        call: GraphCall,
        pattern: GraphView | None,
        dims: Sequence[tuple[int, ...]],
        ranges: Sequence[int | None],
    ) -> Instance:
        """The instance of a call on one device."""
        decl = declaration(call, self.library)
        shapes = [Shape(shape, bound) for shape, bound in zip(dims, ranges, strict=True)]
        given = {name: number_of(attribute_value(expr, self.claim), self.sizes) for name, expr in call.attributes}
        try:
            if isinstance(decl, ParallelDecl):
                names = zip(decl.degrees, call.degrees or (), strict=True)
                degrees = {name: self.degree(p) for name, p in names}
                return instantiate_parallel(decl, shapes, degrees, given, span=call.span)
            binding = None if pattern is None else self._binding(pattern, dims[0])
            return instantiate(decl, shapes, given, binding=binding, span=call.span)
        except InputError as error:
            raise IllShaped(error.diagnostic.message) from None

    def _binding(self, view: GraphView, shape: Sequence[int]) -> Binding:
        """The dimensions of a view: from the symbolic factors if known, else from the sizes of its names in the rule.

        Raises IllShaped where they do not divide a dimension, Unsupported where several factors are unknown.
        """
        if id(view) in self.views:
            return view_binding(view, self.views[id(view)], self.sizes)
        if len(view.source) != len(shape):
            raise IllShaped(f"a view of {len(view.source)} dimensions of a tensor of {len(shape)}")
        axes: dict[str, Factors] = {}
        for names, size in zip(view.source, shape, strict=True):
            for name, length in self._pattern_axes(names, size):
                axes[name] = (number(length),)
        return view_binding(view, axes, self.sizes)

    def _pattern_axes(self, names: tuple[str | int, ...], size: int) -> Iterator[tuple[str, int]]:
        named = [name for name in names if isinstance(name, str)]
        known = {} if len(named) == 1 else {name: self.sizes[name] for name in named if name in self.sizes}
        unknown = [name for name in named if name not in known]
        rest, over = divmod(size, prod(known.values()) * prod(name for name in names if isinstance(name, int)))
        if over or (not unknown and rest != 1):
            raise IllShaped(f"`({' '.join(map(str, names))})` does not divide a dimension of size {size}")
        if len(unknown) > 1:
            raise Unsupported(f"how `({' '.join(map(str, names))})` divides a dimension of size {size}")
        yield from known.items()
        yield from ((name, rest) for name in unknown)


class BoundedRun(Run):
    """The evaluation of a rule with bounds on the rounding errors."""

    def _evaluated(self, instance: Instance, operands: Sequence[Bounded], result: int) -> Bounded:
        named = {operand.name: value for operand, value in zip(instance.inputs, operands, strict=True)}
        return evaluate_bounded(instance, named, self.library)[instance.outputs[result].name]


def _is_extern(decl: OperatorDecl | ParallelDecl) -> bool:
    return isinstance(decl, OperatorDecl) and decl.extern


def _recorded(inputs: Mapping[str, Numbers]) -> Iterator[InputValues]:
    for name, given in inputs.items():
        values = tuple(given.array.ravel().tolist())
        yield InputValues(name, given.devices, given.array.shape, values, given.integer_range)


def _floats(random: np.random.Generator, shape: tuple[int, ...], seed: int) -> Array:
    """Generic random numbers; every third seed gives small integers, so that there are ties and zeros.

    From `SPARSE` on all numbers are 0, then all -1, then drawn from -1, 0 and 1, so that partial functions are
    undefined somewhere. From `LARGE` on magnitudes go up to a million.
    """
    if seed >= LARGE:
        return np.round(random.choice((-1.0, 1.0), shape) * 10.0 ** random.uniform(0, 6, shape))
    if seed >= SPARSE:
        least, most = {0: (0, 0), 1: (-1, -1)}.get(seed - SPARSE, (-1, 1))
        return random.integers(least, most + 1, shape).astype(np.float64)
    if seed % 3 == 2:
        return random.integers(-2, 3, shape).astype(np.float64)
    return random.normal(size=shape)


def long_sizes(claim: Claim, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Small size assignments with one size of `LONG`, each in turn, that meet the conditions."""
    small = witness_sizes(claim, names, 0)
    for name in names:
        sizes = {**(small or {}), name: LONG}
        if small is not None and claim.holds(sizes):
            yield sizes


def witness_sizes(claim: Claim, names: Sequence[str], seed: int, least: int = 2) -> dict[str, int] | None:
    """Sizes that meet the conditions, pairwise different if possible; None if none are found."""
    random = Random(seed)
    above = {name: max(least_size(claim, name) - least, 0) for name in names}
    for attempt in range(600):
        top = least + len(names) + (attempt // 50 if attempt < 400 else 2 ** (attempt // 50))
        values = random.sample(range(least, top + 1), len(names)) if attempt < 200 else None
        drawn = zip(names, values or [random.randint(least, top) for _ in names], strict=True)
        sizes = {name: above[name] + value for name, value in drawn}
        if claim.holds(sizes):
            return sizes
    return None


def least_size(claim: Claim, name: str) -> int:
    """The least size that linear conditions on it alone admit: 64 for `h >= 64`."""
    least = 1
    for condition in claim.conditions:
        terms = dict(condition.poly.terms)
        slope, offset = terms.pop(((name, 1),), 0), terms.pop((), 0)
        if condition.relation is Relation.NOT_NEGATIVE and slope > 0 and not terms:
            least = max(least, ceil(-offset / slope))
    return least


def small_sizes(claim: Claim, names: Sequence[str], least: int = 2) -> dict[str, int] | None:
    """Sizes that meet the conditions, each as small as the others allow; None if none are found."""
    sizes = witness_sizes(claim, names, 0, least)
    if sizes is None:
        return None
    for name in names:
        found = sizes
        low = max(least, least_size(claim, name))
        smaller = ({**found, name: value} for value in range(low, found[name]))
        sizes = next(filter(claim.holds, smaller), found)
    return sizes

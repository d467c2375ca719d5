"""Which infinities the elements of a value may take. Rules are proved for finite inputs only.

An abstract interpretation of the equations over the sets of infinities of their operands. Inputs, weights and buffers
are initially finite. An undefined result (`1 / 0`, `inf - inf`) does not count as an infinity, because the contract of
rules says nothing about it. Answers are upper bounds: an empty set says that the elements are finite wherever they are
defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod

import numpy as np

from ..graph.graph import Buffer, Graph, Input, Model, Node, Segment, Weight
from ..index.equations.instance import Equation, Instance
from ..index.equations.term import COMPARISONS, affine, children, dim_index, free_axes
from ..index.library import Library
from ..prove.functions.definedness import native
from ..prove.normal_form.form import ABOVE, BELOW, BOTH, NONE
from ..syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size

Infinities = frozenset[int]
"""1 for plus infinity, -1 for minus infinity."""
Known = Mapping[str, Infinities]
BOUNDED = frozenset({"np.cos", "np.sign", "np.sin", "np.tanh", "math.erf"})
"""Native functions that are finite wherever they are defined, also at infinite arguments."""
MAX_WINDOWS = 1 << 16
"""Limit of positions examined in one dimension."""


def infinities(model: Model, library: Library) -> Mapping[tuple[str, ...], Known]:
    """The infinities of each value by name, for the model's graph and every body in it, by path of repeats."""
    walk = _Walk(library)
    walk.graph(model.graph, (), {})
    return walk.found


def infinities_of_results(
    instance: Instance, operands: Sequence[Infinities], library: Library
) -> tuple[Infinities, ...]:
    """The infinities of an operator's results for operands with these infinities."""
    return _Walk(library)._node(instance, tuple(operands))


@dataclass
class _Walk:
    library: Library
    found: dict[tuple[str, ...], Known] = field(default_factory=dict)
    kept: dict[object, tuple[Infinities, ...]] = field(default_factory=dict)

    def graph(self, graph: Graph, path: tuple[str, ...], outside: Known) -> Known:
        """The least fixed point over the updates of buffers: a buffer may hold the value that an update stored."""
        stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
        known = {item.value.name: NONE for item in stored} | dict(outside)
        settled = False
        while not settled:
            values = dict(known)
            for step in graph.steps:
                if isinstance(step, Node):
                    results = self._node(step.instance, tuple(values[value.name] for value in step.arguments))
                    values |= {value.name: one for value, one in zip(step.results, results, strict=True)}
                else:
                    values |= self._segment(step, (*path, step.name), values)
            left = {update.buffer.name: values[update.value.name] for update in graph.updates}
            settled = all(one <= known[name] for name, one in left.items())
            known |= {name: known[name] | one for name, one in left.items()}
        self.found[path] = values
        return values

    def _segment(self, segment: Segment, path: tuple[str, ...], outside: Known) -> Known:
        """The least fixed point over the values that an iteration passes to the next one."""
        captured = {value.name: outside[value.name] for value in segment.captured}
        parts = {series.part.name: outside[series.whole.name] for series in segment.sliced}
        carried = [outside[value.name] for value in segment.initial]
        while True:
            entry = {value.name: one for value, one in zip(segment.entry, carried, strict=True)}
            body = self.graph(segment.body, path, captured | parts | entry)
            following = [one | body[value.name] for one, value in zip(carried, segment.exit, strict=True)]
            if following == carried:
                break
            carried = following
        results = {value.name: one for value, one in zip(segment.results, carried, strict=True)}
        return results | {series.whole.name: body[series.part.name] for series in segment.stacked}

    def _node(self, instance: Instance, operands: tuple[Infinities, ...]) -> tuple[Infinities, ...]:
        if instance.extern:
            return tuple(NONE if output.integer_range is not None else BOTH for output in instance.outputs)
        key = instance.identity, operands
        if key not in self.kept:
            ways = [equations for equations in (instance.equations, instance.evaluation) if equations]
            results = [_results(instance, equations, operands, self.library) for equations in ways]
            self.kept[key] = tuple(NONE.union(*one) for one in zip(*results, strict=True))
        return self.kept[key]


def _results(
    instance: Instance, equations: Sequence[Equation], operands: tuple[Infinities, ...], library: Library
) -> tuple[Infinities, ...]:
    known = {operand.name: one for operand, one in zip(instance.inputs, operands, strict=True)}
    reading = _Equations(instance, library, known, {})
    for equation in equations:
        known[equation.target.name] = reading.equation(equation)
        reading.before[equation.target.name] = equation
    return tuple(known[output.name] for output in instance.outputs)


@dataclass
class _Equations:
    """The equations of one instance. `known` are the infinities of its tensors so far, `before` the equations of those
    tensors.
    """

    instance: Instance
    library: Library
    known: Known
    before: dict[str, Equation]

    def equation(self, equation: Equation) -> Infinities:
        value, kind = equation.value, equation.kind
        if kind in (ReductionKind.MAX, ReductionKind.MIN) and isinstance(value, Read) and value.fill is not None:
            if self._reaches(value, equation):
                beyond = BELOW if kind == ReductionKind.MAX else ABOVE
                return self.known[value.tensor] | (self.of(value.fill, {}) - beyond)
        found = self.of(value, {})
        return BOTH if found and kind == ReductionKind.PROD else found

    def of(self, expr: Expr, names: Known) -> Infinities:
        """The infinities of an expression. `names` are a function's parameters in its definition; other
        names are axes.
        """
        match expr:
            case Number(value):
                return ABOVE if value == inf else BELOW if value == -inf else NONE
            case Name(name):
                return names.get(name, NONE)
            case Read(tensor, _, fill):
                return self.known[tensor] | (NONE if fill is None else self.of(fill, names))
            case Select(_, then, otherwise):
                return self.of(then, names) | self.of(otherwise, names)
            case Apply(function) if function in COMPARISONS:
                return NONE
            case Apply("-", (left, right)) if self._is_greatest(right, left):
                return BELOW if self.of(left, names) else NONE
            case Apply(function, arguments):
                return self._apply(function, arguments, [self.of(one, names) for one in arguments])
        return BOTH if any(self.of(one, names) for one in children(expr)) else NONE

    def _apply(self, function: str, arguments: Sequence[Expr], values: Sequence[Infinities]) -> Infinities:
        decl = self.library.functions.get(function)
        if decl is not None and decl.definition is not None:
            return self.of(decl.definition, dict(zip(decl.parameters, values, strict=True)))
        if not any(values):
            return NONE
        match native(decl) if decl is not None else function:
            case "neg":
                return _opposite(values[0])
            case "+":
                return values[0] | values[1]
            case "-":
                return values[0] | _opposite(values[1])
            case "/" if not values[0]:
                return NONE
            case "*" if sign := _sign(arguments[0]):
                return values[1] if sign > 0 else _opposite(values[1])
            case "*" | "/" if sign := _sign(arguments[1]):
                return values[0] if sign > 0 else _opposite(values[0])
            case "np.exp":
                return values[0] & ABOVE
            case "np.maximum":
                return ((values[0] | values[1]) & ABOVE) | (values[0] & values[1])
            case "np.minimum":
                return ((values[0] | values[1]) & BELOW) | (values[0] & values[1])
            case name if name in BOUNDED:
                return NONE
        return BOTH

    def _is_greatest(self, row: Expr, element: Expr) -> bool:
        """Whether `row` is the maximum over elements that include `element`; then element - row is at most 0."""
        if not isinstance(row, Read) or (equation := self.before.get(row.tensor)) is None:
            return False
        own = tuple(dim_index(dim) for dim in equation.target.dims)
        return equation.kind == ReductionKind.MAX and row.index == own and equation.value == element

    def _reaches(self, read: Read, equation: Equation) -> bool:
        """Whether every element of a reduction reads at least one position inside the tensor; reads outside give the
        fill.

        Dimensions are examined one by one, so no two of them may share a reduced axis.
        """
        over: list[str] = []
        for index, length in zip(read.index, self.instance.shape(self.instance.operand(read.tensor)), strict=True):
            inner = [axis for axis in free_axes(index) if axis in equation.over]
            if set(inner) & set(over) or not self._is_inside(index, length, frozenset(inner)):
                return False
            over += inner
        return True

    def _is_inside(self, index: Expr, length: int, inner: frozenset[str]) -> bool:
        """Whether, at every position of the other axes, the index is in range(length) for at least one position of
        `inner`.
        """
        sizes = self.instance.sizes
        form = affine(index, sizes)
        if form is None or prod(sizes[axis] for axis in form.axes) > MAX_WINDOWS:
            return False
        starts, steps = np.array([form.constant]), np.array([0])
        for axis, coefficient in form.coefficients.items():
            moves = coefficient * np.arange(sizes[axis])
            if axis in inner:
                steps = np.add.outer(steps, moves).ravel()
            else:
                starts = np.add.outer(starts, moves).ravel()
        places = np.add.outer(starts, steps)
        return bool(((places >= 0) & (places < length)).any(axis=1).all())


def _opposite(values: Infinities) -> Infinities:
    return frozenset(-one for one in values)


def _sign(expr: Expr) -> int:
    """The sign of a size or of a finite nonzero number; 0 for other factors."""
    if isinstance(expr, Number):
        return 0 if expr.value == 0 or abs(expr.value) == inf else 1 if expr.value > 0 else -1
    return 1 if isinstance(expr, Size) else 0

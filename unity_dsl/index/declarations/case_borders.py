"""Finds sizes and attributes at which a declaration passes from one of its cases to another.

A case is an outcome of a comparison, a bound, an integer quotient or a filled read that positions, sizes and attributes
decide without any data: `n < 120`, `s // 30`, `k * 2 > 23`, `x[n - 64 else 0]`. Each size and each attribute is varied
alone along a ladder of numbers, while the others are small. If two steps have different outcomes, bisection finds where
they change. Indices are sampled: the first and the last positions, those at constants, and some between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FunctionDecl, Name, Number, OperatorDecl, Read, Select, Size
from ...syntax.diagnostic import InputError
from ...syntax.rational import Rational, plain_number
from ..equations.instance import Equation, Instance
from ..equations.term import COMPARISONS, children
from ..equations.where_conditions import counts
from ..evaluation.evaluate import applied

Functions = Mapping[str, FunctionDecl]
Outcomes = frozenset[tuple[Any, ...]]
Build = Callable[[Mapping[str, int], Mapping[str, Rational]], Instance]

LARGEST_SIZE, LARGEST_NUMBER = 2**24, 2**40
"""The ends of the ladders of sizes and of attributes."""
ENDS, BETWEEN, FEW = 12, 12, 6
"""Positions sampled at each end of an axis, and between; `FEW` replaces both if an equation has three axes or more."""
CROSSINGS = 8
"""The most borders that are searched for along one size or attribute."""
QUOTIENTS = 3
"""Integer quotients beyond this one count as one case."""


@dataclass(frozen=True)
class Border:
    """A number of one size or attribute at which a case begins or ends, or a neighbour of such a number."""

    name: str
    value: Rational


def borders(
    operator: OperatorDecl,
    build: Build,
    base: tuple[Mapping[str, int], Mapping[str, Rational]],
    constants: Iterable[float],
    functions: Functions,
) -> tuple[Border, ...]:
    """The borders along every size that shapes bind and every attribute, with the rest at `base`."""
    sizes, attributes = base
    near = sorted({int(number) for number in map(abs, constants) if isfinite(number) and number < LARGEST_NUMBER})
    found: list[Border] = []
    for name in (*sizes, *attributes):
        search = _Search(operator, build, sizes, attributes, name, near, functions)
        found += [Border(name, value) for value in search.values()]
    return tuple(found)


def equal_names(operator: OperatorDecl) -> dict[str, frozenset[str]]:
    """For each size or attribute that a condition equates with another one, all names that are equal to it."""
    names = {attribute.name for attribute in operator.attributes}
    names |= {dim.name for tensor in operator.inputs for dim in tensor.dims}
    found: dict[str, frozenset[str]] = {}
    for left, right in counts(operator.conditions, names):
        both = found.get(left, frozenset({left})) | found.get(right, frozenset({right}))
        found |= dict.fromkeys(both, both)
    return found


# ---------------------------------------------------------------------------------------------- the search


@dataclass(frozen=True)
class _Search:
    """The search along one size or attribute."""

    operator: OperatorDecl
    build: Build
    sizes: Mapping[str, int]
    attributes: Mapping[str, Rational]
    name: str
    near: Sequence[int]
    functions: Functions

    def values(self) -> tuple[int, ...]:
        """The last number of each case and the first two of the next one."""
        outcomes: dict[int, Outcomes | None] = {}

        def at(value: int) -> Outcomes | None:
            if value not in outcomes:
                outcomes[value] = self.outcomes(value)
            return outcomes[value]

        found: set[int] = set()
        crossings = 0
        for ladder in self.ladders():
            known: set[tuple[Any, ...]] = set()
            before: int | None = None
            for step in ladder:
                now = at(step)
                if now is None:
                    continue
                while before is not None and not now <= known and crossings < CROSSINGS:
                    last, first = _crossing(before, step, partial(self._is_within, at, frozenset(known)))
                    crossings += 1
                    found |= {last, first, first + (first > last) - (first < last)}
                    known |= at(first) or now
                    before = first
                known |= now
                before = step
        return tuple(sorted(found, key=abs))

    @staticmethod
    def _is_within(at: Callable[[int], Outcomes | None], known: Outcomes, value: int) -> bool:
        outcomes = at(value)
        return outcomes is None or outcomes <= known

    def ladders(self) -> Iterator[list[int]]:
        """Increasing numbers from the least ones on, and for an attribute also decreasing ones."""
        is_size = self.name in self.sizes
        largest = LARGEST_SIZE if is_size else LARGEST_NUMBER
        steps = {*range(9), *(factor * 2**power for power in range(40) for factor in (2, 3))}
        steps |= {step for number in self.near for step in (number - 1, number, number + 1, number + 2)}
        upwards = sorted(step for step in steps if int(is_size) <= step <= largest)
        yield upwards
        if not is_size:
            yield [-step for step in upwards]

    def outcomes(self, value: int) -> Outcomes | None:
        """The cases that occur at this number; None if the conditions refuse it."""
        names = equal_names(self.operator).get(self.name, frozenset({self.name}))
        sizes = {**self.sizes, **{name: value for name in names if name in self.sizes}}
        attributes = {**self.attributes, **{name: value for name in names if name in self.attributes}}
        try:
            return cases(self.build(sizes, attributes), self.near, self.functions)
        except (InputError, ArithmeticError, ValueError):
            return None


def _crossing(low: int, high: int, before: Callable[[int], bool]) -> tuple[int, int]:
    """Neighbouring numbers between which `before` ceases to hold, found by bisection."""
    while abs(high - low) > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return low, high


# ---------------------------------------------------------------------------------------------- cases


def cases(instance: Instance, near: Sequence[int], functions: Functions) -> Outcomes:
    """The outcomes at sampled positions that depend on no data, each with its place in the equations."""
    found: set[tuple[Any, ...]] = set()
    for equations in (instance.equations, instance.evaluation):
        targets = {equation.target.name: equation for equation in equations}
        with np.errstate(all="ignore"):
            for equation in equations:
                _Cases(instance, equation, targets, near, functions, found).visit()
    return frozenset(found)


@dataclass(frozen=True)
class _Cases:
    """Records the cases of one equation in `found`."""

    instance: Instance
    equation: Equation
    targets: Mapping[str, Equation]
    near: Sequence[int]
    functions: Functions
    found: set[tuple[Any, ...]]

    def visit(self) -> None:
        axes = [axis for axis in self.equation.space if self.instance.sizes[axis] > 1]
        positions = {
            axis: self.positions(axis, len(axes)).reshape([-1 if other == axis else 1 for other in axes])
            for axis in axes
        }
        bound = {axis: positions.get(axis, np.zeros(1, dtype=np.int64)) for axis in self.equation.space}
        self.value(self.equation.value, bound, (self.equation.target.name,))

    def positions(self, axis: str, axes: int) -> npt.NDArray[np.int64]:
        size = self.instance.sizes[axis]
        ends, between = (ENDS, BETWEEN) if axes < 3 else (FEW, FEW)
        if size <= 2 * ends + between:
            return np.arange(size)
        inner = np.geomspace(ends, size - 1, between).astype(np.int64)
        marked = [place for number in self.near[:ends] for place in (number - 1, number, number + 1)]
        found = {*range(ends), *range(size - ends, size), *inner.tolist(), *marked}
        return np.array(sorted(place for place in found if 0 <= place < size))

    def value(self, expr: Expr, bound: Mapping[str, Any], place: tuple[Any, ...]) -> Any:
        """The value at the positions; None if data decide it."""
        parts = [self.value(part, bound, (*place, number)) for number, part in enumerate(children(expr))]
        match expr:
            case Number(number):
                return plain_number(number)
            case Size(name):
                return self.instance.sizes[name]
            case Name(name):
                return bound.get(name)
            case Read():
                return self.read(expr, parts, place)
            case _ if any(part is None for part in parts):
                return None
            case Select():
                return np.where(*parts)
            case Apply(function):
                return self.apply(function, parts, place)
        return None

    def apply(self, function: str, parts: list[Any], place: tuple[Any, ...]) -> Any:
        declared = self.functions.get(function)
        if declared is not None and declared.definition is not None:
            bound = dict(zip(declared.parameters, parts, strict=True))
            return self.value(declared.definition, bound, (*place, function))
        if function in COMPARISONS or function in ("maximum", "minimum"):
            self.note(place, np.sign(np.subtract(*parts)))
        elif function == "abs":
            self.note(place, np.sign(parts[0]))
        elif function in ("//", "%"):
            self.note(place, np.clip(np.floor_divide(*parts), -QUOTIENTS, QUOTIENTS))
        return applied(function, [np.asarray(part) for part in parts], self.functions)

    def read(self, read: Read, parts: list[Any], place: tuple[Any, ...]) -> Any:
        """Records which positions are inside the tensor.

        Returns the tensor's value if it depends on positions alone.
        """
        index = parts[: len(read.index)]
        if read.fill is not None:
            shape = self.instance.shape(self.instance.operand(read.tensor))
            for number, (part, size) in enumerate(zip(index, shape, strict=True)):
                if part is not None:
                    self.note((*place, number), np.where(part < 0, -1, np.where(part >= size, 1, 0)))
            return None
        made = self.targets.get(read.tensor)
        if made is None or made.kind is not None or any(part is None for part in index):
            return None
        if any(len(dim) != 1 for dim in made.target.dims):
            return None
        return self.value(made.value, dict(zip(made.target.axes, index, strict=True)), (*place, read.tensor))

    def note(self, place: tuple[Any, ...], outcomes: Any) -> None:
        self.found.update((*place, float(outcome)) for outcome in np.unique(outcomes) if not np.isnan(outcome))

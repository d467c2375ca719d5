"""Evaluates an instance in float64 with a bound on the rounding error of every element (running error analysis).

Every operation adds its rounding error to the propagated errors of its operands (Higham, Accuracy and Stability of
Numerical Algorithms, 3.3). Sums and products use the exact rounding error of Knuth's and Dekker's error-free
transformations. Whole numbers and short binary fractions then have error 0, and comparisons of them are decided. An
infinite error marks an element that is not known: the statements have no value there (1 / 0), or float64 cannot hold
it. Two kinds of elements are certain: those with a finite error have a value, and those that are `undefined` have none:

    x / 0    x // 0    x % 0    0 * inf    inf - inf    inf / inf    of operands that are known, the 0 without an error
    a primitive that gives NaN at an argument and at both ends of its bound: domains have no gaps as narrow as rounding
    a primitive that gives an infinity at a moderate argument without an error, which does not overflow: log(0)
    a read outside of a tensor, and every result computed from an undefined one, except for the branch not taken

Others may have a value or not: an infinity from an overflow, NaN where rounding may have moved an argument.

With `single` the bounds are those of float32. A result that float32 cannot hold exactly gets half a unit of its last
place more. A result that is too large or too small for float32 to hold to full precision is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FunctionDecl, Name, Number, Read, ReductionKind, Select, Size, Uniform
from ...syntax.rational import Rational, exact_number, plain_number
from ..equations.instance import Equation, Instance, Operand
from .native_calls import COMPARISON_CALLS, evaluate_native
from .uniform import uniform as counter_uniform

if TYPE_CHECKING:
    from ..library import Library

Array = npt.NDArray[Any]

EPSILON = 2.0**-52
"""Twice the relative error of one rounding."""
ULPS = 8
"""Assumed error bound of NumPy's elementary functions, in units of EPSILON."""
_SPLITTER = 2.0**27 + 1
_LARGEST_SPLIT = 1e150
_MODERATE, _MINUTE = 64.0, 1e-3
"""Moderate arguments, at which no primitive overflows or underflows: an infinite value there is a pole."""
_LEAST = 1e-300
_SMALLEST = 5e-324
SINGLE_EPSILON = 2.0**-23
_SINGLE_LEAST, _SINGLE_LARGEST = 2.0**-120, 2.0**127
_SINGLE: ContextVar[bool] = ContextVar("single", default=False)
_ROUNDS_NOTHING = frozenset({"np.abs", "np.floor", "np.maximum", "np.minimum", "np.negative", "np.sign"})


@dataclass(frozen=True)
class Bounded:
    """Numbers, each with a bound on its distance from the true value; the bound is infinite if none is known.

    `undefined` is true where there is certainly no true value; the error is infinite there.
    """

    value: Array
    error: Array
    undefined: Array = field(default_factory=lambda: np.asarray(False))

    @property
    def decided(self) -> Array:
        """Where the error is finite."""
        return np.isfinite(self.error)

    def map(self, change: Callable[[Array], Array]) -> Bounded:
        """All three arrays, each rearranged by `change`."""
        return Bounded(
            change(self.value), change(self.error), change(np.broadcast_to(self.undefined, self.value.shape))
        )


def exact(value: npt.ArrayLike) -> Bounded:
    """Numbers without error. Infinities are values, NaN is not."""
    number = np.asarray(value, dtype=np.float64)
    return Bounded(number, np.where(np.isnan(number), np.inf, 0.0), np.isnan(number))


def literal(value: Rational) -> Bounded:
    """A number of a declaration; a decimal has the error of its rounding to float64."""
    nearest = exact(plain_number(value))
    if not np.isfinite(nearest.value):
        return nearest
    off = abs(exact_number(value) - Fraction(float(nearest.value)))
    return Bounded(nearest.value, _roundoff(nearest.value, np.asarray(float(off) * (1 + EPSILON))))


def evaluate_bounded(
    instance: Instance,
    inputs: Mapping[str, npt.ArrayLike | Bounded],
    library: Library,
    *,
    training: bool = True,
    rounded: bool = False,
    single: bool = False,
) -> dict[str, Bounded]:
    """All inputs, intermediates and outputs by name; integers as integral floats. No extern operators.

    With `rounded` the inputs have rounding errors of their own: the bounds cover any backward stable algorithm, not
    just the statements. With `single` they are bounds of arithmetic in float32; the values are still computed in
    float64.
    """
    with _arithmetic(single):
        return _evaluate(instance, inputs, library, training=training, rounded=rounded)


@contextmanager
def _arithmetic(single: bool) -> Iterator[None]:
    token = _SINGLE.set(single)
    try:
        yield
    finally:
        _SINGLE.reset(token)


def _evaluate(
    instance: Instance,
    inputs: Mapping[str, npt.ArrayLike | Bounded],
    library: Library,
    *,
    training: bool,
    rounded: bool,
) -> dict[str, Bounded]:
    values = {name: value if isinstance(value, Bounded) else exact(value) for name, value in inputs.items()}
    if rounded:
        real = {operand.name for operand in instance.inputs if operand.integer_range is None}
        values |= {name: _rounded(value) for name, value in values.items() if name in real}
    equations = instance.equations if training or not instance.evaluation else instance.evaluation
    with np.errstate(all="ignore"):
        for equation in equations:
            values[equation.target.name] = _Space(instance, equation, values, library.functions).result()
    return values


def evaluate_function(expr: Expr, bound: Mapping[str, Bounded], functions: Mapping[str, FunctionDecl]) -> Bounded:
    """The definition or derivative of an element function at these values of its names."""
    with np.errstate(all="ignore"):
        return _define(expr, bound, functions)


def call_function(
    function: FunctionDecl, arguments: Sequence[Bounded], functions: Mapping[str, FunctionDecl]
) -> Bounded:
    """An element function: its definition, or for a primitive its `numpy:` line."""
    with np.errstate(all="ignore"):
        return _call(function, arguments, functions)


# ---------------------------------------------------------------------------------------------- equations


class _Space:
    """The index space of one equation: arrays have a dimension per axis, of length 1 where they do not depend on it."""

    def __init__(
        self,
        instance: Instance,
        equation: Equation,
        values: Mapping[str, Bounded],
        functions: Mapping[str, FunctionDecl],
    ) -> None:
        self.sizes = instance.sizes
        self.equation = equation
        self.values = values
        self.functions = functions
        self.axes = equation.space

    def result(self) -> Bounded:
        target: Operand = self.equation.target
        shape = tuple(self.sizes[axis] for axis in target.axes)
        space = tuple(self.sizes[axis] for axis in self.axes)
        value = self.value(self.equation.value)
        if self.equation.kind is not None:
            count = prod(space[len(shape) :])
            whole = value.map(lambda part: np.broadcast_to(part, space).reshape(*shape, count))
            value = reduce_bounded(self.equation.kind, whole, count)
        dims = tuple(prod(self.sizes[axis] for axis in dim) for dim in target.dims)
        return value.map(lambda part: np.array(np.broadcast_to(part, shape)).reshape(dims))

    def value(self, expr: Expr) -> Bounded:
        match expr:
            case Number(number):
                return literal(number)
            case Size(name):
                return exact(self.sizes[name])
            case Name(name):
                return exact(self.index(name))
            case Apply(function, arguments):
                return apply_bounded(function, [self.value(argument) for argument in arguments], self.functions)
            case Select(condition, then, otherwise):
                return select_bounded(self.value(condition), self.value(then), self.value(otherwise))
            case Read():
                return self.read(expr)
            case Uniform(index):
                return exact(counter_uniform(self.position(index)))
        raise TypeError(f"{self.equation.target.name}: {type(expr).__name__} in an equation")

    def index(self, axis: str) -> npt.NDArray[np.int64]:
        shape = [1] * len(self.axes)
        shape[self.axes.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis], dtype=np.int64).reshape(shape)

    def read(self, read: Read) -> Bounded:
        tensor = self.values[read.tensor]
        parts = [self.value(part) for part in read.index]
        inside: Array = np.asarray(True)
        known: Array = np.asarray(True)
        places: list[Array] = []
        for part, size in zip(parts, tensor.value.shape, strict=True):
            valid = (part.value >= 0) & (part.value < size)
            inside, known = inside & valid, known & (part.error == 0)
            places.append(np.where(valid, part.value, 0).astype(np.int64))
        found = tensor.map(lambda part: np.asarray(part[tuple(places)]))
        fill = exact(np.nan) if read.fill is None else self.value(read.fill)
        found = chosen_bounded(inside, found, fill)
        return Bounded(found.value, np.where(known, found.error, np.inf), known & found.undefined)

    def position(self, index: tuple[Expr, ...]) -> npt.NDArray[np.int64]:
        """Row-major positions over the axes, in the order that `uniform` names them."""
        position: npt.NDArray[np.int64] = np.zeros((1,) * len(self.axes), dtype=np.int64)
        for part in index:
            assert isinstance(part, Name)
            position = position * self.sizes[part.name] + self.index(part.name)
        return position


def reduce_bounded(kind: ReductionKind, terms: Bounded, count: int) -> Bounded:
    """The reduction over the last axis."""
    if kind in (ReductionKind.MAX, ReductionKind.MIN):
        extremum = np.max if kind is ReductionKind.MAX else np.min
        value, low, high = (
            np.asarray(extremum(part, axis=-1))
            for part in (terms.value, terms.value - terms.error, terms.value + terms.error)
        )
        undefined = np.any(terms.undefined, axis=-1)
        # The bounds of a number that overflowed are infinite: its error is then NaN, which counts as not known.
        return _known(value, np.maximum(_distance(high, value), _distance(value, low)), undefined)
    total = _by_halves(_plus if kind is ReductionKind.SUM else _times, terms, count)
    if kind is ReductionKind.SUM:
        # Other orders of summation round differently, unless this one is exact.
        carried = np.sum(terms.error, axis=-1)
        rounds = total.error > carried
        size = np.sum(np.where(np.isfinite(terms.value), np.abs(terms.value), 0.0), axis=-1)
        error = np.where(rounds, np.fmax(total.error, carried + _epsilon() * size), total.error)
        total = Bounded(total.value, error, total.undefined)
    return total


def _by_halves(step: Callable[[Bounded, Bounded], Bounded], terms: Bounded, count: int) -> Bounded:
    """Pairwise reduction: the last axis folded in half until one position is left."""
    while count > 1:
        half = count // 2
        first, second, last = (_part(terms, *ends) for ends in ((0, half), (half, 2 * half), (2 * half, count)))
        value = step(first, second)
        pairs = (value.value, last.value), (value.error, last.error), (value.undefined, last.undefined)
        terms, count = Bounded(*(np.concatenate(pair, axis=-1) for pair in pairs)), count - half
    return terms.map(lambda part: part[..., 0])


def _part(terms: Bounded, start: int, stop: int) -> Bounded:
    return terms.map(lambda part: part[..., start:stop])


def _distance(high: Array, low: Array) -> Array:
    return np.where(high == low, 0.0, high - low)


# ---------------------------------------------------------------------------------------------- terms


def _define(expr: Expr, bound: Mapping[str, Bounded], functions: Mapping[str, FunctionDecl]) -> Bounded:
    match expr:
        case Number(number):
            return literal(number)
        case Name(name):
            return bound[name]
        case Apply(function, arguments):
            return apply_bounded(function, [_define(argument, bound, functions) for argument in arguments], functions)
        case Select(condition, then, otherwise):
            return select_bounded(*(_define(part, bound, functions) for part in (condition, then, otherwise)))
    raise TypeError(f"{type(expr).__name__} in the definition of a function")


def apply_bounded(function: str, parts: Sequence[Bounded], functions: Mapping[str, FunctionDecl]) -> Bounded:
    if function in _ARITHMETIC:
        return _ARITHMETIC[function](*parts)
    if function in COMPARISON_CALLS:
        return _compare(function, *parts)
    return _call(functions[function], parts, functions)


def _call(function: FunctionDecl, parts: Sequence[Bounded], functions: Mapping[str, FunctionDecl]) -> Bounded:
    if function.definition is not None:
        return _define(function.definition, dict(zip(function.parameters, parts, strict=True)), functions)
    assert function.numpy is not None
    call = function.numpy

    def at(values: Sequence[Array]) -> Array:
        bound = dict(zip(function.parameters, values, strict=True))
        return np.asarray(evaluate_native(call, bound), dtype=np.float64)

    values = [part.value for part in parts]
    value = at(values)
    plain = call.function in _ROUNDS_NOTHING and not call.keywords
    rounded: Array = np.asarray(0.0) if plain else ULPS * _epsilon() * np.abs(value)
    if call.function == "np.sqrt":
        whole = _times_roundoff(value, value) + (value * value - values[0]) == 0
        rounded = np.where(whole, _roundoff(value, np.zeros(value.shape)), rounded)
    moderate = _all((part.value == 0) | (abs(part.value) <= _MODERATE) & (abs(part.value) >= _MINUTE) for part in parts)
    underflow = ~moderate & _all(np.isfinite(part.value) for part in parts) & (np.abs(value) < _LEAST) & (not plain)
    error = np.where(np.isinf(value), 0.0, rounded + np.where(underflow, _LEAST, 0.0))
    outside, sure = np.isnan(value), _all(part.error == 0 for part in parts)
    for place, part in enumerate(parts):
        # At least one ulp: a smaller error would be lost in the addition.
        distance = np.where(part.error == 0, 0.0, np.fmax(part.error, np.abs(np.spacing(part.value))))
        for moved in (part.value - distance, part.value + distance):
            near = at([*values[:place], moved, *values[place + 1 :]])
            error = error + np.where(part.error == 0, 0.0, _distance(np.fmax(near, value), np.fmin(near, value)))
            error = np.where(np.isnan(near) & (part.error != 0), np.inf, error)
            outside = outside & np.isnan(near)
    pole = np.isinf(value) & sure & moderate
    return _overflow(value, error, parts, pole | (outside & _all(part.decided for part in parts)))


def select_bounded(condition: Bounded, then: Bounded, otherwise: Bounded) -> Bounded:
    """The branch taken; if the condition is not decided, the union of both bounds."""
    chosen = chosen_bounded(condition.value != 0, then, otherwise)
    either = np.fmax(then.error, otherwise.error) + _distance(
        np.fmax(then.value, otherwise.value), np.fmin(then.value, otherwise.value)
    )
    certain = condition.error == 0
    undefined = condition.undefined | np.where(certain, chosen.undefined, then.undefined & otherwise.undefined)
    return _known(chosen.value, np.where(certain, chosen.error, either), undefined)


def chosen_bounded(taken: Array, then: Bounded, otherwise: Bounded) -> Bounded:
    pairs = (then.value, otherwise.value), (then.error, otherwise.error), (then.undefined, otherwise.undefined)
    return Bounded(*(np.where(taken, *pair) for pair in pairs))


def _compare(sign: str, left: Bounded, right: Bounded) -> Bounded:
    """1 or 0, with error 1 if rounding may decide; 0 if a side has no value (`!=`: 1).

    Not known if that side is 1 / 0, an infinity in float64, which NumPy and PyTorch compare as such.
    """
    value = COMPARISON_CALLS[sign](left.value, right.value).astype(np.float64)
    apart = np.abs(left.value - right.value) > left.error + right.error
    same = (left.value == right.value) & (left.error == 0) & (right.error == 0)
    close = np.where(apart | same, 0.0, 1.0)
    missing = (left.undefined & np.isnan(left.value)) | (right.undefined & np.isnan(right.value))
    return Bounded(value, np.where(missing, 0.0, np.where(left.decided & right.decided, close, np.inf)))


def _plus(left: Bounded, right: Bounded) -> Bounded:
    value = np.asarray(left.value + right.value)
    virtual = value - left.value
    roundoff = (left.value - (value - virtual)) + (right.value - virtual)
    roundoff = _roundoff(value, np.where(np.isfinite(value), np.abs(roundoff), 0.0))
    opposite = np.isnan(value) & left.decided & right.decided
    return _overflow(value, left.error + right.error + roundoff, (left, right), opposite)


def _minus(left: Bounded, right: Bounded) -> Bounded:
    return _plus(left, _negative(right))


def _negative(part: Bounded) -> Bounded:
    return Bounded(np.negative(part.value), part.error, part.undefined)


def _times(left: Bounded, right: Bounded) -> Bounded:
    value = np.asarray(left.value * right.value)
    error = _roundoff(value, np.where(np.isfinite(value), np.abs(_times_roundoff(left.value, right.value)), 0.0))
    undefined: Array = np.asarray(False)
    for one, other in ((left, right), (right, left)):
        # infinity times a factor of certain sign is infinite
        certain = np.isinf(one.value) & (np.abs(other.value) > other.error)
        error = error + np.where(certain, 0.0, _at_least_times(np.abs(one.value), other.error))
        undefined = undefined | (np.isinf(one.value) & one.decided & (other.value == 0) & (other.error == 0))
    error = error + _at_least_times(left.error, right.error)
    return _overflow(value, error, (left, right), undefined)


def _at_least_times(left: Array, right: Array) -> Array:
    """The product of non-negative numbers, rounded up if it underflows to 0."""
    return np.where((left == 0) | (right == 0), 0.0, np.fmax(left * right, _SMALLEST))


def _times_roundoff(left: Array, right: Array) -> Array:
    """The rounding error of a float64 product (Dekker); its usual bound if that overflows."""
    value = left * right
    (a, b), (c, d) = _split(left), _split(right)
    found: Array = ((a * c - value) + a * d + b * c) + b * d
    large = (np.abs(left) > _LARGEST_SPLIT) | (np.abs(right) > _LARGEST_SPLIT)
    small = (left != 0) & (right != 0) & (np.abs(value) < 1 / _LARGEST_SPLIT)
    return np.where(large | small, np.abs(value) * EPSILON + _SMALLEST * small, found)


def _split(value: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * value
    high = scaled - (scaled - value)
    return high, value - high


def _over(left: Bounded, right: Bounded) -> Bounded:
    value = np.asarray(left.value / right.value)
    whole = (value * right.value == left.value) & (_times_roundoff(value, right.value) == 0)
    exactly = whole | np.isinf(right.value)
    roundoff = _roundoff(value, np.where(exactly, 0.0, _epsilon() * np.abs(value) + _SMALLEST))
    least = np.abs(right.value) - right.error
    spread = left.error + _at_least_times(np.abs(value), right.error)
    error = np.where(
        least > 0, np.where(spread == 0, 0.0, spread / least) + np.where(np.isfinite(value), roundoff, 0), np.inf
    )
    infinite = np.isinf(left.value) & left.decided & np.isinf(right.value) & right.decided
    return _overflow(value, error, (left, right), infinite | _is_zero(right))


def _floor_over(left: Bounded, right: Bounded) -> Bounded:
    value = np.asarray(np.floor_divide(left.value, right.value))
    quotient = _over(left, right)
    steady = np.floor(quotient.value - quotient.error) == np.floor(quotient.value + quotient.error)
    certain = (left.error == 0) & (right.error == 0)
    return _overflow(
        value, np.where((certain | steady) & quotient.decided, 0.0, np.inf), (left, right), _is_zero(right)
    )


def _modulo(left: Bounded, right: Bounded) -> Bounded:
    value = np.asarray(np.mod(left.value, right.value))
    times = _floor_over(left, right)
    spread = left.error + np.where(right.error == 0, 0.0, np.abs(times.value) * right.error)
    inexact = (left.value != np.floor(left.value)) | (right.value != np.floor(right.value))
    error = spread + times.error + _epsilon() * np.abs(right.value) * inexact
    return _overflow(value, error, (left, right), _is_zero(right))


def _is_zero(part: Bounded) -> Array:
    return np.asarray((part.value == 0) & (part.error == 0))


_ARITHMETIC: Mapping[str, Callable[..., Bounded]] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _over,
    "//": _floor_over,
    "%": _modulo,
    "neg": _negative,
}


def _overflow(value: Array, error: Array, parts: Sequence[Bounded], undefined: Array) -> Bounded:
    """Elements are not known where finite operands overflow, and undefined where `undefined` or an operand is."""
    finite = _all(np.isfinite(part.value) for part in parts)
    for part in parts:
        undefined = undefined | part.undefined
    lost = np.isinf(value) & finite
    if _SINGLE.get():
        size = np.abs(value)
        lost = lost | ((value != 0) & (size < _SINGLE_LEAST)) | (np.isfinite(value) & (size > _SINGLE_LARGEST))
    return _known(value, np.where(lost, np.inf, error), undefined)


def _epsilon() -> float:
    """Twice the relative error of one rounding, in the arithmetic of the bounds."""
    return SINGLE_EPSILON if _SINGLE.get() else EPSILON


def _roundoff(value: Array, found: Array) -> Array:
    """The rounding error of a result: that of float64, or of float32, which holds fewer numbers exactly."""
    if not _SINGLE.get():
        return found
    holds = value.astype(np.float32) == value
    return np.where(holds | ~np.isfinite(value), found, found + SINGLE_EPSILON / 2 * np.abs(value))


def _known(value: Array, error: Array, undefined: Array) -> Bounded:
    undefined = np.broadcast_to(undefined, value.shape)
    return Bounded(value, np.where(np.isnan(value) | np.isnan(error) | undefined, np.inf, error), undefined)


def _all(flags: Iterable[Array]) -> Array:
    return np.asarray(np.all(np.broadcast_arrays(*flags), axis=0))


def _rounded(number: Bounded) -> Bounded:
    size = np.where(np.isfinite(number.value), np.abs(number.value), 0.0)
    return Bounded(number.value, number.error + _epsilon() * size, number.undefined)

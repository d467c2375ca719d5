"""Tests declared facts of element functions at points, and rejects facts with a counterexample.

Points are left out if float64 overflows or underflows there: finite operands give an infinity, unless by a quotient by
0 or by a primitive at a moderate argument, or a subnormal. A primitive that gives NaN has no value there, unless
rounding alone may have moved its argument out of its domain. The other points are compared with a tolerance for
rounding, so a fact can be refuted and never proved. A fact is tested at the same points on every run.

For facts with conditions, points that satisfy them are searched for: by descent on the violation, on the border by
bisection between a point inside and one outside, and far out. Every fact is tried at the constants of its function, and
where its sides are closest to comparing otherwise (`closest_points`). The tolerance of an equality is a multiple of the
error bounds of both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from ...syntax.diagnostic import Label, fail
from ..equations.term import COMPARISONS, free_axes, walk
from ..equations.term_text import condition_text
from ..evaluation.native_calls import ARITHMETIC_CALLS, COMPARISON_CALLS, evaluate_native
from ..evaluation.rounding_bounds import evaluate_function, exact
from .fact_extrema import closest_points
from .trial_operands import declared_numbers, special_numbers

Array = npt.NDArray[Any]

POINTS = 512
"""Number of points at which a fact is tested."""
TOLERANCE = 1e-9
"""Largest relative error that is attributed to rounding."""
ERRORS = 32
"""Tolerance of an equality, as a multiple of the error bounds of its sides."""
SPECIAL = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 10.0, -10.0, 1e-3, -1e-3)
"""Numbers at which functions have kinks, poles and ties."""
MODERATE, MINUTE = 50.0, 1e-3
"""Moderate arguments, at which no function overflows or underflows: an infinite value there counts as no value."""
SMALLEST = 1e-200
LEAST_MET = 24
"""A fact is rejected as untested if fewer points than this meet its conditions."""
SEARCHED = 512
DESCENTS = 80
BISECTIONS = 60


@dataclass(frozen=True)
class Contradiction:
    """A counterexample of a fact: a point that meets its conditions, and both sides there; None for no value."""

    point: Mapping[str, float]
    left: float | None
    right: float | None


def check_facts(function: FunctionDecl, functions: Mapping[str, FunctionDecl]) -> None:
    """Tests every fact of a function.

    Raises E113 for a counterexample, E132 if too few points meet the conditions.
    """
    _check_facts(function, tuple(functions.values()))


@lru_cache(maxsize=512)
def _check_facts(function: FunctionDecl, known: tuple[FunctionDecl, ...]) -> None:
    """Tests the facts once for all libraries that contain these functions."""
    functions = {one.name: one for one in known}
    for fact in function.facts:
        found, met = tried(fact, functions, POINTS, declared_numbers(function, functions))
        if found is None and met < LEAST_MET:
            words = {0: "no point was found that meets", 1: "one point was found that meets"}
            told = words.get(met, f"only {met} points were found that meet")
            help = "a condition leaves room around its points: write an inequality, or put the value in"
            raise fail("E132", f"{told} the conditions of this fact", fact.span, help=help)
        if found is None:
            continue
        at = ", ".join(f"{name} = {value:g}" for name, value in found.point.items())
        left, right = ("no value" if value is None else f"{value:.12g}" for value in (found.left, found.right))
        notes = (
            [Label(fact.claim.span, f"at {at}: {left} on the left, {right} on the right")] if fact.claim.span else []
        )
        raise fail("E113", f"`{condition_text(fact.claim)}` does not hold at {at}", fact.span, notes=notes)


def contradiction(fact: FactDecl, functions: Mapping[str, FunctionDecl], count: int) -> Contradiction | None:
    """The first counterexample among `count` points and those derived from the conditions."""
    return tried(fact, functions, count)[0]


def tried(
    fact: FactDecl, functions: Mapping[str, FunctionDecl], count: int, constants: Iterable[float] = ()
) -> tuple[Contradiction | None, int]:
    """The first counterexample, and the number of distinct points that met the conditions."""
    names = free_axes(fact.claim)
    points = _joined(sample(names, count), _at_constants(fact, names, constants))
    if fact.conditions:
        points = _solved(fact, functions, _joined(points, _suggested(fact, functions, points)))
    closest = closest_points(points, lambda moved: _margin(fact, functions, moved))
    if fact.conditions:
        closest = _solved(fact, functions, closest)
    points = _joined(points, closest)
    count = max((len(column) for column in points.values()), default=count)
    left, right = (_Trial(functions, points).value(side) for side in fact.claim.arguments)
    meets = ~(left.skipped | right.skipped)
    for condition in fact.conditions:
        low, high = (_Trial(functions, points).value(side) for side in condition.arguments)
        holds = COMPARISON_CALLS[condition.function](low.number, high.number)
        meets = meets & holds & ~(low.skipped | high.skipped | low.missing | high.missing)
    meets = np.broadcast_to(meets, (count,))
    met = len(np.unique(np.stack([column[meets] for column in points.values()]), axis=1).T) if points else count
    allowed = _rounding(fact, functions, points)
    wrong = meets & (left.missing | right.missing | ~_compares(fact.claim.function, left, right, allowed))
    places = np.flatnonzero(np.broadcast_to(wrong, (count,)))
    if not len(places):
        return None, met
    first = int(places[0])
    sides = [side.at(first, count) for side in (left, right)]
    return Contradiction({name: float(points[name][first]) for name in names}, *sides), met


def _at_constants(fact: FactDecl, names: tuple[str, ...], constants: Iterable[float]) -> dict[str, Array]:
    """Points at the constants of the function and of the fact, and next to them."""
    nodes = (node for term in (fact.claim, *fact.conditions) for node in walk(term))
    own = [float(node.value) for node in nodes if isinstance(node, Number) and np.isfinite(float(node.value))]
    special = special_numbers([*own, *constants])
    random = np.random.default_rng(3)
    return {name: special if len(names) == 1 else random.permutation(special) for name in names}


def _margin(fact: FactDecl, functions: Mapping[str, FunctionDecl], points: Mapping[str, Array]) -> Array:
    """The distance by which the sides compare as stated; infinite where the fact does not apply or has no value."""
    left, right = (_Trial(functions, points).value(side) for side in fact.claim.arguments)
    with np.errstate(all="ignore"):
        apart = right.number - left.number if fact.claim.function in ("<", "<=") else left.number - right.number
        if fact.claim.function == "==":
            apart = -np.abs(apart) / np.maximum(np.maximum(left.scale, right.scale), SMALLEST)
        elif fact.claim.function == "!=":
            apart = np.abs(apart)
    gone = left.missing | right.missing | left.skipped | right.skipped | ~np.isfinite(apart)
    if fact.conditions:
        gone = gone | (_shortfall(fact, functions, _solved(fact, functions, dict(points))) > 0)
    count = max(len(column) for column in points.values())
    return np.array(np.broadcast_to(np.where(gone, np.inf, apart), (count,)))


def _rounding(fact: FactDecl, functions: Mapping[str, FunctionDecl], points: Mapping[str, Array]) -> Array:
    """The error that rounding may add to the difference of the sides; infinite where it is not known."""
    bound = {name: exact(column) for name, column in points.items()}
    left, right = (evaluate_function(side, bound, functions) for side in fact.claim.arguments)
    return np.asarray(ERRORS * (left.error + right.error) + SMALLEST)


def sample(names: tuple[str, ...], count: int) -> dict[str, Array]:
    """Points: special numbers and ties of them, numbers near 0, and numbers of all magnitudes."""
    random = np.random.default_rng(0)
    third = count // 3
    found = {}
    for name in names:
        special = random.choice(SPECIAL, third)
        special[: len(SPECIAL)] = SPECIAL[:third]
        near = random.normal(0, 2, third)
        rest = count - 2 * third
        sizes = random.uniform(-3, 3, rest) + np.where(np.arange(rest) % 4 == 3, 3, 0)
        spread = random.choice((-1.0, 1.0), rest) * 10.0**sizes
        found[name] = np.concatenate((special, near, spread))
    return found


# ---------------------------------------------------------------------------------------------- where conditions hold


def _suggested(fact: FactDecl, functions: Mapping[str, FunctionDecl], start: Mapping[str, Array]) -> dict[str, Array]:
    """Points inside the conditions, if any are found, on their border, and around it."""
    random = np.random.default_rng(1)
    names = tuple(start)
    wide = {n: random.choice((-1.0, 1.0), SEARCHED) * 10.0 ** random.uniform(-3, 7, SEARCHED) for n in names}
    inside = _joined(start, wide)
    short = _shortfall(fact, functions, inside)
    for _ in range(DESCENTS):
        count = len(short)
        size = 10.0 ** random.uniform(-8, 0.5, count)
        moved = {n: c + random.normal(0, 1, count) * size * np.maximum(np.abs(c), 1e-3) for n, c in inside.items()}
        other = _shortfall(fact, functions, moved)
        better = other < short
        inside = {n: np.where(better, moved[n], column) for n, column in inside.items()}
        short = np.where(better, other, short)
    within = np.flatnonzero(short == 0)
    around = _joined(start, wide)
    without = np.flatnonzero(_shortfall(fact, functions, around) > 0)
    if not len(within) or not len(without):
        return inside
    chosen, others = random.choice(within, SEARCHED), random.choice(without, SEARCHED)
    near = {n: column[chosen] for n, column in inside.items()}
    far = {n: column[others] for n, column in around.items()}
    for _ in range(BISECTIONS):
        middle = {n: near[n] / 2 + far[n] / 2 for n in names}
        holds = _shortfall(fact, functions, middle) == 0
        near = {n: np.where(holds, middle[n], near[n]) for n in names}
        far = {n: np.where(holds, far[n], middle[n]) for n in names}
    return _joined(inside, near)


def _shortfall(fact: FactDecl, functions: Mapping[str, FunctionDecl], points: Mapping[str, Array]) -> Array:
    """The violation of the conditions at each point: 0 where they hold, infinite where they have no value."""
    count = max(len(column) for column in points.values())
    found: Array = np.zeros(count)
    with np.errstate(all="ignore"):
        for condition in fact.conditions:
            low, high = (_Trial(functions, points).value(side) for side in condition.arguments)
            holds = COMPARISON_CALLS[condition.function](low.number, high.number)
            away = np.abs(low.number - high.number) + SMALLEST
            lacks = np.where(holds, 0.0, np.where(np.isfinite(away), away, np.inf))
            gone = low.missing | high.missing | low.skipped | high.skipped
            found = np.maximum(found, np.where(gone, np.inf, lacks))
    return found


def _solved(fact: FactDecl, functions: Mapping[str, FunctionDecl], points: dict[str, Array]) -> dict[str, Array]:
    """The points, with names computed that an equation among the conditions determines, such as `a == 2 * b`."""
    for condition in fact.conditions:
        for side, other in (condition.arguments, condition.arguments[::-1]):
            if condition.function == "==" and isinstance(side, Name) and side.name not in free_axes(other):
                value = _Trial(functions, points).value(other).number
                points = {**points, side.name: np.broadcast_to(value, points[side.name].shape)}
                break
    return points


def _joined(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.concatenate((column, second[name])) for name, column in first.items()}


# ---------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class _Value:
    """Numbers, masks of missing and of unrepresentable ones, and the magnitude on which rounding acts."""

    number: Array
    missing: Array
    skipped: Array
    scale: Array

    def at(self, place: int, count: int) -> float | None:
        missing = bool(np.broadcast_to(self.missing, (count,))[place])
        return None if missing else float(np.broadcast_to(self.number, (count,))[place])


def _compares(sign: str, left: _Value, right: _Value, allowed: Array) -> Array:
    """Whether the sides compare as stated. Equality may be off by `allowed`, and by no more than `TOLERANCE`."""
    holds: Array = np.asarray(COMPARISON_CALLS[sign](left.number, right.number))
    if sign in ("==", "<=", ">="):
        with np.errstate(all="ignore"):
            most = TOLERANCE * np.maximum(left.scale, right.scale)
            holds = holds | (np.abs(left.number - right.number) <= np.minimum(allowed, most))
    return holds


class _Trial:
    """Expressions evaluated at all points at once."""

    def __init__(self, functions: Mapping[str, FunctionDecl], points: Mapping[str, Array]) -> None:
        self.functions = functions
        self.points = {name: _plain(value) for name, value in points.items()}

    def value(self, expr: Expr) -> _Value:
        with np.errstate(all="ignore"):
            return self._value(expr, self.points)

    def _value(self, expr: Expr, bound: Mapping[str, _Value]) -> _Value:
        match expr:
            case Number(number):
                return _plain(np.asarray(float(number)))
            case Name(name):
                return bound[name]
            case Select(condition, then, otherwise):
                chosen, first, second = (self._value(part, bound) for part in (condition, then, otherwise))
                return _chosen(chosen, first, second)
            case Apply(function, arguments):
                return self._apply(function, [self._value(argument, bound) for argument in arguments])
        raise TypeError(f"{type(expr).__name__} in a fact")

    def _apply(self, function: str, parts: list[_Value]) -> _Value:
        decl = self.functions.get(function)
        if decl is not None and decl.definition is not None:
            return self._value(decl.definition, dict(zip(decl.parameters, parts, strict=True)))
        numbers = [part.number for part in parts]
        if decl is not None and decl.numpy is not None:
            number = _at(decl, numbers)
            extreme = [(np.abs(n) > MODERATE) | (n != 0) & (np.abs(n) < MINUTE) for n in np.broadcast_arrays(*numbers)]
            large = np.any(extreme, axis=0)
            small = (np.abs(number) < SMALLEST) & ~np.any([number == n for n in np.broadcast_arrays(*numbers)], axis=0)
            # NaN is no overflow, but rounding of a large or cancelling sum may have left the domain.
            slack = [TOLERANCE * part.scale for part in parts]
            moved = [_at(decl, [n + sign * off for n, off in zip(numbers, slack, strict=True)]) for sign in (-1, 1)]
            rounded = np.isnan(number) & ~(np.isnan(moved[0]) & np.isnan(moved[1]))
            lost = large & (np.isinf(number) | rounded | small)
        else:
            number = np.asarray({**ARITHMETIC_CALLS, **COMPARISON_CALLS}[function](*numbers), dtype=np.float64)
            zero = (numbers[1] == 0) if function in ("/", "//", "%") else np.asarray(False)
            nonzero = np.all([n != 0 for n in np.broadcast_arrays(*numbers)], axis=0)
            tiny = nonzero & (np.abs(number) < SMALLEST) if function in ("*", "/") else np.asarray(False)
            lost = (~np.isfinite(number) & ~zero) | tiny
        missing = np.any(np.broadcast_arrays(*(part.missing for part in parts)), axis=0)
        skipped = np.any(np.broadcast_arrays(*(part.skipped for part in parts)), axis=0)
        scales = [part.scale for part in parts if function not in COMPARISONS]
        scale = np.maximum(np.abs(number), np.max(np.broadcast_arrays(*scales), axis=0) if scales else 0.0)
        gone = ~np.isfinite(number)
        return _Value(number, missing | (gone & ~lost & ~skipped), skipped | (lost & ~missing), scale)


def _at(primitive: FunctionDecl, numbers: list[Array]) -> Array:
    assert primitive.numpy is not None
    return np.asarray(evaluate_native(primitive.numpy, dict(zip(primitive.parameters, numbers, strict=True))))


def _plain(number: Array) -> _Value:
    never = np.zeros(number.shape, dtype=bool)
    return _Value(number, never, never, np.abs(number))


def _chosen(condition: _Value, then: _Value, otherwise: _Value) -> _Value:
    """The branch taken; the other one has no influence."""
    taken = condition.number != 0
    return _Value(
        np.where(taken, then.number, otherwise.number),
        condition.missing | np.where(taken, then.missing, otherwise.missing),
        condition.skipped | np.where(taken, then.skipped, otherwise.skipped),
        np.where(taken, then.scale, otherwise.scale),
    )

"""Tries declared facts of element functions at points; refuses those that a number contradicts.

A point is left out where a value is too large or too small for float64; what is left is compared with a tolerance for
rounding, so points can refute a fact and never prove it. Every fact is tried at the same points on every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from ...syntax.diagnostic import Label, fail
from ..equations.term import COMPARISONS, free_axes
from ..equations.term_text import condition_text
from ..evaluation.native_calls import ARITHMETIC_CALLS, COMPARISON_CALLS, evaluate_native

Array = npt.NDArray[Any]

POINTS = 512
"""How many points a fact is tried at when it is read."""
TOLERANCE = 1e-9
SPECIAL = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 10.0, -10.0, 1e-3, -1e-3)
"""Numbers at which functions have kinks, poles and ties."""
MODERATE = 50.0
"""Up to here an argument does not make a function overflow or underflow: an infinite value is no value."""
SMALLEST = 1e-200


@dataclass(frozen=True)
class Contradiction:
    """A point that meets the conditions of a fact, and both sides there; None for a side without a value."""

    point: Mapping[str, float]
    left: float | None
    right: float | None


def check_facts(function: FunctionDecl, functions: Mapping[str, FunctionDecl]) -> None:
    """Try every fact of a function. Raises E113 for one that does not hold, or that holds nowhere."""
    for fact in function.facts:
        found = contradiction(fact, functions, POINTS)
        if found is None:
            continue
        if not found.point:
            raise fail("E113", "no point was found that meets the conditions of this fact", fact.span)
        at = ", ".join(f"{name} = {value:g}" for name, value in found.point.items())
        left, right = ("no value" if value is None else f"{value:.12g}" for value in (found.left, found.right))
        notes = (
            [Label(fact.claim.span, f"at {at}: {left} on the left, {right} on the right")] if fact.claim.span else []
        )
        raise fail("E113", f"`{condition_text(fact.claim)}` does not hold at {at}", fact.span, notes=notes)


def contradiction(fact: FactDecl, functions: Mapping[str, FunctionDecl], count: int) -> Contradiction | None:
    """The first of `count` points at which a fact fails; one without coordinates where its conditions hold nowhere."""
    names = free_axes(fact.claim)
    points = sample(names, count)
    left, right = (_Trial(functions, points).value(side) for side in fact.claim.arguments)
    meets = ~(left.skipped | right.skipped)
    for condition in fact.conditions:
        low, high = (_Trial(functions, points).value(side) for side in condition.arguments)
        holds = COMPARISON_CALLS[condition.function](low.number, high.number)
        meets = meets & holds & ~(low.skipped | high.skipped | low.missing | high.missing)
    if not np.any(meets):
        return Contradiction({}, None, None)
    wrong = meets & (left.missing | right.missing | ~_compares(fact.claim.function, left, right))
    places = np.flatnonzero(np.broadcast_to(wrong, (count,)))
    if not len(places):
        return None
    first = int(places[0])
    sides = [side.at(first, count) for side in (left, right)]
    return Contradiction({name: float(points[name][first]) for name in names}, *sides)


def sample(names: tuple[str, ...], count: int) -> dict[str, Array]:
    """Points: the special numbers and ties of them, numbers near 0, and numbers of every size."""
    random = np.random.default_rng(0)
    third = count // 3
    found = {}
    for name in names:
        special = random.choice(SPECIAL, third)
        special[: len(SPECIAL)] = SPECIAL[:third]
        near = random.normal(0, 2, third)
        rest = count - 2 * third
        spread = random.choice((-1.0, 1.0), rest) * 10.0 ** random.uniform(-3, 3, rest)
        found[name] = np.concatenate((special, near, spread))
    return found


@dataclass(frozen=True)
class _Value:
    """Numbers, where there is no value, where float64 cannot hold it, and the size of what rounding acts on."""

    number: Array
    missing: Array
    skipped: Array
    scale: Array

    def at(self, place: int, count: int) -> float | None:
        missing = bool(np.broadcast_to(self.missing, (count,))[place])
        return None if missing else float(np.broadcast_to(self.number, (count,))[place])


def _compares(sign: str, left: _Value, right: _Value) -> Array:
    """Whether the sides compare as stated; what asks for equality is met by what rounding makes of it."""
    holds: Array = np.asarray(COMPARISON_CALLS[sign](left.number, right.number))
    if sign in ("==", "<=", ">="):
        with np.errstate(all="ignore"):
            holds = holds | (np.abs(left.number - right.number) <= TOLERANCE * np.maximum(left.scale, right.scale))
    return holds


class _Trial:
    """Expressions evaluated at all points together."""

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
            number = np.asarray(evaluate_native(decl.numpy, dict(zip(decl.parameters, numbers, strict=True))))
            large = np.any([np.abs(n) > MODERATE for n in np.broadcast_arrays(*numbers)], axis=0)
            small = (np.abs(number) < SMALLEST) & ~np.any([number == n for n in np.broadcast_arrays(*numbers)], axis=0)
            lost = large & (~np.isfinite(number) | small)
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


def _plain(number: Array) -> _Value:
    never = np.zeros(number.shape, dtype=bool)
    return _Value(number, never, never, np.abs(number))


def _chosen(condition: _Value, then: _Value, otherwise: _Value) -> _Value:
    """The branch that is not taken has no say."""
    taken = condition.number != 0
    return _Value(
        np.where(taken, then.number, otherwise.number),
        condition.missing | np.where(taken, then.missing, otherwise.missing),
        condition.skipped | np.where(taken, then.skipped, otherwise.skipped),
        np.where(taken, then.scale, otherwise.scale),
    )

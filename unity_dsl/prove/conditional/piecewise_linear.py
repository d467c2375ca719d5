"""Normalises relu6, clamp, leaky relu and the like: the canonical piecewise-linear form of Chua and Kang (1977).

    f(v) = a v + b + sum of c_i max(v - t_i, 0),  t_i rational and increasing, no c_i = 0

The coefficients are determined by f, so that equal functions of one variable have one form. v stands for any finite
form; a maximum of such functions of v is one again, and a `select` between them where it is continuous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm

from ..functions.fact_patterns import is_negative
from ..normal_form.form import Extremum, Form, Term, add, canonical, constant, refresh, scale
from ..normal_form.polynomial import number

MAX_BREAKS = 16
"""Functions of more pieces are not normalised."""


@dataclass(frozen=True)
class PiecewiseLinear:
    """`slope` v + `offset` + sum of c max(v - t, 0) over `hinges` (t, c)."""

    slope: Fraction
    offset: Fraction
    hinges: tuple[tuple[Fraction, Fraction], ...] = ()

    def at(self, point: Fraction) -> Fraction:
        """The value at a point."""
        return self.slope * point + self.offset + sum(c * max(point - t, Fraction(0)) for t, c in self.hinges)

    def __add__(self, other: PiecewiseLinear) -> PiecewiseLinear:
        total = dict(self.hinges)
        for point, change in other.hinges:
            total[point] = total.get(point, Fraction(0)) + change
        hinges = tuple(sorted((point, change) for point, change in total.items() if change))
        return PiecewiseLinear(self.slope + other.slope, self.offset + other.offset, hinges)

    def scaled(self, factor: Fraction) -> PiecewiseLinear:
        hinges = tuple((point, change * factor) for point, change in self.hinges if factor)
        return PiecewiseLinear(self.slope * factor, self.offset * factor, hinges)

    def zeros(self) -> list[Fraction]:
        """The zeros; of an interval of zeros, its ends."""
        points = [point for point, _ in self.hinges] or [Fraction(0)]
        found = [point for point in points if not self.at(point)]
        for left, right in pairwise([points[0] - 1, *points, points[-1] + 1]):
            slope = (self.at(right) - self.at(left)) / (right - left)
            crossing = left - self.at(left) / slope if slope else left
            inside = (left < crossing or left < points[0]) and (crossing < right or right > points[-1])
            if slope and inside:
                found.append(crossing)
        return found


def hinge(slope: Fraction, offset: Fraction) -> PiecewiseLinear:
    """max(slope v + offset, 0)."""
    if not slope:
        return PiecewiseLinear(Fraction(0), max(offset, Fraction(0)))
    rising = PiecewiseLinear(Fraction(0), Fraction(0), ((-offset / slope, abs(slope)),))
    return rising if slope > 0 else rising + PiecewiseLinear(slope, offset)


Choice = Callable[[Fraction], PiecewiseLinear]


def pieced(breaks: Iterable[Fraction], choice: Choice) -> PiecewiseLinear | None:
    """The function equal to choice(point) at each point, where choice is constant between breaks.

    None if discontinuous.
    """
    points = sorted(set(breaks))
    if not points or len(points) > MAX_BREAKS:
        return choice(Fraction(0)) if not points else None
    between = [points[0] - 1, *((a + b) / 2 for a, b in pairwise(points)), points[-1] + 1]
    chosen = [choice(point) for point in between]
    for point, (left, right) in zip(points, pairwise(chosen), strict=True):
        if not left.at(point) == right.at(point) == choice(point).at(point):
            return None
    slopes = [_slope(function, point, points) for function, point in zip(chosen, between, strict=True)]
    hinges = tuple((p, b - a) for p, (a, b) in zip(points, pairwise(slopes), strict=True) if a != b)
    first = points[0]
    return PiecewiseLinear(slopes[0], chosen[0].at(first) - slopes[0] * first, hinges)


def _slope(function: PiecewiseLinear, point: Fraction, points: Sequence[Fraction]) -> Fraction:
    """The slope at a point between breaks."""
    return function.slope + sum((change for t, change in function.hinges if t < point), Fraction(0))


def greatest(functions: Sequence[PiecewiseLinear]) -> PiecewiseLinear | None:
    """The pointwise maximum."""
    breaks = {point for function in functions for point, _ in function.hinges}
    for position, first in enumerate(functions):
        for second in functions[position + 1 :]:
            breaks.update((first + second.scaled(Fraction(-1))).zeros())
    return pieced(breaks, lambda point: max(functions, key=lambda function: function.at(point)))


def selected(
    holds: Callable[[Fraction], bool], difference: PiecewiseLinear, then: PiecewiseLinear, otherwise: PiecewiseLinear
) -> PiecewiseLinear | None:
    """`then` where `holds(difference)`, else `otherwise`; None if discontinuous."""
    breaks = {point for function in (difference, then, otherwise) for point, _ in function.hinges}
    breaks.update(difference.zeros())
    return pieced(breaks, lambda point: then if holds(difference.at(point)) else otherwise)


# ---------------------------------------------------------------------------------------------- forms


def functions_of_one(forms: Sequence[Form]) -> tuple[Form, list[PiecewiseLinear]] | None:
    """A form v and all forms as piecewise linear functions of it; None where there is no such v."""
    for parts in (_with_hinges, _plain):
        found = _functions(forms, parts)
        if found is not None:
            return found
    return None


def form_of(function: PiecewiseLinear, v: Form, greatest_of_two: Callable[[Form, Form], Form]) -> Form:
    """The function as a form in v; `greatest_of_two` builds the maximum of two forms."""
    parts = [scale(v, number(function.slope)), constant(number(function.offset))]
    for point, change in function.hinges:
        # with integer coefficients, since sets factor out a common rational
        whole = point.denominator
        above = add(scale(refresh(v), number(whole)), constant(number(-point * whole)))
        parts.append(scale(greatest_of_two(above, ()), number(change / whole)))
    return add(*(part for part in parts if part))


@dataclass(frozen=True)
class _Parts:
    """A form as linear part + offset + sum of c max(inner + t, 0)."""

    linear: Form
    offset: Fraction
    hinges: tuple[tuple[Fraction, Form, Fraction], ...] = ()


def _functions(forms: Sequence[Form], parts: Callable[[Form], _Parts]) -> tuple[Form, list[PiecewiseLinear]] | None:
    taken = [parts(form) for form in forms]
    linear = [form for part in taken for form in (part.linear, *(inner for _, inner, _ in part.hinges)) if form]
    directions = list(dict.fromkeys(_direction(form)[0] for form in linear))
    if len({frozenset(v) for v in directions}) != 1:
        return None
    return refresh(directions[0]), [_function(part) for part in taken]


def _function(part: _Parts) -> PiecewiseLinear:
    total = PiecewiseLinear(_direction(part.linear)[1] if part.linear else Fraction(0), part.offset)
    for factor, inner, offset in part.hinges:
        total = total + hinge(_direction(inner)[1], offset).scaled(factor)
    return total


def _plain(form: Form) -> _Parts:
    """The constant and the linear part; maxima in it are treated as variables."""
    constants = [term for term in form if _is_number(term)]
    offset = sum((term.coefficient.constant or Fraction(0) for term in constants), Fraction(0))
    return _Parts(tuple(term for term in form if term not in constants), offset)


def _with_hinges(form: Form) -> _Parts:
    """As `_plain`, with multiples of max(inner, 0) as hinges."""
    plain = _plain(form)
    linear, hinges = [], []
    for term in plain.linear:
        inner = _hinge_in(term)
        if inner is None:
            linear.append(term)
        else:
            below = _plain(inner)
            hinges.append((term.coefficient.constant or Fraction(0), below.linear, below.offset))
    return _Parts(tuple(linear), plain.offset, tuple(hinges))


def _is_number(term: Term) -> bool:
    return not term.factors and not term.bound and not term.guards and term.coefficient.constant is not None


def _hinge_in(term: Term) -> Form | None:
    """`inner` of a term c max(inner, 0), else None."""
    if term.bound or term.guards or len(term.factors) != 1 or term.coefficient.constant is None:
        return None
    ((factor, power),) = term.factors
    if power != 1 or not isinstance(factor, Extremum) or len(factor.families) != 2:
        return None
    if any(family.bound or family.guards for family in factor.families):
        return None
    values = [family.value for family in factor.families]
    if () not in values:
        return None
    inner = refresh(values[0] or values[1])
    return inner if _plain(inner).linear else None


def _direction(form: Form) -> tuple[Form, Fraction]:
    """(v, c) with form = c v, where v has coprime integer coefficients and a positive first one."""
    factors = [factor for term in form for _, factor in term.coefficient.terms]
    content = Fraction(gcd(*(f.numerator for f in factors)), lcm(*(f.denominator for f in factors)))
    content = -content if is_negative(form) else content
    (numbered,) = canonical([scale(form, number(1 / content))])
    return numbered, content

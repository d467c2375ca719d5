"""The factor between the terms of an operator at one size and the terms of the same operator at another size.

A mean over b/m positions has terms m times those of a mean over b, as it divides by a size. Both equations are walked
together; sizes and numbers may differ, and the factor must be the same wherever terms are added or compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from math import inf

from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size, Uniform
from ...syntax.rational import Rational, exact_number
from ..equations.instance import Equation, Instance
from ..equations.term import COMPARISONS, walk

Scale = Fraction | None
"""A positive factor; None for a term that is 0 or infinite, which any factor leaves the same."""

ONE = Fraction(1)


class NoScale(Exception):
    """The terms are not multiples of each other; the text says why."""


def result_scales(
    given: Instance, other: Instance, axes: Collection[str], operands: Mapping[str, Scale]
) -> dict[str, Scale]:
    """The factor of every result of `other` relative to `given`, from the factors of its `operands`.

    Both are one operator, at sizes that differ along `axes` alone. Along these axes, `other` has a part of the terms
    and of the results of `given`. Raises NoScale.
    """
    scales = dict(operands)
    if given.extern:
        _all_one(scales.values())
        return {output.name: ONE for output in given.outputs}
    found = _equation_scales(given, other, given.equations, other.equations, axes, scales)
    if given.evaluation or other.evaluation:
        evaluated = _equation_scales(given, other, given.evaluation, other.evaluation, axes, scales)
        if any(evaluated[output.name] != found[output.name] for output in given.outputs):
            raise NoScale("the batch counts otherwise in evaluation mode")
    return found


def _equation_scales(
    given: Instance,
    other: Instance,
    equations: Iterable[Equation],
    others: Iterable[Equation],
    axes: Collection[str],
    operands: Mapping[str, Scale],
) -> dict[str, Scale]:
    terms = _Terms(given, other, axes, dict(operands))
    for one, two in zip(tuple(equations), tuple(others), strict=True):
        if (one.target.name, one.kind, one.over) != (two.target.name, two.kind, two.over):
            raise NoScale("its statements depend on the size of the batch")
        scale = terms.scale(one.value, two.value)
        if one.kind is ReductionKind.PROD and scale is not None:
            _all_one([scale])
        terms.scales[one.target.name] = scale
    return terms.scales


class _Terms:
    """Walks the terms of two instances together. `scales` has the factors of operands and of earlier equations."""

    def __init__(self, given: Instance, other: Instance, axes: Collection[str], scales: dict[str, Scale]) -> None:
        self.given, self.other, self.axes, self.scales = given, other, axes, scales

    def scale(self, one: Expr, two: Expr) -> Scale:
        match one, two:
            case Number(value=left), Number(value=right):
                return _ratio(left, right)
            case Size(name=name), Size(name=same) if name == same:
                return Fraction(self.other.sizes[name], self.given.sizes[name])
            case Name(name=name), Name(name=same) if name == same:
                if name in self.axes:
                    raise NoScale("it computes with the position of an example in the batch")
                return ONE
            case Read(tensor=name, index=index, fill=fill), Read(tensor=same, index=others, fill=filled) if (
                name == same and len(index) == len(others) and (fill is None) == (filled is None)
            ):
                for place, moved in zip(index, others, strict=True):
                    self.position(place, moved)
                if fill is None or filled is None:
                    return self.scales[name]
                return _equal([self.scales[name], self.scale(fill, filled)])
            case Uniform(index=index), Uniform(index=others) if index == others:
                return self.draw(index)
            case Select(condition, then, otherwise), Select(same, thus, else_):
                _all_one([self.scale(condition, same)])
                return _equal([self.scale(then, thus), self.scale(otherwise, else_)])
            case Apply(function=function, arguments=arguments), Apply(function=same, arguments=others) if (
                function == same and len(arguments) == len(others)
            ):
                return _applied(function, [self.scale(a, b) for a, b in zip(arguments, others, strict=True)])
        raise NoScale("its statements depend on the size of the batch")

    def position(self, one: Expr, two: Expr) -> None:
        """Checks that an index is the same in both and does not depend on the lengths of `axes`. Raises NoScale."""
        if any(isinstance(node, Size) and node.name in self.axes for node in walk(one)):
            raise NoScale("it reads examples at positions that depend on the size of the batch")
        for left, right in zip(walk(one), walk(two), strict=False):
            if isinstance(left, Read) and isinstance(right, Read):
                _all_one([self.scales[left.tensor]])
            elif type(left) is not type(right) or not _alike(left, right):
                raise NoScale("it reads examples at positions that depend on the size of the batch")

    def draw(self, index: tuple[Expr, ...]) -> Scale:
        """Numbers are drawn by position: those of a part of the batch are consecutive only if the batch comes first."""
        first = index[0] if index else None
        if not isinstance(first, Name) or first.name not in self.axes:
            raise NoScale("it draws random numbers in an order in which the examples do not come first")
        return ONE


def _alike(one: Expr, two: Expr) -> bool:
    """Whether two nodes are equal apart from their subterms."""
    match one, two:
        case Number(value=left), Number(value=right):
            return left == right
        case (Size(name=left), Size(name=right)) | (Name(name=left), Name(name=right)):
            return left == right
        case Apply(function=left), Apply(function=right):
            return left == right
    return type(one) is type(two)


def _ratio(left: Rational, right: Rational) -> Scale:
    if left == right:
        return None if left in (0, inf, -inf) else ONE
    if 0 in (left, right) or {inf, -inf} & {left, right} or (left < 0) != (right < 0):
        raise NoScale("a number in it depends on the size of the batch")
    return exact_number(right) / exact_number(left)


def _applied(function: str, scales: list[Scale]) -> Scale:
    """The factor of a function's value, from the factors of its arguments."""
    match function, scales:
        case ("*", [left, right]):
            return None if left is None or right is None else left * right
        case ("/", [left, right]):
            if right is None:
                _all_one(scales)
                return ONE
            return None if left is None else left / right
        case ("neg", [scale]):
            return scale
        case ("+" | "-", _):
            return _equal(scales)
        case (name, _) if name in COMPARISONS:
            _equal(scales)
            return ONE
    _all_one(scales)
    return ONE


def _equal(scales: Iterable[Scale]) -> Scale:
    known = {scale for scale in scales if scale is not None}
    if len(known) > 1:
        raise NoScale("it adds or compares a mean over the batch and something that is none")
    return known.pop() if known else None


def _all_one(scales: Iterable[Scale]) -> None:
    if any(scale not in (None, ONE) for scale in scales):
        raise NoScale("it is not linear in a mean over the batch")
